// Where a model computes, and the executor there.
#include "model/executor.h"
#include "model/weights.h"

namespace tandem::model {

Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Weights> weights, const Place& place,
                                                const ExecutorSettings& settings) {
  if (!place.device.on_cpu()) return make_device_executor(*weights, place.device, settings);
  return make_cpu_executor(std::move(weights), TRY(kernels::Stream::cpu(place.threads, place.device.isa)), settings);
}

Result<kernels::Stream> Place::host_stream() const {
  return kernels::Stream::cpu(threads, device.on_cpu() ? device.isa : kernels::Isa::kAvx2);
}

Status Place::ready(Weights& weights) const {
  auto stream = TRY(host_stream());
  return device.on_cpu() ? weights.pack(stream) : weights.encode(stream);
}

}  // namespace tandem::model
