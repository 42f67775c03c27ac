#include "collectives/nccl.h"

#include <fmt/format.h>

#include <string_view>
#include <thread>

#include "collectives/slices.h"

namespace tandem::collectives {

namespace {

using Clock = std::chrono::steady_clock;

// After which NCCL and the GPU are asked again whether they are done.
constexpr auto kPause = std::chrono::microseconds(20);
constexpr auto kTimeToLeave = std::chrono::seconds(5);

// Memory of the GPU that grows with what is asked of it.
class Scratch {
 public:
  Scratch(const kernels::cuda::Library& library, TandemCudaStream stream) : library_(library), stream_(stream) {}
  Scratch(const Scratch&) = delete;
  ~Scratch() { library_.functions().free(stream_, memory_); }
  Result<std::byte*> of(size_t bytes) {
    if (bytes > size_) {
      library_.functions().free(stream_, memory_);
      memory_ = nullptr;
      size_ = 0;
      TRY(library_.status("collectives: memory for a sum", library_.functions().allocate(stream_, bytes, &memory_)));
      size_ = bytes;
    }
    return static_cast<std::byte*>(memory_);
  }

 private:
  const kernels::cuda::Library& library_;
  TandemCudaStream stream_;
  void* memory_ = nullptr;
  size_t size_ = 0;
};

class NcclGroup final : public Group {
 public:
  NcclGroup(int rank, int ranks, NcclLibrary nccl, NcclSettings settings)
      : rank_(rank),
        ranks_(ranks),
        nccl_(std::move(nccl)),
        kernels_(std::move(settings.kernels)),
        stream_(settings.stream),
        scratch_(kernels_, stream_) {}
  ~NcclGroup() override { close(); }

  Status open(const NcclUniqueId& id, std::chrono::milliseconds deadline) {
    begin("meet", deadline);
    NcclConfig config;
    TRY(started(nccl_.functions().ncclCommInitRankConfig(&communicator_, ranks_, id, rank_, &config)));
    return settled();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  Status all_reduce(std::span<float> values, std::chrono::milliseconds deadline) override {
    return reduce_all(values, deadline);
  }
  Status all_reduce(std::span<bf16> values, std::chrono::milliseconds deadline) override {
    return reduce_all(values, deadline);
  }
  Status reduce_scatter(std::span<const float> values, std::span<float> part,
                        std::chrono::milliseconds deadline) override {
    return reduce_parts(values, part, deadline);
  }
  Status reduce_scatter(std::span<const bf16> values, std::span<bf16> part,
                        std::chrono::milliseconds deadline) override {
    return reduce_parts(values, part, deadline);
  }

  Status all_gather(std::span<const std::byte> part, std::span<std::byte> all,
                    std::chrono::milliseconds deadline) override {
    TRY(check_all_gather(part.size(), all.size(), ranks()));
    if (!broken_.ok()) return broken_;
    begin("all_gather", deadline);
    const bool there = part.data() == all.data() + part.size() * rank_;
    const auto size = [&](int peer) { return there && peer == rank_ ? 0 : part.size(); };
    TRY(exchange([&](int peer) { return std::pair(part.data(), size(peer)); },
                 [&](int peer) { return std::pair(all.data() + part.size() * peer, size(peer)); }));
    return passed();
  }

  Status reduce_pieces(std::span<float> values, std::span<const Piece> pieces,
                       std::chrono::milliseconds deadline) override {
    TRY(check_tree(ranks_));
    TRY(check_pieces(values.size(), pieces, ranks_));
    if (!broken_.ok()) return broken_;
    begin("reduce_pieces", deadline);
    const size_t first = pieces[rank_].begin, count = pieces[rank_].count;
    auto scratch = scratch_.of(count * sizeof(float) * ranks_);
    if (!scratch) return broken(std::move(scratch).error());
    float* const terms = reinterpret_cast<float*>(*scratch);
    const size_t size = count * sizeof(float);
    TRY(exchange(
        [&](int peer) { return std::pair(values.data() + pieces[peer].begin, pieces[peer].count * sizeof(float)); },
        [&](int peer) { return std::pair(terms + count * peer, size); }));
    // Each level adds neighbours and moves the sums together; what is written was read before, on the same stream.
    for (int left = ranks_; left > 1 && count > 0; left /= 2) {
      for (int i = 0; i < left / 2; ++i) {
        float* const sums = left == 2 ? values.data() + first : terms + count * i;
        const TandemCudaSumPartsFloat arguments{terms + count * 2 * i, sums, static_cast<int64_t>(count), 2};
        TRY(launched(kernels_.functions().sum_parts_float(stream_, &arguments)));
      }
    }
    return passed();
  }

  Status gather_pieces(std::span<std::byte> bytes, std::span<const Piece> pieces,
                       std::chrono::milliseconds deadline) override {
    TRY(check_pieces(bytes.size(), pieces, ranks_));
    if (!broken_.ok()) return broken_;
    begin("gather_pieces", deadline);
    const auto size = [&](int sender, int peer) { return peer == rank_ ? 0 : pieces[sender].count; };
    TRY(exchange([&](int peer) { return std::pair(bytes.data() + pieces[rank_].begin, size(rank_, peer)); },
                 [&](int peer) { return std::pair(bytes.data() + pieces[peer].begin, size(peer, peer)); }));
    return passed();
  }

  Status broadcast(std::span<std::byte> bytes, int root, std::chrono::milliseconds deadline) override {
    TRY(check_root(root, ranks()));
    if (!broken_.ok()) return broken_;
    begin("broadcast", deadline);
    const bool sends = rank_ == root;
    TRY(exchange([&](int peer) { return std::pair(bytes.data(), sends && peer != root ? bytes.size() : 0); },
                 [&](int peer) { return std::pair(bytes.data(), !sends && peer == root ? bytes.size() : 0); }));
    return passed();
  }

 private:
  template <typename T>
  Status reduce_all(std::span<T> values, std::chrono::milliseconds deadline) {
    if (!broken_.ok()) return broken_;
    begin("all_reduce", deadline);
    const Slices slices{values.size(), ranks_};
    TRY(gather_and_add<T>(values, slices, values.subspan(slices.begin(rank_), slices.size(rank_))));
    const T* mine = values.data() + slices.begin(rank_);
    TRY(exchange([&](int peer) { return std::pair(mine, peer == rank_ ? 0 : slices.size(rank_) * sizeof(T)); },
                 [&](int peer) {
                   return std::pair(values.data() + slices.begin(peer),
                                    peer == rank_ ? 0 : slices.size(peer) * sizeof(T));
                 }));
    return passed();
  }

  template <typename T>
  Status reduce_parts(std::span<const T> values, std::span<T> part, std::chrono::milliseconds deadline) {
    TRY(check_reduce_scatter(values.size(), part.size(), ranks()));
    if (!broken_.ok()) return broken_;
    begin("reduce_scatter", deadline);
    TRY(gather_and_add<T>(values, {values.size(), ranks_}, part));
    return passed();
  }

  // sums = this rank's slice of all ranks' values, added in the order of ranks. What was sent is read before it is
  // overwritten: all of it is on one stream.
  template <typename T>
  Status gather_and_add(std::span<const T> values, const Slices& slices, std::span<T> sums) {
    auto scratch = scratch_.of(sums.size_bytes() * ranks_);
    if (!scratch) return broken(std::move(scratch).error());
    T* parts = reinterpret_cast<T*>(*scratch);
    TRY(exchange([&](int peer) { return std::pair(values.data() + slices.begin(peer), slices.size(peer) * sizeof(T)); },
                 [&](int peer) { return std::pair(parts + sums.size() * peer, sums.size_bytes()); }));
    if (sums.empty()) return {};
    return added(parts, sums);
  }
  Status added(const float* parts, std::span<float> sums) {
    const TandemCudaSumPartsFloat arguments{parts, sums.data(), static_cast<int64_t>(sums.size()), ranks_};
    return launched(kernels_.functions().sum_parts_float(stream_, &arguments));
  }
  Status added(const bf16* parts, std::span<bf16> sums) {
    const TandemCudaSumParts arguments{reinterpret_cast<const uint16_t*>(parts),
                                       reinterpret_cast<uint16_t*>(sums.data()), static_cast<int64_t>(sums.size()),
                                       ranks_};
    return launched(kernels_.functions().sum_parts(stream_, &arguments));
  }

  // Every rank sends sent(peer) to each, itself among them, and receives received(peer): pairs of memory and bytes.
  template <typename Sent, typename Received>
  Status exchange(const Sent& sent, const Received& received) {
    const NcclFunctions& nccl = nccl_.functions();
    void* stream = kernels_.functions().raw_stream(stream_);
    TRY(started(nccl.ncclGroupStart()));
    int result = kNcclSuccess;
    for (int peer = 0; peer < ranks_; ++peer) {
      const auto [from, sent_bytes] = sent(peer);
      const auto [to, received_bytes] = received(peer);
      if (sent_bytes > 0 && accepted(result)) {
        result = nccl.ncclSend(from, sent_bytes, kNcclBytes, peer, communicator_, stream);
      }
      if (received_bytes > 0 && accepted(result)) {
        result = nccl.ncclRecv(to, received_bytes, kNcclBytes, peer, communicator_, stream);
      }
    }
    const int ended = nccl.ncclGroupEnd();
    TRY(started(accepted(result) ? ended : result));
    return settled();
  }

  void begin(std::string_view operation, std::chrono::milliseconds deadline) {
    operation_ = operation;
    end_ = Clock::now() + deadline;
  }
  static bool accepted(int result) { return result == kNcclSuccess || result == kNcclInProgress; }
  Status started(int result) { return accepted(result) ? Status() : broken(nccl_.status(operation_, result)); }
  Status launched(int code) { return code == kTandemCudaOk ? Status() : broken(kernels_.status(operation_, code)); }

  // Waits until NCCL has put on the stream what it was asked for.
  Status settled() {
    for (;;) {
      int state = kNcclSuccess;
      TRY(started(nccl_.functions().ncclCommGetAsyncError(communicator_, &state)));
      TRY(started(state));
      if (state == kNcclSuccess) return {};
      TRY(in_time());
    }
  }
  // Waits until the stream has passed it.
  Status passed() {
    for (;;) {
      int done = 0, state = kNcclSuccess;
      TRY(launched(kernels_.functions().done(stream_, &done)));
      if (done) return {};
      TRY(started(nccl_.functions().ncclCommGetAsyncError(communicator_, &state)));
      TRY(started(state));
      TRY(in_time());
    }
  }
  Status in_time() {
    if (Clock::now() >= end_)
      return broken(Status::deadline(fmt::format("{}: the other ranks have not answered in time", operation_)));
    std::this_thread::sleep_for(kPause);
    return {};
  }
  Status broken(Status status) {
    broken_ = status;
    abort();
    return status;
  }
  // A group that is well gives what is under way time to arrive at the others, who may be behind.
  void close() {
    if (communicator_ == nullptr) return;
    begin("leave", kTimeToLeave);
    if (!started(nccl_.functions().ncclCommFinalize(communicator_)) || !settled()) return abort();
    nccl_.functions().ncclCommDestroy(communicator_);
    communicator_ = nullptr;
  }
  void abort() {
    if (communicator_ != nullptr) nccl_.functions().ncclCommAbort(communicator_);
    communicator_ = nullptr;
  }

  const int rank_, ranks_;
  NcclLibrary nccl_;
  kernels::cuda::Library kernels_;
  TandemCudaStream stream_;
  Scratch scratch_;
  NcclCommunicator communicator_ = nullptr;
  Status broken_;
  std::string_view operation_;
  Clock::time_point end_;
};

}  // namespace

Result<std::unique_ptr<Group>> meet_by_nccl(Group& meeting, NcclLibrary nccl, NcclSettings settings) {
  NcclUniqueId id{};
  Status made;
  if (meeting.rank() == 0) made = nccl.status("ncclGetUniqueId", nccl.functions().ncclGetUniqueId(&id));
  // An id of zeros says that the first rank could not make one.
  TRY(meeting.broadcast(std::as_writable_bytes(std::span(id.bytes)), 0, settings.deadline));
  TRY(std::move(made));
  if (std::string_view(id.bytes, sizeof id.bytes).find_first_not_of('\0') == std::string_view::npos)
    return fail(Status::unavailable("meet: rank 0 could not begin a group of NCCL"));
  const auto deadline = settings.deadline;
  auto group = std::make_unique<NcclGroup>(meeting.rank(), meeting.ranks(), std::move(nccl), std::move(settings));
  TRY(group->open(id, deadline));
  // A rank that is in goes on when all are: what it does next would meet ranks that are still on their way.
  TRY(meeting.all_gather({}, {}, deadline));
  return group;
}

}  // namespace tandem::collectives
