#include "model/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "kernels/gemm.h"
#include "model/config_reader.h"
#include "model/safetensors.h"

namespace tandem::model {

using kernels::bf16;

namespace {

constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

// What is read, and what PEFT writes beside it that does not change what an adapter means.
constexpr std::array<std::string_view, 26> kHarmlessKeys = {"peft_type",
                                                            "peft_version",
                                                            "auto_mapping",
                                                            "base_model_name_or_path",
                                                            "revision",
                                                            "task_type",
                                                            "inference_mode",
                                                            "r",
                                                            "lora_alpha",
                                                            "use_rslora",
                                                            "bias",
                                                            "init_lora_weights",
                                                            "lora_dropout",
                                                            "target_modules",
                                                            "exclude_modules",
                                                            "layers_to_transform",
                                                            "layers_pattern",
                                                            "megatron_config",
                                                            "megatron_core",
                                                            "loftq_config",
                                                            "eva_config",
                                                            "corda_config",
                                                            "lora_ga_config",
                                                            "qalora_group_size",
                                                            "ensure_weight_tying",
                                                            "runtime_config"};
// Parts that an object turns on, an empty one too: it has the defaults.
constexpr std::array<std::string_view, 5> kOnByObject = {"use_bdlora", "arrow_config", "kasa_config",
                                                         "monteclora_config", "velora_config"};

// Most starts say nothing about an adapter that has learned. Some are taken out of the base weights, which PEFT changes
// when it loads such an adapter, and so may those that nobody here knows.
Status refuse_unknown_start(const Json& start) {
  if (!start.is_string()) {
    if (start.is_null() || start.is_boolean()) return {};
    return Status::invalid(fmt::format("init_lora_weights is {}, not a bool or a name", start.dump()));
  }
  const auto name = start.get<std::string>();
  for (const std::string_view kind : {"pissa", "corda", "olora", "loftq", "lora_ga"}) {
    if (!name.starts_with(kind)) continue;
    return Status::invalid(
               fmt::format("init_lora_weights \"{}\" changes the base weights, which is not supported", name))
        .hint("save it as a plain adapter: save_pretrained(DIR, path_initial_model_for_weight_conversion=START)");
  }
  constexpr std::array<std::string_view, 5> kPlain = {"", "gaussian", "Gaussian", "eva", "orthogonal"};
  if (std::ranges::find(kPlain, name) != kPlain.end()) return {};
  return Status::invalid(fmt::format("init_lora_weights \"{}\" is not supported", name));
}

// Keys that change what an adapter means, and those that nobody here knows, unless they are null, false or empty.
Status refuse_unknown_parts(const Json& json) {
  const std::string type = TRY(ConfigReader(json).text("peft_type", "unnamed"));
  if (type != "LORA") return Status::invalid(fmt::format("peft_type \"{}\" is not LORA", type));
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kHarmlessKeys, key) != kHarmlessKeys.end()) continue;
    const bool on_by_object = std::ranges::find(kOnByObject, key) != kOnByObject.end() && value.is_object();
    const bool off = value.is_null() || value == Json(false) || value == Json("") || value.empty();
    if (on_by_object || !off) return Status::invalid(fmt::format("{} is not supported", key));
  }
  TRY(refuse_unknown_start(json.value("init_lora_weights", Json())));
  const std::string bias = TRY(ConfigReader(json).text("bias", "none"));
  if (bias != "none") return Status::invalid(fmt::format("bias \"{}\" is not none", bias));
  return {};
}

// All of an adapter but its factors.
Result<Adapter> read_settings(const fs::path& path) {
  constexpr uint64_t kLimit = 16 << 20;
  const auto json = parse_json(TRY(read_file(path, kLimit)));
  if (!json) return fail(Status(json.error()).at(path.string()));
  const auto read = [&]() -> Result<Adapter> {
    if (!json->is_object()) return fail(Status::invalid("is not an object"));
    TRY(refuse_unknown_parts(*json));
    const ConfigReader reader(*json);
    Adapter adapter;
    adapter.rank = TRY(reader.size("r"));
    adapter.alpha = TRY(reader.number("lora_alpha"));
    adapter.use_rslora = TRY(reader.flag("use_rslora", false));
    return adapter;
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

// Both factors of one matrix as they lie in the file.
struct Pair {
  const TensorView *a = nullptr, *b = nullptr;
};

Result<std::map<std::string, Factors>> read_factors(const Safetensors& file, int rank) {
  std::map<std::string, Pair> pairs;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool is_a = name.ends_with(kA);
    if (!name.starts_with(kPrefix) || (!is_a && !name.ends_with(kB))) {
      return fail(Status::invalid(fmt::format("tensor {} is no factor of a matrix", name)));
    }
    Pair& pair = pairs[name.substr(kPrefix.size(), name.size() - kPrefix.size() - kA.size()) + ".weight"];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  std::map<std::string, Factors> found;
  for (const auto& [name, pair] : pairs) {
    if (pair.a == nullptr || pair.b == nullptr) {
      return fail(Status::invalid(fmt::format("{} has one factor, not two", name)));
    }
    const auto &a = pair.a->shape, &b = pair.b->shape;
    if (a.size() != 2 || b.size() != 2 || a[0] != rank || b[1] != rank) {
      return fail(Status::invalid(fmt::format("the factors of {} are [{}] and [{}], not of rank {}", name,
                                              fmt::join(a, ", "), fmt::join(b, ", "), rank)));
    }
    if (a[1] > INT32_MAX || b[0] > INT32_MAX) return fail(Status::invalid(fmt::format("{} is too large", name)));
    auto& factors = found[name];
    factors.rows = static_cast<int>(b[0]);
    factors.columns = static_cast<int>(a[1]);
    factors.a = TRY(floats_of(name, *pair.a));
    factors.b = TRY(floats_of(name, *pair.b));
    const auto finite = [](float value) { return std::isfinite(value); };
    if (!std::ranges::all_of(factors.a, finite) || !std::ranges::all_of(factors.b, finite))
      return fail(Status::invalid(fmt::format("the factors of {} hold NaN or infinite numbers", name)));
  }
  if (found.empty()) return fail(Status::invalid("holds no factors"));
  return found;
}

template <typename T>
Status merge_into(kernels::Stream& stream, const Adapter& adapter, const std::map<std::string, Matrix>& matrices,
                  std::span<T> weights) {
  for (const auto& [name, factors] : adapter.factors) {
    const Matrix& matrix = matrices.at(name);
    T* const values = weights.data() + matrix.offset;
    TRY(add_low_rank(stream, LowRankSum<T>{.shape = matrix,
                                           .rank = adapter.rank,
                                           .scale = adapter.scale(),
                                           .a = factors.a.data(),
                                           .b = factors.b.data(),
                                           .base = values,
                                           .out = values}));
  }
  return {};
}

template <typename T>
Status add_product(kernels::Stream& stream, const LowRankSum<T>& s) {
  const auto rows = static_cast<size_t>(s.shape.rows), columns = static_cast<size_t>(s.shape.columns);
  Buffer<float> packed(kernels::packed_size(s.shape.columns, s.rank)), product(rows * columns);
  TRY(kernels::pack_transposed(stream, s.a, s.rank, s.shape.columns, packed.data()));
  TRY(kernels::gemm(stream, kernels::BasicGemm<float>{.a = s.b,
                                                      .a_stride = static_cast<size_t>(s.rank),
                                                      .b = packed.data(),
                                                      .out_float = product.data(),
                                                      .out_stride = columns,
                                                      .m = s.shape.rows,
                                                      .n = s.shape.columns,
                                                      .k = s.rank}));
  stream.threads().run(s.shape.rows, [&](int row) {
    const size_t first = static_cast<size_t>(row) * columns;
    for (size_t i = first; i < first + columns; ++i) {
      const float scaled = s.scale * product[i];
      if constexpr (sizeof(T) == sizeof(float))
        s.out[i] = s.base[i] + scaled;
      else
        s.out[i] = kernels::to_bf16(kernels::to_float(s.base[i]) + scaled);
    }
  });
  return {};
}

}  // namespace

float Adapter::scale() const {
  return static_cast<float>(alpha / (use_rslora ? std::sqrt(static_cast<double>(rank)) : rank));
}

Result<Adapter> read_adapter(const fs::path& directory) {
  Adapter adapter = TRY(read_settings(directory / kAdapterConfigFile));
  fs::path path = directory / kAdapterFactorsFile;
  std::error_code error;
  // Opening it says that it is a pickle, and how to convert it.
  if (const fs::path pickled = directory / "adapter_model.bin"; !fs::exists(path, error) && fs::exists(pickled, error))
    path = pickled;
  auto factors = read_factors(TRY(Safetensors::open(path)), adapter.rank);
  if (!factors) return fail(std::move(factors).error().at(path.string()));
  adapter.factors = std::move(*factors);
  return adapter;
}

Status write_adapter(const Adapter& adapter, const fs::path& directory, const std::string& base_model) {
  TRY(make_directories(directory));
  std::set<std::string> targets;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, factors] : adapter.factors) {
    const std::string module = name.substr(0, name.size() - std::string_view(".weight").size());
    targets.insert(module_of(name));
    const auto add = [&](std::string_view suffix, int64_t rows, int64_t columns, const std::vector<float>& values) {
      tensors.push_back({fmt::format("{}{}{}", kPrefix, module, suffix),
                         {.dtype = DType::kF32, .shape = {rows, columns}, .bytes = std::as_bytes(std::span(values))}});
    };
    add(kA, adapter.rank, factors.columns, factors.a);
    add(kB, factors.rows, adapter.rank, factors.b);
  }
  TRY(write_safetensors(directory / kAdapterFactorsFile, tensors));
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base_model},
                       {"r", adapter.rank},
                       {"lora_alpha", adapter.alpha},
                       {"use_rslora", adapter.use_rslora},
                       {"target_modules", targets},
                       {"bias", "none"},
                       {"lora_dropout", 0.0},
                       {"fan_in_fan_out", false},
                       {"use_dora", false},
                       {"inference_mode", true}};
  return write_file(directory / kAdapterConfigFile, config.dump(2) + "\n");
}

Status check_fits(const Adapter& adapter, const std::map<std::string, Matrix>& matrices) {
  for (const auto& [name, factors] : adapter.factors) {
    const auto matrix = matrices.find(name);
    if (matrix == matrices.end()) {
      return Status::invalid(fmt::format("the model has no matrix {}", name))
          .hint("an adapter goes with the model that it was made for");
    }
    if (factors.rows == matrix->second.rows && factors.columns == matrix->second.columns) continue;
    return Status::invalid(fmt::format("the factors of {} are of a matrix of [{}, {}], and the model's is [{}, {}]",
                                       name, factors.rows, factors.columns, matrix->second.rows,
                                       matrix->second.columns));
  }
  return {};
}

Result<int> merge(kernels::Stream& stream, const Adapter& adapter, Weights& weights) {
  const auto matrices = matrices_of(weights.layout());
  TRY(check_fits(adapter, matrices));
  if (weights.format() == WeightFormat::kFloat32)
    TRY(merge_into(stream, adapter, matrices, weights.flat<float>()));
  else
    TRY(merge_into(stream, adapter, matrices, weights.flat()));
  return static_cast<int>(adapter.factors.size());
}

Result<int> merge_adapter(kernels::Stream& stream, const fs::path& directory, Weights& weights) {
  const Adapter adapter = TRY(read_adapter(directory));
  auto merged = merge(stream, adapter, weights);
  if (!merged) return fail(std::move(merged).error().at((directory / kAdapterFactorsFile).string()));
  return merged;
}

Status add_low_rank(kernels::Stream& stream, const LowRankSum<bf16>& arguments) {
  return add_product(stream, arguments);
}
Status add_low_rank(kernels::Stream& stream, const LowRankSum<float>& arguments) {
  return add_product(stream, arguments);
}

std::string module_of(std::string_view name) {
  const std::string_view module = name.substr(0, name.rfind('.'));
  return std::string(module.substr(module.rfind('.') + 1));
}

std::map<std::string, Matrix> matrices_of(const ParameterLayout& layout) {
  std::map<std::string, Matrix> matrices;
  for (const Parameter& p : layout.parameters) {
    if (!p.matrix) continue;
    for (const ParameterPart& part : p.parts) {
      const size_t first = p.offset + static_cast<size_t>(part.first_row) * static_cast<size_t>(p.columns);
      matrices[part.checkpoint_name] = {first, part.rows, p.columns};
    }
  }
  return matrices;
}

}  // namespace tandem::model
