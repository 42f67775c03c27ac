#include "model/device/device_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tandem::model {

Result<DeviceWeights> DeviceWeights::create(kernels::DeviceStream& stream, const Weights& like) {
  DeviceWeights weights;
  weights.format_ = like.format();
  const auto& parameters = like.layout().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto place = like.wire_place(static_cast<int>(i));
    weights.places_.push_back(place);
    weights.quantised_.push_back(is_quantised(like.format_of(static_cast<int>(i))));
    Split split;
    if (parameters[i].split) {
      split = {place.values, static_cast<size_t>(parameters[i].columns), weights.split_count_};
      weights.split_count_ += split.count;
    }
    weights.split_.push_back(split);
  }
  TRY(weights.take_memory(stream, like.wire().size()));
  return weights;
}

Result<DeviceWeights> DeviceWeights::another(kernels::DeviceStream& stream) const {
  DeviceWeights weights;
  weights.format_ = format_;
  weights.places_ = places_;
  weights.quantised_ = quantised_;
  weights.split_ = split_;
  weights.split_count_ = split_count_;
  TRY(weights.take_memory(stream, bytes()));
  return weights;
}

Status DeviceWeights::take_memory(kernels::DeviceStream& stream, size_t bytes) {
  wire_ = TRY(stream.allocate<std::byte>(bytes, "weights"));
  splits_ = TRY(stream.allocate<float>(split_count_, "weights"));
  return {};
}

Status DeviceWeights::check_size(std::span<const std::byte> wire) const {
  if (wire.size() == wire_.size()) return {};
  return Status::invalid(fmt::format("{} bytes of weights, expected {}", wire.size(), wire_.size()));
}

std::vector<float> DeviceWeights::splits_of(std::span<const std::byte> wire) const {
  std::vector<float> splits(split_count_);
  for (const Split& split : split_) {
    const std::byte* const from = wire.data() + split.from;
    for (size_t i = 0; i < split.count; ++i) {
      if (format_ == WeightFormat::kFloat32) {
        std::memcpy(&splits[split.at + i], from + i * sizeof(float), sizeof(float));
        continue;
      }
      const auto part = [&](size_t row) {
        kernels::bf16 value{};
        std::memcpy(&value, from + (row * split.count + i) * sizeof value, sizeof value);
        return kernels::to_float(value);
      };
      splits[split.at + i] = part(0) + part(1) + part(2);
    }
  }
  return splits;
}

Status DeviceWeights::upload(kernels::DeviceStream& stream, std::span<const std::byte> wire) {
  TRY(check_size(wire));
  TRY(stream.upload(wire_.data(), wire));
  const auto splits = splits_of(wire);
  TRY(stream.upload(splits_.data(), std::span<const float>(splits)));
  return stream.wait();
}

Status DeviceWeights::verify(kernels::DeviceStream& stream, std::span<const std::byte> wire) const {
  TRY(check_size(wire));
  std::vector<std::byte> there(std::min(wire.size(), size_t{64} << 20));
  for (size_t at = 0; at < wire.size(); at += there.size()) {
    const auto part = std::span(there).first(std::min(there.size(), wire.size() - at));
    TRY(stream.download(part, kernels::beyond(wire_.data(), at)));
    TRY(stream.wait());
    const auto differs = std::ranges::mismatch(part, wire.subspan(at, part.size())).in1;
    if (differs != part.end())
      return Status::corrupt(fmt::format("byte {} in the device's memory is not what was received",
                                         at + static_cast<size_t>(differs - part.begin())));
  }
  const auto splits = splits_of(wire);
  std::vector<float> splits_there(splits.size());
  TRY(stream.download(std::span(splits_there), splits_.data()));
  TRY(stream.wait());
  if (!splits.empty() && std::memcmp(splits.data(), splits_there.data(), splits.size() * sizeof(float)) != 0)
    return Status::corrupt("sums in the device's memory are not those of what was received");
  return {};
}

TandemCudaCodes DeviceWeights::codes(int parameter) const {
  if (!quantised_[parameter]) return {};
  const auto at = [&](size_t byte) {
    return reinterpret_cast<const uint8_t*>(kernels::address(kernels::beyond(wire_.data(), byte)));
  };
  const auto& place = places_[parameter];
  return {.codes = at(place.values),
          .scales = at(place.scales),
          .block = block_columns(format_),
          .block_rows = block_rows(format_)};
}

kernels::OnDevice<float>* DeviceWeights::split_values(int parameter) const {
  return kernels::beyond(splits_.data(), split_[parameter].at);
}

}  // namespace tandem::model
