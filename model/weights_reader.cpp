// Checkpoints into weights.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/text.h"
#include "kernels/formats/e4m3.h"
#include "model/safetensors.h"
#include "model/tensor_numbers.h"
#include "model/weights.h"

namespace tandem::model {

using kernels::bf16;

namespace {

// The ending of the tensor with the scales of a quantised one.
constexpr const char* kScaleSuffix = "_scale_inv";

void weights_reader_assign(bf16& target, float value) { target = kernels::to_bf16(value); }
void weights_reader_assign(float& target, float value) { target = value; }

// E4M3 with a scale for each 128 x 128 block, as DeepSeek publishes it: value = code * scale, rounded once as fp32 and,
// for bf16, once more, which is what transformers does.
template <typename T>
Status copy_blocks(const TensorView& codes, const TensorView& scales, const std::string& name, std::span<T> target) {
  constexpr int64_t kBlock = kernels::kScaleBlock;
  if (codes.shape.size() != 2 || codes.elements() != static_cast<int64_t>(target.size())) {
    return Status::invalid(
        fmt::format("tensor {} has {} elements, expected {} in rows", name, codes.elements(), target.size()));
  }
  const int64_t rows = codes.shape[0], columns = codes.shape[1];
  const int64_t down = (rows + kBlock - 1) / kBlock, across = (columns + kBlock - 1) / kBlock;
  if (scales.shape != std::vector{down, across}) {
    return Status::invalid(fmt::format("tensor {}{} is [{}], expected [{}, {}]", name, kScaleSuffix,
                                       fmt::join(scales.shape, ", "), down, across));
  }
  std::vector<float> factors(static_cast<size_t>(down * across));
  TRY(copy_numbers(scales, name + kScaleSuffix, factors));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t at = row * columns + column;
      const kernels::e4m3 code{static_cast<uint8_t>(codes.bytes[at])};
      weights_reader_assign(target[at], kernels::to_float(code) * factors[row / kBlock * across + column / kBlock]);
    }
  }
  return {};
}

// An fp32 number as three bf16 whose sum it is: each takes what those before it left.
void split_floats(std::span<const float> values, std::span<bf16> target) {
  for (size_t i = 0; i < values.size(); ++i) {
    float left = values[i];
    for (size_t row = 0; row < 3; ++row) {
      target[row * values.size() + i] = kernels::to_bf16(left);
      left -= kernels::to_float(target[row * values.size() + i]);
    }
  }
}

Status copy_split(const TensorView& tensor, const std::string& name, std::span<bf16> target) {
  std::vector<float> values(target.size() / 3);
  TRY(copy_numbers(tensor, name, values));
  split_floats(values, target);
  return {};
}
// The first of the three rows holds all of it.
Status copy_split(const TensorView& tensor, const std::string& name, std::span<float> target) {
  return copy_numbers(tensor, name, target.first(target.size() / 3));
}

template <typename T>
Status read_parameters(const Safetensors& checkpoint, const fs::path& directory, Weights& weights) {
  for (const Parameter& p : weights.layout().parameters) {
    for (const ParameterPart& part : p.parts) {
      const TensorView tensor = TRY(checkpoint.get(part.checkpoint_name));
      const auto target = weights.flat<T>().subspan(p.offset + static_cast<size_t>(part.first_row) * p.columns,
                                                    static_cast<size_t>(part.rows) * p.columns);
      if (tensor.dtype == DType::kF8E4M3) {
        const TensorView scales = TRY(checkpoint.get(part.checkpoint_name + kScaleSuffix));
        TRY(copy_blocks(tensor, scales, part.checkpoint_name, target));
      } else {
        TRY(p.split ? copy_split(tensor, part.checkpoint_name, target)
                    : copy_numbers(tensor, part.checkpoint_name, target));
      }
      if (const size_t count = count_not_finite(target); count > 0) {
        spdlog::warn("{}: of the {} numbers of {}, {} are NaN or infinite", directory.string(), target.size(),
                     part.checkpoint_name, count);
      }
    }
  }
  return {};
}

// A head that the checkpoint has beside embeddings that config.json calls tied, with other numbers, is one of its own.
Status check_tied(const Safetensors& checkpoint, const ModelConfig& config, const fs::path& directory) {
  constexpr const char *kHead = "lm_head.weight", *kEmbeddings = "model.embed_tokens.weight";
  if (!config.tied_embeddings || !checkpoint.tensors().contains(kHead)) return {};
  const TensorView head = TRY(checkpoint.get(kHead)), embeddings = TRY(checkpoint.get(kEmbeddings));
  if (head.dtype == embeddings.dtype && std::ranges::equal(head.bytes, embeddings.bytes)) return {};
  return Status::invalid(
             "config.json says tie_word_embeddings, but lm_head.weight has other numbers than "
             "model.embed_tokens.weight")
      .at(directory.string())
      .hint("set tie_word_embeddings to false to use that head, as transformers 5 does");
}

}  // namespace

Status require_tensors(const Safetensors& checkpoint, const ModelConfig& config, const fs::path& directory) {
  // Before names are made for all of them: a config may claim more than any memory holds.
  if (const size_t most = checkpoint.tensors().size(), least = std::max<size_t>(config.layers, config.experts.count);
      least > most) {
    return Status::corrupt(fmt::format("{} tensors are too few for the {} layers and {} experts of config.json", most,
                                       config.layers, config.experts.count))
        .at(directory.string());
  }
  std::vector<std::string> names, wrong;
  const auto specs = tensor_specs(config);
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  TRY(checkpoint.require(names));
  for (const TensorSpec& spec : specs) {
    const TensorView tensor = TRY(checkpoint.get(spec.name));
    if (tensor.shape != spec.shape)
      wrong.push_back(fmt::format("{} is [{}] and not [{}]", spec.name, fmt::join(tensor.shape, ", "),
                                  fmt::join(spec.shape, ", ")));
  }
  if (wrong.empty()) return check_tied(checkpoint, config, directory);
  return Status::corrupt(
             fmt::format("{} tensors are not of the shape that config.json says: {}", wrong.size(), join(wrong, "; ")))
      .at(directory.string());
}

Result<Weights> load_weights(const fs::path& directory, bool for_training, WeightFormat format) {
  const ModelConfig config = TRY(read_config(directory));
  const auto checkpoint = TRY(Safetensors::open(directory));
  TRY(require_tensors(checkpoint, config, directory));
  auto weights = TRY(Weights::create(config, for_training, format));
  TRY(format == WeightFormat::kFloat32 ? read_parameters<float>(checkpoint, directory, weights)
                                       : read_parameters<bf16>(checkpoint, directory, weights));
  return weights;
}

}  // namespace tandem::model
