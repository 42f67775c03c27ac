#include "run/devices.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::run {

namespace {

using kernels::Device;

Result<Device> read_device(const RunConfig& config, const std::string& text, const char* key) {
  auto device = kernels::device_named(text);
  if (device && device->kind == Device::Kind::kAuto && !config.run.hosts.empty())
    return fail(Status::invalid("auto may be another device on each of run.hosts; name one").at(key));
  if (device && device->kind == Device::Kind::kAuto) device = kernels::find_device(*device);
  if (!device) return fail(std::move(device).error().at(key));
  return device;
}

// Whose bits a device has, where that does not depend on the machine.
std::optional<std::string> bits_of(const Device& device) {
  if (device.on_cpu()) return device.isa ? std::optional(std::string(to_string(*device.isa))) : std::nullopt;
  return device.kernels == Device::Kernels::kTensor ? "tensor cores" : std::string(to_string(kernels::Isa::kAvx2));
}

}  // namespace

bool RoleDevices::is_shared(int rank) const {
  const Device& engine = rollout(rank);
  return !trainer.on_cpu() && engine.kind == trainer.kind && engine.index == trainer.index;
}

Result<RoleDevices> devices_of(const RunConfig& config) {
  RoleDevices devices;
  const bool own = !config.trainer.device.empty();
  devices.trainer =
      TRY(read_device(config, own ? config.trainer.device : config.device, own ? "trainer.device" : "device"));
  const auto& listed = config.rollout.devices;
  for (int i = 0; i < config.rollout.workers; ++i) {
    const std::string& text = listed.empty() ? config.device : listed[static_cast<size_t>(i) % listed.size()];
    devices.rollouts.push_back(TRY(read_device(config, text, listed.empty() ? "device" : "rollout.devices")));
  }
  std::vector<Device*> all = {&devices.trainer};
  for (Device& device : devices.rollouts) all.push_back(&device);
  const auto decided = std::ranges::find_if(all, [](const Device* device) { return bits_of(*device).has_value(); });
  if (decided == all.end()) return devices;
  const auto bits = bits_of(**decided);
  for (Device* device : all) {
    if (!bits_of(*device)) device->isa = (*decided)->on_cpu() ? (*decided)->isa : kernels::Isa::kAvx2;
    if (bits_of(*device) == bits) continue;
    return fail(Status::invalid(fmt::format("{} and {} do not compute the same bits, and trainer and engines must",
                                            kernels::to_string(**decided), kernels::to_string(*device)))
                    .at("device, trainer.device, rollout.devices")
                    .hint("cuda:0 has the bits of cpu:avx2, cuda:0:tensor those of tensor cores"));
  }
  return devices;
}

Status find_devices(const RunConfig& config) {
  const RoleDevices devices = TRY(devices_of(config));
  std::vector<Device> all = {devices.trainer};
  if (config.run.hosts.empty()) all.insert(all.end(), devices.rollouts.begin(), devices.rollouts.end());
  for (const Device& device : all) TRY(kernels::find_device(device));
  return {};
}

Status check_sleep(const RunConfig& config) {
  if (!config.rollout.sleep_while_training) return {};
  if (!config.run.hosts.empty())
    return Status::invalid("trainer and engines take turns on one machine, and the run has run.hosts")
        .at("rollout.sleep_while_training");
  const RoleDevices devices = TRY(devices_of(config));
  for (int rank = 0; rank < config.rollout.workers; ++rank) {
    if (devices.is_shared(rank)) return {};
  }
  return Status::invalid(fmt::format("no engine computes on a GPU that is the trainer's, which is {}",
                                     kernels::to_string(devices.trainer)))
      .at("rollout.sleep_while_training")
      .hint("leave it off, or give trainer and engines one device");
}

}  // namespace tandem::run
