#include "kernels/device.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <vector>

#include "base/text.h"
#include "kernels/cuda/library.h"

namespace tandem::kernels {

namespace {

constexpr std::array kIsas = {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmxBf16};

Result<int> index_of(std::string_view device, std::string_view digits) {
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < 1024) return index;
  return fail(Status::invalid(fmt::format("\"{}\" has no number of a device", device))
                  .hint("cuda:0 is the first GPU, emulated:0 the first emulated one"));
}

Result<cuda::Device> found_device(const Device& device) {
  const bool real = device.kind == Device::Kind::kCuda;
  const auto library = real ? cuda::Library::load() : cuda::Library::load_emulated();
  if (!library)
    return fail(Status::unfit(fmt::format("there is no {}: {}", to_string(device), library.error().message())));
  const auto devices = library->devices();
  if (!devices)
    return fail(Status::unfit(fmt::format("there is no {}: {}", to_string(device), devices.error().message())));
  if (devices->empty()) {
    return fail(
        Status::unfit(fmt::format("there is no {}: no driver, or no GPU that this process may see", to_string(device)))
            .hint("`tandem doctor` lists what is there; device: cpu computes on the processor"));
  }
  if (static_cast<size_t>(device.index) >= devices->size()) {
    return fail(Status::unfit(
        fmt::format("there is no {}: this machine has {}, counted from 0", to_string(device), devices->size())));
  }
  const auto& found = (*devices)[static_cast<size_t>(device.index)];
  if (found.supported()) return found;
  return fail(Status::unfit(fmt::format("{} is a {} of compute capability {}.{}, and {} holds code for 9.0 and 10.0",
                                        to_string(device), found.name, found.major, found.minor, library->path())));
}

}  // namespace

std::string to_string(const Device& device) {
  switch (device.kind) {
    case Device::Kind::kCpu:
      return device.isa ? fmt::format("cpu:{}", to_string(*device.isa)) : "cpu";
    case Device::Kind::kCuda:
    case Device::Kind::kEmulated:
      return fmt::format("{}:{}{}", device.kind == Device::Kind::kCuda ? "cuda" : "emulated", device.index,
                         device.kernels == Device::Kernels::kTensor ? ":tensor" : "");
    case Device::Kind::kAuto:
      break;
  }
  return "auto";
}

Result<Device> device_named(std::string_view text) {
  using Kind = Device::Kind;
  if (text == "auto") return Device{};
  if (text == "cpu") return Device{.kind = Kind::kCpu};
  for (const Isa isa : kIsas) {
    const Device device{.kind = Kind::kCpu, .isa = isa};
    if (to_string(device) == text) return device;
  }
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts[0] == "cuda" || parts[0] == "emulated") {
    const Kind found = parts[0] == "cuda" ? Kind::kCuda : Kind::kEmulated;
    const int index = TRY(index_of(text, parts.size() > 1 ? parts[1] : ""));
    Device device{.kind = found, .index = index};
    if (parts.size() == 2) return device;
    device.kernels = parts[2] == "exact" ? Device::Kernels::kExact : Device::Kernels::kTensor;
    if (parts.size() == 3 && (parts[2] == "exact" || parts[2] == "tensor")) return device;
    return fail(Status::invalid(fmt::format("\"{}\" names no kernels of {}:{}", text, parts[0], parts[1]))
                    .hint(fmt::format("{0}:{1}:exact or {0}:{1}:tensor", parts[0], parts[1])));
  }
  std::vector<std::string> names = {"auto", "cpu", "cuda:0", "emulated:0"};
  for (const Isa isa : kIsas) names.push_back(to_string(Device{.kind = Kind::kCpu, .isa = isa}));
  const std::vector<std::string_view> known(names.begin(), names.end());
  return fail(Status::invalid(fmt::format("\"{}\" is no device{}", text, did_you_mean(text, known)))
                  .hint("auto, cpu, cpu:avx2, cuda:0, cuda:0:tensor, emulated:0 or emulated:0:tensor"));
}

Result<Device> find_device(const Device& wanted) {
  if (wanted.on_cpu()) {
    if (wanted.isa) TRY(Stream::cpu(1, wanted.isa));
    return wanted;
  }
  if (wanted.kind != Device::Kind::kAuto) {
    TRY(found_device(wanted));
    return wanted;
  }
  const Device first{.kind = Device::Kind::kCuda};
  return found_device(first) ? first : Device{.kind = Device::Kind::kCpu};
}

Result<std::string> numerics_id(const Device& device, std::string_view format) {
  if (device.on_cpu()) return TRY(Stream::cpu(1, device.isa)).numerics_id(format);
  if (device.kernels == Device::Kernels::kExact) return numerics_id(Isa::kAvx2, format);
  return numerics_id(TRY(found_device(device)).tensor_cores(), format);
}

Result<Device> find_device(std::string_view text) { return find_device(TRY(device_named(text))); }

}  // namespace tandem::kernels
