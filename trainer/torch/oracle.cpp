#include "trainer/torch/oracle.h"

#include <fmt/format.h>

#include <array>

#include "model/weights.h"
#include "trainer/torch/library.h"

namespace tandem::trainer {

namespace {

constexpr const char* kWho = "--path torch";
constexpr const char* kScales = "_scale_inv";

int rope_kind(model::RopeKind kind) {
  switch (kind) {
    case model::RopeKind::kDefault:
    case model::RopeKind::kDynamic:  // begins behind the positions that a model takes
      return TANDEM_TORCH_ROPE_DEFAULT;
    case model::RopeKind::kLinear:
      return TANDEM_TORCH_ROPE_LINEAR;
    case model::RopeKind::kLlama3:
      return TANDEM_TORCH_ROPE_LLAMA3;
    case model::RopeKind::kYarn:
      return TANDEM_TORCH_ROPE_YARN;
  }
  return -1;
}

TandemTorchRope rope_of(const model::ModelConfig& config) {
  const model::RopeConfig& rope = config.rope;
  TandemTorchRope out{};
  out.kind = rope_kind(rope.kind);
  out.interleaved = rope.interleaved;
  out.truncate = rope.truncate;
  out.dim = model::rope_dim(config);
  out.original_max_positions = rope.original_max_positions;
  out.theta = rope.theta;
  out.factor = rope.factor;
  out.low_frequency_factor = rope.low_frequency_factor;
  out.high_frequency_factor = rope.high_frequency_factor;
  out.beta_fast = rope.beta_fast;
  out.beta_slow = rope.beta_slow;
  out.attention_factor = rope.attention_factor.value_or(0);
  out.mscale = rope.mscale.value_or(0);
  out.mscale_all_dim = rope.mscale_all_dim.value_or(0);
  return out;
}

TandemTorchShape shape_of(const model::ModelConfig& config) {
  TandemTorchShape shape{};
  shape.layers = config.layers;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_size = config.head_size;
  shape.norm_epsilon = config.norm_epsilon;
  shape.window = config.window;
  shape.top_k = config.experts.top_k;
  shape.sigmoid = config.experts.sigmoid;
  shape.normalise = config.experts.normalise;
  shape.expert_groups = config.experts.groups;
  shape.top_k_groups = config.experts.top_k_groups;
  shape.expert_scale = config.experts.scale;
  shape.latent_plain = config.latent.plain;
  shape.latent_value = config.latent.value;
  shape.rope = rope_of(config);
  return shape;
}

Result<int> dtype_of(const std::string& name, model::DType dtype, bool of_codes) {
  if (dtype == model::DType::kF32) return TANDEM_TORCH_F32;
  if (dtype == model::DType::kBF16) return TANDEM_TORCH_BF16;
  if (dtype == model::DType::kF16) return TANDEM_TORCH_F16;
  if (dtype == model::DType::kF8E4M3 && of_codes) return TANDEM_TORCH_F8_E4M3;
  return fail(Status::invalid(fmt::format("tensor {} is {}; bf16, f16, f32 and f8_e4m3 with scales of blocks are read",
                                          name, model::safetensors_name(dtype))));
}

// Names stay where they are while tensors are added.
class TensorList {
 public:
  Status add(std::string name, model::DType dtype, std::span<const int64_t> shape, const void* data) {
    TandemTorchTensor tensor{};
    const bool may_be_codes = shape.size() == 2;
    tensor.dtype = TRY(dtype_of(name, dtype, may_be_codes));
    tensor.dims = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), tensor.shape);
    tensor.data = data;
    tensor.name = all_.emplace(std::move(name), 0).first->first.c_str();
    tensors_.push_back(tensor);
    return {};
  }
  Status add(const std::string& name, const model::TensorView& view) {
    return add(name, view.dtype, view.shape, view.bytes.data());
  }
  std::span<const TandemTorchTensor> tensors() const { return tensors_; }

 private:
  std::map<std::string, int> all_;
  std::vector<TandemTorchTensor> tensors_;
};

Status add_scales(const model::Safetensors& checkpoint, const model::TensorSpec& spec, TensorList& list) {
  constexpr int64_t kBlock = kernels::kScaleBlock;
  const std::string name = spec.name + kScales;
  const model::TensorView scales = TRY(checkpoint.get(name));
  const std::vector<int64_t> expected = {(spec.shape[0] + kBlock - 1) / kBlock, (spec.shape[1] + kBlock - 1) / kBlock};
  if (scales.shape != expected) {
    return Status::invalid(fmt::format("tensor {} is not [{}, {}], a scale for each block of {} x {}", name,
                                       expected[0], expected[1], kBlock, kBlock));
  }
  if (scales.dtype == model::DType::kF8E4M3) return Status::invalid(fmt::format("tensor {} is of codes itself", name));
  return list.add(name, scales);
}

Status add_factors(const model::Adapter& adapter, const std::map<std::string, std::vector<int64_t>>& shapes,
                   TensorList& list) {
  for (const auto& [name, factors] : adapter.factors) {
    const auto found = shapes.find(name);
    if (found == shapes.end()) return Status::invalid(fmt::format("the model has no matrix {}", name));
    if (found->second != std::vector<int64_t>{factors.rows, factors.columns}) {
      return Status::invalid(
          fmt::format("{} is {} x {}, and its factors are for another shape", name, factors.rows, factors.columns));
    }
    const std::array<int64_t, 2> a = {adapter.rank, factors.columns}, b = {factors.rows, adapter.rank};
    TRY(list.add(name + ".lora_a", model::DType::kF32, a, factors.a.data()));
    TRY(list.add(name + ".lora_b", model::DType::kF32, b, factors.b.data()));
  }
  return {};
}

}  // namespace

Oracle::Oracle(model::ModelConfig config, model::Safetensors checkpoint, std::string place, int threads)
    : config_(std::move(config)), checkpoint_(std::move(checkpoint)), place_(std::move(place)), threads_(threads) {}

Oracle::~Oracle() {
  if (model_ != nullptr) loaded_torch()->functions.free_model(model_);
}

Result<std::unique_ptr<Oracle>> Oracle::open(const fs::path& directory, const fs::path& adapter, int threads) {
  TRY(torch_for(kWho));
  model::ModelConfig config = TRY(model::read_config(directory));
  auto checkpoint = TRY(model::Safetensors::open(directory));
  TRY(model::require_tensors(checkpoint, config, directory));
  std::optional<model::Adapter> factors;
  if (!adapter.empty()) factors = TRY(model::read_adapter(adapter));
  std::unique_ptr<Oracle> oracle(
      new Oracle(std::move(config), std::move(checkpoint), directory.string(), std::max(1, threads)));
  Status created = oracle->create(std::move(factors));
  if (!created) return fail(std::move(created).at(adapter.empty() ? directory.string() : adapter.string()));
  return oracle;
}

Status Oracle::create(std::optional<model::Adapter> adapter) {
  adapter_ = std::move(adapter);
  TensorList list;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const model::TensorSpec& spec : model::tensor_specs(config_)) {
    const model::TensorView view = TRY(checkpoint_.get(spec.name));
    TRY(list.add(spec.name, view));
    if (view.dtype == model::DType::kF8E4M3) TRY(add_scales(checkpoint_, spec, list));
    shapes[spec.name] = spec.shape;
  }
  TandemTorchShape shape = shape_of(config_);
  const std::vector<uint8_t> sliding(config_.sliding.begin(), config_.sliding.end());
  if (!sliding.empty()) shape.sliding = sliding.data();
  if (adapter_) {
    shape.lora_scale = adapter_->scale();
    TRY(add_factors(*adapter_, shapes, list));
  }
  std::array<char, kTorchErrorBytes> error{};
  const auto tensors = list.tensors();
  model_ = loaded_torch()->functions.model(&shape, tensors.data(), tensors.size(), error.data(), error.size());
  return model_ != nullptr ? Status() : Status::invalid(error.data());
}

Result<OracleScores> Oracle::score(std::span<const int32_t> tokens) const {
  OracleScores scores{std::vector<float>(tokens.size() - 1), std::vector<int32_t>(tokens.size())};
  std::array<char, kTorchErrorBytes> error{};
  const int code =
      loaded_torch()->functions.score(model_, tokens.data(), static_cast<int64_t>(tokens.size()), threads_,
                                      scores.logprobs.data(), scores.likeliest.data(), error.data(), error.size());
  if (code != 0) return fail(Status::invalid(fmt::format("LibTorch: {}", error.data())).at(place_));
  return scores;
}

}  // namespace tandem::trainer
