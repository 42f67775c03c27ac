#include "model/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "model/config_reader.h"
#include "model/safetensors.h"

namespace tandem::model {

using kernels::bf16;

namespace {

struct AdapterConfig {
  int rank = 0;
  double scale = 0;  // of B A
};

// The two factors of one matrix: a is [rank][columns], b is [rows][rank].
struct Factors {
  std::vector<float> a, b;
  std::vector<int64_t> a_shape, b_shape;
};

// Keys that change what an adapter means, unless they are null, false or empty.
Status refuse_unknown_parts(const Json& json) {
  const std::string type = TRY(ConfigReader(json).text("peft_type", "unnamed"));
  if (type != "LORA") return Status::invalid(fmt::format("peft_type \"{}\" is not LORA", type));
  for (const char* part :
       {"use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "rank_pattern", "alpha_pattern",
        "modules_to_save", "layer_replication", "target_parameters", "trainable_token_indices",
        "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config"}) {
    if (has(json, part) && json[part] != false && !json[part].empty()) {
      return Status::invalid(fmt::format("{} is not supported", part));
    }
  }
  const std::string bias = TRY(ConfigReader(json).text("bias", "none"));
  if (bias != "none") return Status::invalid(fmt::format("bias \"{}\" is not none", bias));
  return {};
}

Result<AdapterConfig> read_adapter_config(const fs::path& path) {
  constexpr uint64_t kLimit = 16 << 20;
  const auto json = parse_json(TRY(read_file(path, kLimit)));
  if (!json) return fail(Status(json.error()).at(path.string()));
  const auto read = [&]() -> Result<AdapterConfig> {
    if (!json->is_object()) return fail(Status::invalid("is not an object"));
    TRY(refuse_unknown_parts(*json));
    const ConfigReader reader(*json);
    const int rank = TRY(reader.size("r"));
    const double alpha = TRY(reader.number("lora_alpha"));
    const bool by_root = TRY(reader.flag("use_rslora", false));
    return AdapterConfig{rank, alpha / (by_root ? std::sqrt(static_cast<double>(rank)) : rank)};
  };
  auto config = read();
  if (!config) return fail(std::move(config).error().at(path.string()));
  return config;
}

Result<std::vector<float>> floats_of(const std::string& name, const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    switch (tensor.dtype) {
      case DType::kF32:
        std::memcpy(&values[i], tensor.bytes.data() + i * sizeof(float), sizeof(float));
        break;
      case DType::kBF16:
        std::memcpy(&half, tensor.bytes.data() + i * sizeof half, sizeof half);
        values[i] = bf16_to_float(half);
        break;
      case DType::kF16:
        std::memcpy(&half, tensor.bytes.data() + i * sizeof half, sizeof half);
        values[i] = f16_to_float(half);
        break;
      default:
        return fail(Status::invalid(
            fmt::format("tensor {} is {}; bf16, f16 and f32 are read", name, safetensors_name(tensor.dtype))));
    }
  }
  return values;
}

// By the name that the adapted matrix has in the checkpoint.
Result<std::map<std::string, Factors>> read_factors(const Safetensors& adapter) {
  constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";
  std::map<std::string, Factors> found;
  for (const auto& [name, tensor] : adapter.tensors()) {
    const bool is_a = name.ends_with(kA);
    if (!name.starts_with(kPrefix) || (!is_a && !name.ends_with(kB))) {
      return fail(Status::invalid(fmt::format("tensor {} is no factor of a matrix", name)));
    }
    Factors& factors = found[name.substr(kPrefix.size(), name.size() - kPrefix.size() - kA.size()) + ".weight"];
    (is_a ? factors.a : factors.b) = TRY(floats_of(name, tensor));
    (is_a ? factors.a_shape : factors.b_shape) = tensor.shape;
  }
  return found;
}

// A matrix of the model that an adapter may change.
struct Target {
  std::span<bf16> values;
  int64_t rows = 0, columns = 0;
};

std::map<std::string, Target> targets_of(Weights& weights) {
  std::map<std::string, Target> targets;
  for (const Parameter& p : weights.layout().parameters) {
    if (!p.matrix) continue;
    for (const ParameterPart& part : p.parts) {
      const size_t first = p.offset + static_cast<size_t>(part.first_row) * p.columns;
      const auto values = weights.flat().subspan(first, static_cast<size_t>(part.rows) * p.columns);
      targets[part.checkpoint_name] = {values, part.rows, p.columns};
    }
  }
  return targets;
}

Status check_shapes(const std::string& name, const Factors& factors, const Target& target, int rank) {
  const std::vector<int64_t> a = {rank, target.columns}, b = {target.rows, rank};
  if (factors.a_shape == a && factors.b_shape == b) return {};
  return Status::invalid(fmt::format("the factors of {} are [{}] and [{}], expected [{}] and [{}]", name,
                                     fmt::join(factors.a_shape, ", "), fmt::join(factors.b_shape, ", "),
                                     fmt::join(a, ", "), fmt::join(b, ", ")));
}

void add_product(const Factors& factors, const AdapterConfig& config, const Target& target) {
  const float scale = static_cast<float>(config.scale);
  std::vector<float> sums(static_cast<size_t>(target.columns));
  for (int64_t row = 0; row < target.rows; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t r = 0; r < config.rank; ++r) {
      const float left = factors.b[row * config.rank + r];
      for (int64_t i = 0; i < target.columns; ++i) sums[i] += left * factors.a[r * target.columns + i];
    }
    bf16* values = &target.values[row * target.columns];
    for (int64_t i = 0; i < target.columns; ++i) {
      values[i] = kernels::to_bf16(kernels::to_float(values[i]) + scale * sums[i]);
    }
  }
}

}  // namespace

Result<int> merge_adapter(const fs::path& directory, Weights& weights) {
  if (weights.format() == WeightFormat::kFloat32) return fail(Status::invalid("adapters are merged in bf16"));
  const AdapterConfig config = TRY(read_adapter_config(directory / "adapter_config.json"));
  const fs::path path = directory / "adapter_model.safetensors";
  const auto merge = [&]() -> Result<int> {
    const auto factors = TRY(read_factors(TRY(Safetensors::open(path))));
    auto targets = targets_of(weights);
    for (const auto& [name, pair] : factors) {
      const auto target = targets.find(name);
      if (target == targets.end()) {
        return fail(Status::invalid(fmt::format("the model has no matrix {}", name))
                        .hint("merge the adapter into the model that it was made for"));
      }
      TRY(check_shapes(name, pair, target->second, config.rank));
    }
    for (const auto& [name, pair] : factors) add_product(pair, config, targets[name]);
    return static_cast<int>(factors.size());
  };
  auto merged = merge();
  if (!merged) return fail(std::move(merged).error().at(path.string()));
  return merged;
}

}  // namespace tandem::model
