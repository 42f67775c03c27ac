#include "collectives/local.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/meeting.h"
#include "collectives/mesh.h"
#include "collectives/slices.h"

namespace tandem::collectives {

namespace {

using Clock = std::chrono::steady_clock;

class LocalGroup final : public Group {
 public:
  explicit LocalGroup(Mesh mesh) : mesh_(std::move(mesh)) {}

  int rank() const override { return mesh_.rank(); }
  int ranks() const override { return mesh_.ranks(); }

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
    TRY(mesh_.begin(Operation::kAllGather, all.size(), deadline));
    std::byte* mine = all.data() + part.size() * rank();
    if (!part.empty() && mine != part.data()) std::memcpy(mine, part.data(), part.size());
    for (int peer = 0; peer < ranks(); ++peer) {
      mesh_.send(peer, mine, part.size());
      mesh_.receive(peer, all.data() + part.size() * peer, part.size());
    }
    return mesh_.exchange();
  }

  Status reduce_pieces(std::span<float> values, std::span<const Piece> pieces,
                       std::chrono::milliseconds deadline) override {
    TRY(check_tree(ranks()));
    TRY(check_pieces(values.size(), pieces, ranks()));
    TRY(mesh_.begin(Operation::kReducePieces, values.size_bytes(), deadline));
    const auto [begin, count] = pieces[rank()];
    std::vector<float> terms(count * ranks());
    const std::span<float> mine = values.subspan(begin, count);
    std::copy(mine.begin(), mine.end(), terms.begin() + count * rank());
    for (int peer = 0; peer < ranks(); ++peer) {
      mesh_.send(peer, values.data() + pieces[peer].begin, pieces[peer].count * sizeof(float));
      mesh_.receive(peer, terms.data() + count * peer, count * sizeof(float));
    }
    TRY(mesh_.exchange());
    for (int width = 1; width < ranks(); width *= 2) {
      for (int left = 0; left < ranks(); left += 2 * width) {
        float* sums = terms.data() + count * left;
        const float* others = terms.data() + count * (left + width);
        for (size_t i = 0; i < count; ++i) sums[i] += others[i];
      }
    }
    std::copy_n(terms.begin(), count, mine.begin());
    return {};
  }

  Status gather_pieces(std::span<std::byte> bytes, std::span<const Piece> pieces,
                       std::chrono::milliseconds deadline) override {
    TRY(check_pieces(bytes.size(), pieces, ranks()));
    TRY(mesh_.begin(Operation::kGatherPieces, bytes.size(), deadline));
    for (int peer = 0; peer < ranks(); ++peer) {
      mesh_.send(peer, bytes.data() + pieces[rank()].begin, pieces[rank()].count);
      mesh_.receive(peer, bytes.data() + pieces[peer].begin, pieces[peer].count);
    }
    return mesh_.exchange();
  }

  Status broadcast(std::span<std::byte> bytes, int root, std::chrono::milliseconds deadline) override {
    TRY(check_root(root, ranks()));
    TRY(mesh_.begin(Operation::kBroadcast, bytes.size() * kMostRanks + root, deadline));
    for (int peer = 0; peer < ranks(); ++peer) {
      if (rank() == root) mesh_.send(peer, bytes.data(), bytes.size());
      // The others answer with nothing, so that the root, too, learns who is in another call.
      if (rank() == root) mesh_.receive(peer, nullptr, 0);
      if (peer == root) mesh_.receive(peer, bytes.data(), bytes.size());
      if (peer == root) mesh_.send(peer, nullptr, 0);
    }
    return mesh_.exchange();
  }

 private:
  template <typename T>
  Status reduce_all(std::span<T> values, std::chrono::milliseconds deadline) {
    TRY(mesh_.begin(Operation::kAllReduce, values.size_bytes(), deadline));
    const Slices slices{values.size(), ranks()};
    const std::span<T> mine = values.subspan(slices.begin(rank()), slices.size(rank()));
    std::vector<T> sums(mine.size());
    TRY(gather_and_add<T>(values, slices, sums));
    mesh_.go_on();
    std::copy(sums.begin(), sums.end(), mine.begin());
    for (int peer = 0; peer < ranks(); ++peer) {
      mesh_.send(peer, mine.data(), mine.size_bytes());
      mesh_.receive(peer, values.data() + slices.begin(peer), slices.size(peer) * sizeof(T));
    }
    return mesh_.exchange();
  }

  template <typename T>
  Status reduce_parts(std::span<const T> values, std::span<T> part, std::chrono::milliseconds deadline) {
    TRY(check_reduce_scatter(values.size(), part.size(), ranks()));
    TRY(mesh_.begin(Operation::kReduceScatter, values.size_bytes(), deadline));
    return gather_and_add<T>(values, {values.size(), ranks()}, part);
  }

  // sums = this rank's slice of all ranks' values, added in the order of ranks.
  template <typename T>
  Status gather_and_add(std::span<const T> values, const Slices& slices, std::span<T> sums) {
    const size_t count = sums.size();
    std::vector<T> parts(count * ranks());
    std::copy_n(values.begin() + slices.begin(rank()), count, parts.begin() + count * rank());
    for (int peer = 0; peer < ranks(); ++peer) {
      mesh_.send(peer, values.data() + slices.begin(peer), slices.size(peer) * sizeof(T));
      mesh_.receive(peer, parts.data() + count * peer, count * sizeof(T));
    }
    TRY(mesh_.exchange());
    for (size_t i = 0; i < count; ++i) {
      float sum = element(parts[i]);
      for (int peer = 1; peer < ranks(); ++peer) sum += element(parts[count * peer + i]);
      set(sums[i], sum);
    }
    return {};
  }
  static float element(float value) { return value; }
  static float element(bf16 value) { return kernels::to_float(value); }
  static void set(float& target, float value) { target = value; }
  static void set(bf16& target, float value) { target = kernels::to_bf16(value); }

  Mesh mesh_;
};

}  // namespace

Result<std::unique_ptr<Group>> meet_locally(const LocalSettings& settings) {
  const auto end = Clock::now() + settings.deadline;
  auto group = std::make_unique<LocalGroup>(Mesh(settings.rank, TRY(find_ranks(settings))));
  // Nobody goes on, and takes its socket away, before all have met.
  const auto left = std::max(end - Clock::now(), Clock::duration(0));
  TRY(group->all_gather({}, {}, std::chrono::ceil<std::chrono::milliseconds>(left)));
  return group;
}

}  // namespace tandem::collectives
