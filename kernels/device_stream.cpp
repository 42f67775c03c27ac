#include "kernels/device_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/text.h"
#include "kernels/cuda/library.h"

namespace tandem::kernels {

namespace {
constexpr int kOutOfMemory = kTandemCudaRuntime + 2;  // cudaErrorMemoryAllocation

bool graphs_wanted() {
  const char* const graphs = std::getenv("TANDEM_DEVICE_GRAPHS");
  return graphs == nullptr || std::string_view(graphs) != "0";
}
}  // namespace

namespace detail {

// Who holds how much of a device, of all streams that came from one.
struct Holders {
  std::mutex mutex;
  std::map<std::string, size_t> bytes;  // by purpose
};

struct DeviceState {
  cuda::Library library;
  Device device;
  std::string arithmetic;  // of a `numerics_id`
  TandemCudaStream stream = nullptr;
  std::shared_ptr<Holders> holders;
  // With TANDEM_DEVICE_TIMES=1 each operation is waited for, and what all took is told in the end.
  const bool timed = std::getenv("TANDEM_DEVICE_TIMES") != nullptr;
  const bool graphs = !timed && graphs_wanted();
  std::atomic<uint64_t> freed = 0;  // buffers of the device, by any thread
  struct Taken {
    uint64_t times = 0;
    double seconds = 0;
  };
  std::map<std::string, Taken> taken = {};  // by operation

  ~DeviceState() {
    std::vector<std::pair<std::string, Taken>> slowest(taken.begin(), taken.end());
    std::ranges::sort(slowest, std::ranges::greater(), [](const auto& one) { return one.second.seconds; });
    for (const auto& [operation, all] : slowest)
      fmt::print(stderr, "{}: {:10.3f} ms in {:7} calls, {:8.1f} us each: {}\n", to_string(device), all.seconds * 1e3,
                 all.times, all.seconds * 1e6 / static_cast<double>(all.times), operation);
    library.functions().stream_destroy(stream);
  }
  template <typename Call>
  Status run(const char* operation, const Call& call) {
    if (!timed) return status(operation, call());
    library.functions().synchronize(stream);
    const auto start = std::chrono::steady_clock::now();
    const int code = call();
    library.functions().synchronize(stream);
    auto& own = taken[operation];
    ++own.times;
    own.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return status(operation, code);
  }
  Status status(std::string_view function, int code) const {
    if (code == kTandemCudaOk) return {};
    const Status status = library.status(function, code);
    return {status.code(), fmt::format("{}: {}", to_string(device), status.message())};
  }
};

DeviceBytes::DeviceBytes(std::shared_ptr<DeviceState> state, void* memory, size_t bytes, bool host, std::string purpose)
    : state_(std::move(state)), memory_(memory), bytes_(bytes), host_(host), purpose_(std::move(purpose)) {
  if (host_) return;
  const std::lock_guard lock(state_->holders->mutex);
  state_->holders->bytes[purpose_] += bytes_;
}

DeviceBytes::~DeviceBytes() {
  if (!state_ || memory_ == nullptr) return;
  const auto& functions = state_->library.functions();
  if (host_) {
    functions.free_host(state_->stream, memory_);
    return;
  }
  functions.free(state_->stream, memory_);
  ++state_->freed;
  const std::lock_guard lock(state_->holders->mutex);
  auto& held = state_->holders->bytes;
  if ((held[purpose_] -= bytes_) == 0) held.erase(purpose_);
}

DeviceBytes::DeviceBytes(DeviceBytes&& other) noexcept { *this = std::move(other); }

DeviceBytes& DeviceBytes::operator=(DeviceBytes&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(host_, other.host_);
  std::swap(purpose_, other.purpose_);
  return *this;
}

}  // namespace detail

namespace {

Result<std::shared_ptr<detail::DeviceState>> open_stream(const cuda::Library& library, const Device& device,
                                                         std::string arithmetic,
                                                         std::shared_ptr<detail::Holders> holders) {
  TandemCudaStream stream = nullptr;
  TRY(library.status(
      "tandem_cuda_stream_create",
      library.functions().stream_create(
          device.index, device.kernels == Device::Kernels::kTensor ? kTandemCudaTensor : kTandemCudaExact, &stream)));
  return std::shared_ptr<detail::DeviceState>(
      new detail::DeviceState{library, device, std::move(arithmetic), stream, std::move(holders)});
}

}  // namespace

Result<DeviceStream> DeviceStream::open(const Device& device) {
  if (device.kind != Device::Kind::kCuda && device.kind != Device::Kind::kEmulated)
    return fail(Status::invalid(fmt::format("{} has no memory of its own", to_string(device))));
  const auto library = TRY(device.kind == Device::Kind::kCuda ? cuda::Library::load() : cuda::Library::load_emulated());
  std::string arithmetic(to_string(Isa::kAvx2));
  if (device.kernels == Device::Kernels::kTensor) {
    const auto devices = TRY(library.devices());
    const auto index = static_cast<size_t>(device.index);
    if (index < devices.size()) arithmetic = devices[index].tensor_cores();  // else no stream can be made
  }
  return DeviceStream(TRY(open_stream(library, device, std::move(arithmetic), std::make_shared<detail::Holders>())));
}

Result<DeviceStream> DeviceStream::another() const {
  return DeviceStream(TRY(open_stream(state_->library, state_->device, state_->arithmetic, state_->holders)));
}

const Device& DeviceStream::device() const { return state_->device; }

std::string DeviceStream::numerics_id(std::string_view format) const {
  return kernels::numerics_id(state_->arithmetic, format);
}

size_t DeviceStream::free_bytes() const {
  size_t free = 0, all = 0;
  state_->library.functions().memory(state_->stream, &free, &all);
  return free;
}
size_t DeviceStream::all_bytes() const {
  size_t free = 0, all = 0;
  state_->library.functions().memory(state_->stream, &free, &all);
  return all;
}

Result<detail::DeviceBytes> DeviceStream::take(size_t bytes, bool host, std::string purpose) {
  const auto& functions = state_->library.functions();
  const size_t wanted = std::max<size_t>(bytes, 1);
  void* memory = nullptr;
  const int code = host ? functions.allocate_host(state_->stream, wanted, &memory)
                        : functions.allocate(state_->stream, wanted, &memory);
  if (code == kTandemCudaOk) return detail::DeviceBytes(state_, memory, wanted, host, std::move(purpose));
  if (code != kOutOfMemory)
    return fail(state_->status(host ? "tandem_cuda_allocate_host" : "tandem_cuda_allocate", code));
  if (host) return fail(Status::exhausted(fmt::format("{} of memory for copies cannot be had", format_bytes(bytes))));
  std::string held;
  {
    const std::lock_guard lock(state_->holders->mutex);
    for (const auto& [name, size] : state_->holders->bytes)
      held += fmt::format("{}{} by {}", held.empty() ? "" : ", ", format_bytes(size), name);
  }
  return fail(
      Status::exhausted(fmt::format("{}: {} for {} cannot be had: {} of {} are free; held here: {}",
                                    to_string(device()), format_bytes(bytes), purpose, format_bytes(free_bytes()),
                                    format_bytes(all_bytes()), held.empty() ? "nothing" : held))
          .hint("fewer slots, or shorter sequences, need less memory for keys and values"));
}

Status DeviceStream::copy_in(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  return state_->status("copy_to_device", state_->library.functions().copy_to_device(state_->stream, to, from, bytes));
}
Status DeviceStream::copy_out(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  return state_->run("copy_to_host",
                     [&] { return state_->library.functions().copy_to_host(state_->stream, to, from, bytes); });
}
Status DeviceStream::copy_within(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  return state_->status("copy_on_device", state_->library.functions().copy_on_device(state_->stream, to, from, bytes));
}

struct DeviceEvent::State {
  std::shared_ptr<detail::DeviceState> stream;
  TandemCudaEvent event = nullptr;
  ~State() { stream->library.functions().event_destroy(event); }
};

Result<bool> DeviceEvent::done() const {
  int done = 0;
  TRY(state_->stream->status("event_done", state_->stream->library.functions().event_done(state_->event, &done)));
  return done != 0;
}

Status DeviceEvent::wait(std::chrono::seconds patience) const {
  const auto start = std::chrono::steady_clock::now();
  while (!TRY(done())) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > patience) {
      return Status::unavailable(
          fmt::format("{} has not answered for {} s", to_string(state_->stream->device), patience.count()));
    }
    // A step of a small model takes less than being woken does.
    if (waited > std::chrono::milliseconds(20))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    else
      std::this_thread::yield();
  }
  return {};
}

Result<DeviceEvent> DeviceStream::mark() {
  const auto& functions = state_->library.functions();
  TandemCudaEvent event = nullptr;
  TRY(state_->status("event_create", functions.event_create(state_->stream, &event)));
  DeviceEvent made(std::shared_ptr<DeviceEvent::State>(new DeviceEvent::State{state_, event}));
  TRY(state_->status("event_record", functions.event_record(state_->stream, event)));
  return made;
}

Status DeviceStream::wait(std::chrono::seconds patience) { return TRY(mark()).wait(patience); }

#define TANDEM_DEVICE_OPERATION(operation, Arguments)                                                                  \
  Status DeviceStream::run(const TandemCuda##Arguments& arguments) {                                                   \
    return state_->run(#operation, [&] { return state_->library.functions().operation(state_->stream, &arguments); }); \
  }
TANDEM_CUDA_OPERATIONS(TANDEM_DEVICE_OPERATION)
#undef TANDEM_DEVICE_OPERATION

struct DeviceGraph::State {
  std::shared_ptr<detail::DeviceState> stream;
  TandemCudaGraph graph = nullptr;
  uint64_t freed = 0;  // when it was captured
  ~State() { stream->library.functions().graph_destroy(graph); }
};

bool DeviceGraph::valid() const { return state_->freed == state_->stream->freed; }

bool DeviceStream::uses_graphs() const { return state_->graphs; }

Result<DeviceGraph> DeviceStream::capture(const std::function<Status()>& put) {
  const auto& functions = state_->library.functions();
  const uint64_t freed = state_->freed;
  TRY(state_->status("capture_begin", functions.capture_begin(state_->stream)));
  if (const Status status = put(); !status.ok()) {
    functions.capture_end(state_->stream, nullptr);
    return fail(status);
  }
  TandemCudaGraph graph = nullptr;
  const int code = functions.capture_end(state_->stream, &graph);
  if (code == kOutOfMemory)
    return fail(Status::exhausted(fmt::format("{} has no memory for a graph", to_string(device()))));
  TRY(state_->status("capture_end", code));
  return DeviceGraph(std::shared_ptr<DeviceGraph::State>(new DeviceGraph::State{state_, graph, freed}));
}

Status DeviceStream::launch(const DeviceGraph& graph) {
  if (graph.state_->stream != state_) return Status::invalid("the graph is another stream's");
  if (!graph.valid()) return Status::invalid("memory was freed since the graph was captured");
  return state_->status("graph_launch", state_->library.functions().graph_launch(state_->stream, graph.state_->graph));
}

Result<DeviceStream::Workspace> DeviceStream::workspace(size_t bytes) {
  if (bytes > scratch_bytes_) {
    TRY(wait());
    scratch_ = detail::DeviceBytes();
    scratch_bytes_ = 0;
    scratch_ = TRY(take(bytes, false, "scratch memory of kernels"));
    scratch_bytes_ = bytes;
  }
  return Workspace{scratch_.memory(), scratch_bytes_};
}

const cuda::Functions& DeviceStream::functions() const { return state_->library.functions(); }

}  // namespace tandem::kernels
