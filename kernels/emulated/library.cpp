// The C interface of kernels/cuda/tandem_cuda.h over emulated devices.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/all_operations.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/emulated/device.h"

// A stream of the interface is one of these, and nothing more.
struct TandemCudaStreamState : tandem::kernels::emulated::Stream {};
struct TandemCudaEventState {
  tandem::kernels::emulated::Device& device;
  tandem::kernels::emulated::Event event;
};
struct TandemCudaGraphState {
  std::shared_ptr<tandem::kernels::emulated::Graph> graph;
};

namespace {

namespace cuda = tandem::kernels::cuda;
namespace emulated = tandem::kernels::emulated;

// All devices of the process: what the C interface means by an index. Opened when they are first asked for.
struct Devices {
  std::optional<emulated::Settings> settings;
  std::mutex mutex;
  std::vector<std::unique_ptr<emulated::Device>> open;
};
Devices& devices() {
  static Devices all{.settings = [] {
    const char* const text = std::getenv("TANDEM_EMULATED");
    return emulated::read_settings(text ? text : "");
  }()};
  return all;
}

emulated::Device* device_at(int index) {
  Devices& all = devices();
  if (!all.settings || index < 0 || index >= all.settings->devices) return nullptr;
  const std::lock_guard lock(all.mutex);
  if (all.open.empty()) all.open.resize(static_cast<size_t>(all.settings->devices));
  auto& device = all.open[static_cast<size_t>(index)];
  if (!device) device = std::make_unique<emulated::Device>(index, *all.settings);
  return device.get();
}

// What `operate` starts kernels with.
struct Queue {
  emulated::Stream& stream;
  template <typename Kernel>
  int run(const Kernel& kernel, int64_t blocks) const {
    return stream.device.launch(stream, kernel, blocks);
  }
  bool tensor() const { return stream.tensor; }
};

template <typename Arguments>
int launch(TandemCudaStream stream, const Arguments* arguments) {
  if (stream == nullptr || arguments == nullptr) return kTandemCudaNull;
  Queue queue{*stream};
  return cuda::operate(queue, *arguments);
}

template <typename Action>
int on(TandemCudaStream stream, const Action& action) {
  return stream == nullptr ? static_cast<int>(kTandemCudaNull) : action(stream->device);
}

}  // namespace

extern "C" {

#define TANDEM_CUDA_DEFINE(operation, Arguments)                                             \
  int tandem_cuda_##operation(TandemCudaStream stream, const TandemCuda##Arguments* given) { \
    return launch(stream, given);                                                            \
  }
TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_DEFINE)
#undef TANDEM_CUDA_DEFINE

#include "kernels/cuda/workspaces.inl"

const char* tandem_cuda_error_text(int code) {
  switch (code) {
    case emulated::kNoMemory:
      return "out of memory";
    case emulated::kNoDevice:
      return "no such emulated device";
    case emulated::kLost:
      return "the emulated device is lost";
    case emulated::kRefused:
      return "the launch failed, as TANDEM_EMULATED asks for";
    case emulated::kSettings:
      return "TANDEM_EMULATED is not of the form seed=7,memory=1g,devices=2,lose_at=500,refuse_at=500,graphs=64";
    case emulated::kCaptures:
      return "a call that a capture does not allow";
    default:
      return cuda::text_of_argument_error(code);
  }
}

int tandem_cuda_version(void) { return TANDEM_CUDA_VERSION; }

int tandem_cuda_device_count(int* count) {
  if (count == nullptr) return kTandemCudaNull;
  *count = devices().settings ? devices().settings->devices : 0;
  return devices().settings ? static_cast<int>(kTandemCudaOk) : static_cast<int>(emulated::kSettings);
}

int tandem_cuda_device(int index, TandemCudaDevice* device) {
  if (device == nullptr) return kTandemCudaNull;
  if (!devices().settings) return emulated::kSettings;
  if (index < 0 || index >= devices().settings->devices) return emulated::kNoDevice;
  *device = {"emulated", 9, 0, devices().settings->memory};
  return kTandemCudaOk;
}

int tandem_cuda_stream_create(int device, int kernels, TandemCudaStream* stream) {
  if (stream == nullptr) return kTandemCudaNull;
  if (kernels != kTandemCudaExact && kernels != kTandemCudaTensor) return kTandemCudaShape;
  if (!devices().settings) return emulated::kSettings;
  emulated::Device* const found = device_at(device);
  if (found == nullptr) return emulated::kNoDevice;
  *stream = static_cast<TandemCudaStream>(found->open(kernels == kTandemCudaTensor));
  return kTandemCudaOk;
}
int tandem_cuda_stream_destroy(TandemCudaStream stream) {
  return on(stream, [&](emulated::Device& device) {
    device.close(stream);
    return static_cast<int>(kTandemCudaOk);
  });
}
int tandem_cuda_synchronize(TandemCudaStream stream) {
  return on(stream, [&](emulated::Device& device) { return device.wait(*stream); });
}
int tandem_cuda_done(TandemCudaStream stream, int* done) {
  if (done == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) { return device.done(*stream, done); });
}
int tandem_cuda_event_create(TandemCudaStream stream, TandemCudaEvent* event) {
  if (event == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) {
    *event = new TandemCudaEventState{device, {}};
    return static_cast<int>(kTandemCudaOk);
  });
}
int tandem_cuda_event_destroy(TandemCudaEvent event) {
  delete event;
  return kTandemCudaOk;
}
int tandem_cuda_event_record(TandemCudaStream stream, TandemCudaEvent event) {
  if (event == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) { return device.record(*stream, event->event); });
}
int tandem_cuda_event_done(TandemCudaEvent event, int* done) {
  if (event == nullptr || done == nullptr) return kTandemCudaNull;
  return event->device.passed(event->event, done);
}
int tandem_cuda_stream_wait(TandemCudaStream stream, TandemCudaEvent event) {
  if (event == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) { return device.wait_for(*stream, event->event); });
}
int tandem_cuda_capture_begin(TandemCudaStream stream) {
  return on(stream, [&](emulated::Device& device) { return device.begin_capture(*stream); });
}
int tandem_cuda_capture_end(TandemCudaStream stream, TandemCudaGraph* graph) {
  return on(stream, [&](emulated::Device& device) {
    std::shared_ptr<emulated::Graph> captured;
    const int code = device.end_capture(*stream, graph ? &captured : nullptr);
    if (captured) *graph = new TandemCudaGraphState{std::move(captured)};
    return code;
  });
}
int tandem_cuda_graph_launch(TandemCudaStream stream, TandemCudaGraph graph) {
  if (graph == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) { return device.launch(*stream, graph->graph); });
}
int tandem_cuda_graph_destroy(TandemCudaGraph graph) {
  delete graph;
  return kTandemCudaOk;
}
void* tandem_cuda_raw_stream(TandemCudaStream stream) { return stream; }
int tandem_cuda_allocate(TandemCudaStream stream, size_t bytes, void** memory) {
  if (memory == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) { return device.allocate(bytes, memory); });
}
int tandem_cuda_free(TandemCudaStream stream, void* memory) {
  return on(stream, [&](emulated::Device& device) { return device.free(memory); });
}
int tandem_cuda_copy_to_device(TandemCudaStream stream, void* to, const void* from, size_t bytes) {
  return on(stream, [&](emulated::Device& device) { return device.copy(*stream, to, from, bytes); });
}
int tandem_cuda_copy_to_host(TandemCudaStream stream, void* to, const void* from, size_t bytes) {
  return on(stream, [&](emulated::Device& device) { return device.copy(*stream, to, from, bytes); });
}
int tandem_cuda_copy_on_device(TandemCudaStream stream, void* to, const void* from, size_t bytes) {
  return on(stream, [&](emulated::Device& device) { return device.copy(*stream, to, from, bytes); });
}
int tandem_cuda_allocate_host(TandemCudaStream stream, size_t bytes, void** memory) {
  if (memory == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) {
    if (const int code = device.check_captures()) return code;
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    return *memory ? static_cast<int>(kTandemCudaOk) : static_cast<int>(emulated::kNoMemory);
  });
}
int tandem_cuda_free_host(TandemCudaStream stream, void* memory) {
  // A copy that is under way ends first, as on a GPU.
  const int code = tandem_cuda_synchronize(stream);
  if (code != emulated::kCaptures) std::free(memory);
  return code;
}
int tandem_cuda_memory(TandemCudaStream stream, size_t* free, size_t* all) {
  if (free == nullptr || all == nullptr) return kTandemCudaNull;
  return on(stream, [&](emulated::Device& device) { return device.room(free, all); });
}

}  // extern "C"
