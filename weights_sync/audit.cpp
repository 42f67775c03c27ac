#include "weights_sync/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"

namespace tandem::weights_sync {
namespace {

using kernels::bf16;
using kernels::e4m3;
using kernels::e8m0;
using model::WeightFormat;

struct Sums {
  double errors = 0, weights = 0;  // of squares
};

// One block of published numbers against its weights.
template <typename Number>
void compare(std::span<const bf16> weights, const Number& number, int rows, int columns, size_t stride, Sums& sums,
             TensorAudit& tensor, const auto& place) {
  bool is_zero = true, was_zero = true, is_finite = true;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const size_t at = static_cast<size_t>(row) * stride + static_cast<size_t>(column);
      const double weight = kernels::to_float(weights[at]), published = number(at);
      is_zero = is_zero && published == 0;
      was_zero = was_zero && weight == 0;
      if (!std::isfinite(published)) {
        is_finite = false;
        ++tensor.not_finite;
        continue;
      }
      const double error = std::abs(published - weight);
      tensor.max_error = std::max(tensor.max_error, error);
      sums.errors += error * error;
      sums.weights += weight * weight;
    }
  }
  const bool is_lost = is_zero && !was_zero;
  tensor.zero_blocks += is_lost ? 1 : 0;
  if ((is_lost || !is_finite) && tensor.first_block.empty()) tensor.first_block = place();
}

TensorAudit audit_parameter(const model::Weights& weights, int index, std::span<const std::byte> published) {
  const model::Parameter& p = weights.layout().parameters[static_cast<size_t>(index)];
  const WeightFormat format = weights.format_of(index);
  const auto at = weights.wire_place(index);
  const auto flat = weights.slice().part(p.offset, p.elements()).host<bf16>();
  TensorAudit tensor{.name = p.name, .format = std::string(model::to_string(format))};
  Sums sums;
  if (!model::is_quantised(format)) {
    const auto* const values = reinterpret_cast<const bf16*>(published.data() + at.values);
    compare(
        flat, [&](size_t i) { return static_cast<double>(kernels::to_float(values[i])); }, p.rows, p.columns,
        static_cast<size_t>(p.columns), sums, tensor, [] { return std::string("the whole tensor"); });
  } else {
    const int high = model::block_rows(format), wide = model::block_columns(format);
    const int down = (p.group_rows() + high - 1) / high, across = (p.columns + wide - 1) / wide;
    const auto* const codes = reinterpret_cast<const e4m3*>(published.data() + at.values);
    const auto* const scales = reinterpret_cast<const e8m0*>(published.data() + at.scales);
    for (int g = 0; g < p.groups; ++g) {
      for (int r = 0; r < down; ++r) {
        for (int c = 0; c < across; ++c) {
          const size_t first = (static_cast<size_t>(g) * p.group_rows() + static_cast<size_t>(r) * high) * p.columns +
                               static_cast<size_t>(c) * wide;
          const double scale =
              kernels::to_float(scales[(static_cast<size_t>(g) * down + r) * static_cast<size_t>(across) + c]);
          const int rows = std::min(high, p.group_rows() - r * high), columns = std::min(wide, p.columns - c * wide);
          compare(
              flat.subspan(first), [&](size_t i) { return scale * kernels::to_float(codes[first + i]); }, rows, columns,
              static_cast<size_t>(p.columns), sums, tensor,
              [&] {
                return fmt::format("group {}, rows {}-{}, columns {}-{}", g, r * high, r * high + rows - 1, c * wide,
                                   c * wide + columns - 1);
              });
        }
      }
    }
  }
  tensor.relative_rms = sums.weights > 0 ? std::sqrt(sums.errors / sums.weights) : std::sqrt(sums.errors);
  return tensor;
}

// Every part of the bytes is one that the layout has, at its place, and none is missing.
Status check_parts(const model::Weights& weights, std::span<const model::Weights::WirePart> parts, size_t bytes) {
  std::map<std::string, model::Weights::WirePart> expected;
  for (auto& part : weights.wire_parts()) expected.emplace(part.name, part);
  for (const auto& part : parts) {
    const auto found = expected.find(part.name);
    if (found == expected.end())
      return Status::invalid(fmt::format("{} is published, and the model has no such tensor", part.name));
    if (!(found->second == part) || part.begin + part.bytes > bytes)
      return Status::invalid(fmt::format("{} is published at another place or size than the model has it", part.name));
    expected.erase(found);
  }
  if (!expected.empty()) return Status::invalid(fmt::format("{} is not published", expected.begin()->first));
  return {};
}

Json to_json(const TensorAudit& tensor) {
  Json json = {{"name", tensor.name},
               {"format", tensor.format},
               {"max_error", tensor.max_error},
               {"relative_rms", tensor.relative_rms}};
  if (tensor.zero_blocks > 0) json["zero_blocks"] = tensor.zero_blocks;
  if (tensor.not_finite > 0) json["not_finite"] = tensor.not_finite;
  if (!tensor.first_block.empty()) json["first_block"] = tensor.first_block;
  return json;
}

}  // namespace

bool TensorAudit::is_bad() const {
  const double most = format == model::to_string(WeightFormat::kBf16) ? 0 : kMostRelativeRms;
  return zero_blocks > 0 || not_finite > 0 || !(relative_rms <= most);
}

const TensorAudit& Audit::worst() const {
  return *std::ranges::max_element(
      tensors, {}, [](const TensorAudit& tensor) { return std::pair(tensor.is_bad(), tensor.relative_rms); });
}

std::vector<std::string> Audit::bad() const {
  std::vector<std::string> lines;
  for (const TensorAudit& tensor : tensors) {
    if (!tensor.is_bad()) continue;
    lines.push_back(fmt::format("{} ({}): relative error {:.3g}, {} blocks of zeros, {} numbers that are none{}{}",
                                tensor.name, tensor.format, tensor.relative_rms, tensor.zero_blocks, tensor.not_finite,
                                tensor.first_block.empty() ? "" : ", the first in ", tensor.first_block));
  }
  return lines;
}

Result<Audit> audit(const model::Weights& weights, std::span<const model::Weights::WirePart> parts,
                    std::span<const std::byte> published, kernels::ThreadPool& threads) {
  if (weights.format() == WeightFormat::kFloat32) return fail(Status::invalid("float32 is not published"));
  if (published.size() != weights.wire().size()) {
    return fail(Status::invalid(
        fmt::format("{} bytes are published, and the model has {}", published.size(), weights.wire().size())));
  }
  TRY(check_parts(weights, parts, published.size()));
  Audit result;
  result.tensors.resize(weights.layout().parameters.size());
  threads.run(static_cast<int>(result.tensors.size()),
              [&](int i) { result.tensors[static_cast<size_t>(i)] = audit_parameter(weights, i, published); });
  return result;
}

Json to_json(const Audit& audit, uint64_t version, bool whole) {
  Json json = {{"version", version}, {"worst", to_json(audit.worst())}, {"bad", audit.bad()}};
  for (const TensorAudit& tensor : audit.tensors) {
    if (whole) json["tensors"].push_back(to_json(tensor));
  }
  return json;
}

}  // namespace tandem::weights_sync
