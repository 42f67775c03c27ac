// What the C interface offers beside operations: words for errors, devices, streams and their memory.
#include <cstring>
#include <new>

#include "kernels/cuda/launch.cuh"

struct TandemCudaEventState {
  int device;
  cudaEvent_t event;
};

struct TandemCudaGraphState {
  int device;
  cudaGraphExec_t graph;
};

namespace {

using tandem::kernels::cuda::code_of;
using tandem::kernels::cuda::make_current;

// Makes the stream's device the one that this thread speaks to, then does `action`.
template <typename Action>
int on(TandemCudaStream stream, const Action& action) {
  if (stream == nullptr) return kTandemCudaNull;
  cudaError_t error = make_current(stream->device);
  if (error == cudaSuccess) error = action(stream->stream);
  // It is told here: the next launch, which asks for the last error, must not tell it again.
  if (error != cudaSuccess) (void)cudaGetLastError();
  return code_of(error);
}

}  // namespace

extern "C" {

const char* tandem_cuda_error_text(int code) {
  return code > kTandemCudaRuntime ? cudaGetErrorString(static_cast<cudaError_t>(code - kTandemCudaRuntime))
                                   : tandem::kernels::cuda::text_of_argument_error(code);
}

int tandem_cuda_version(void) { return TANDEM_CUDA_VERSION; }

int tandem_cuda_device_count(int* count) {
  if (count == nullptr) return kTandemCudaNull;
  *count = 0;
  const cudaError_t error = cudaGetDeviceCount(count);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
    *count = 0;
    (void)cudaGetLastError();
    return kTandemCudaOk;
  }
  return code_of(error);
}

int tandem_cuda_device(int index, TandemCudaDevice* device) {
  if (device == nullptr) return kTandemCudaNull;
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return code_of(error);
  static_assert(sizeof device->name == sizeof properties.name);
  std::memcpy(device->name, properties.name, sizeof device->name);
  device->major = properties.major;
  device->minor = properties.minor;
  device->memory_bytes = properties.totalGlobalMem;
  return kTandemCudaOk;
}

int tandem_cuda_stream_create(int device, int kernels, TandemCudaStream* stream) {
  if (stream == nullptr) return kTandemCudaNull;
  if (kernels != kTandemCudaExact && kernels != kTandemCudaTensor) return kTandemCudaShape;
  if (const int code = code_of(make_current(device))) return code;
  cudaStream_t made = nullptr;
  if (const int code = code_of(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking))) return code;
  *stream = new (std::nothrow) TandemCudaStreamState{device, made, kernels == kTandemCudaTensor};
  if (*stream != nullptr) return kTandemCudaOk;
  (void)cudaStreamDestroy(made);
  return code_of(cudaErrorMemoryAllocation);
}

int tandem_cuda_stream_destroy(TandemCudaStream stream) {
  const int code = on(stream, [](cudaStream_t raw) { return cudaStreamDestroy(raw); });
  delete stream;
  return code;
}

int tandem_cuda_synchronize(TandemCudaStream stream) {
  return on(stream, [](cudaStream_t raw) { return cudaStreamSynchronize(raw); });
}

int tandem_cuda_done(TandemCudaStream stream, int* done) {
  if (done == nullptr) return kTandemCudaNull;
  *done = 0;
  const int code = on(stream, [](cudaStream_t raw) { return cudaStreamQuery(raw); });
  *done = code == kTandemCudaOk;
  return code == code_of(cudaErrorNotReady) ? static_cast<int>(kTandemCudaOk) : code;
}

int tandem_cuda_event_create(TandemCudaStream stream, TandemCudaEvent* event) {
  if (event == nullptr) return kTandemCudaNull;
  return on(stream, [&](cudaStream_t) {
    cudaEvent_t made = nullptr;
    if (const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming)) return error;
    *event = new (std::nothrow) TandemCudaEventState{stream->device, made};
    if (*event != nullptr) return cudaSuccess;
    (void)cudaEventDestroy(made);
    return cudaErrorMemoryAllocation;
  });
}

int tandem_cuda_event_destroy(TandemCudaEvent event) {
  if (event == nullptr) return kTandemCudaNull;
  (void)make_current(event->device);
  const int code = code_of(cudaEventDestroy(event->event));
  delete event;
  return code;
}

int tandem_cuda_event_record(TandemCudaStream stream, TandemCudaEvent event) {
  if (event == nullptr) return kTandemCudaNull;
  return on(stream, [&](cudaStream_t raw) { return cudaEventRecord(event->event, raw); });
}

int tandem_cuda_event_done(TandemCudaEvent event, int* done) {
  if (event == nullptr || done == nullptr) return kTandemCudaNull;
  const int code = code_of(cudaEventQuery(event->event));
  *done = code == kTandemCudaOk;
  return code == code_of(cudaErrorNotReady) ? static_cast<int>(kTandemCudaOk) : code;
}

int tandem_cuda_stream_wait(TandemCudaStream stream, TandemCudaEvent event) {
  if (event == nullptr) return kTandemCudaNull;
  return on(stream, [&](cudaStream_t raw) { return cudaStreamWaitEvent(raw, event->event, 0); });
}

int tandem_cuda_capture_begin(TandemCudaStream stream) {
  return on(stream, [](cudaStream_t raw) { return cudaStreamBeginCapture(raw, cudaStreamCaptureModeThreadLocal); });
}

int tandem_cuda_capture_end(TandemCudaStream stream, TandemCudaGraph* graph) {
  return on(stream, [&](cudaStream_t raw) {
    cudaGraph_t captured = nullptr;
    if (const cudaError_t error = cudaStreamEndCapture(raw, &captured)) return error;
    cudaGraphExec_t made = nullptr;
    cudaError_t error = graph == nullptr ? cudaSuccess : cudaGraphInstantiate(&made, captured, 0);
    (void)cudaGraphDestroy(captured);
    if (graph == nullptr || error != cudaSuccess) return error;
    // Now, so that a device without memory for it says so here and not at the first launch.
    if (error = cudaGraphUpload(made, raw); error != cudaSuccess) {
      (void)cudaGraphExecDestroy(made);
      return error;
    }
    *graph = new (std::nothrow) TandemCudaGraphState{stream->device, made};
    if (*graph != nullptr) return cudaSuccess;
    (void)cudaGraphExecDestroy(made);
    return cudaErrorMemoryAllocation;
  });
}

int tandem_cuda_graph_launch(TandemCudaStream stream, TandemCudaGraph graph) {
  if (graph == nullptr) return kTandemCudaNull;
  return on(stream, [&](cudaStream_t raw) { return cudaGraphLaunch(graph->graph, raw); });
}

int tandem_cuda_graph_destroy(TandemCudaGraph graph) {
  if (graph == nullptr) return kTandemCudaNull;
  (void)make_current(graph->device);
  const int code = code_of(cudaGraphExecDestroy(graph->graph));
  delete graph;
  return code;
}

void* tandem_cuda_raw_stream(TandemCudaStream stream) { return stream == nullptr ? nullptr : stream->stream; }

int tandem_cuda_allocate(TandemCudaStream stream, size_t bytes, void** memory) {
  if (memory == nullptr) return kTandemCudaNull;
  return on(stream, [&](cudaStream_t) { return cudaMalloc(memory, bytes); });
}

int tandem_cuda_free(TandemCudaStream stream, void* memory) {
  return on(stream, [&](cudaStream_t) { return cudaFree(memory); });
}

int tandem_cuda_copy_to_device(TandemCudaStream stream, void* device, const void* host, size_t bytes) {
  return on(stream,
            [&](cudaStream_t raw) { return cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, raw); });
}

int tandem_cuda_copy_to_host(TandemCudaStream stream, void* host, const void* device, size_t bytes) {
  return on(stream,
            [&](cudaStream_t raw) { return cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, raw); });
}

int tandem_cuda_copy_on_device(TandemCudaStream stream, void* to, const void* from, size_t bytes) {
  return on(stream, [&](cudaStream_t raw) { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, raw); });
}

int tandem_cuda_allocate_host(TandemCudaStream stream, size_t bytes, void** memory) {
  if (memory == nullptr) return kTandemCudaNull;
  return on(stream, [&](cudaStream_t) { return cudaMallocHost(memory, bytes); });
}

int tandem_cuda_free_host(TandemCudaStream stream, void* memory) {
  return on(stream, [&](cudaStream_t) { return cudaFreeHost(memory); });
}

int tandem_cuda_memory(TandemCudaStream stream, size_t* free, size_t* all) {
  if (free == nullptr || all == nullptr) return kTandemCudaNull;
  return on(stream, [&](cudaStream_t) { return cudaMemGetInfo(free, all); });
}

}  // extern "C"
