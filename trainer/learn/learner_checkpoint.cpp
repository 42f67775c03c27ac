// A learner on disk, and back.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/digest.h"
#include "model/safetensors.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "learner.json";
constexpr const char* kWeights = "weights";  // with LoRA

model::DType dtype_of(const Optimizer::Memory& memory) {
  return memory.bf16 ? model::DType::kBF16 : model::DType::kF32;
}

Result<Json> read_state(const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  Json state = TRY(parse_json(TRY(read_file(path, 1 << 20))));
  if (!state.is_object() || !state.contains("config") || !state.contains("digests") || !state["digests"].is_object()) {
    return fail(Status::corrupt("not the state of a checkpoint").at(path.string()));
  }
  return state;
}

Status read_tensor(const fs::path& folder, const model::Safetensors& file, const Json& state, const char* name,
                   std::span<std::byte> values, model::DType dtype = model::DType::kF32) {
  const auto place = (folder / kOptimizerFile).string();
  const auto tensor = TRY(file.get(name));
  if (tensor.bytes.size() != values.size() || tensor.dtype != dtype) {
    return Status::invalid(fmt::format("{} has the wrong size", name)).at(place);
  }
  if (state["digests"].value(name, "") != digest_of(tensor.bytes).hex()) {
    return Status::corrupt(fmt::format("{} is damaged: its digest differs from the one in {}", name, kStateFile))
        .at(place);
  }
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return {};
}

}  // namespace

Status Learner::save(const fs::path& folder, const Json& progress) {
  const fs::path aside = folder.parent_path() / fmt::format(".{}.{}.tmp", folder.filename().string(), ::getpid());
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  TRY(make_directories(aside));
  const auto tensor = [](const char* name, std::span<const std::byte> values, model::DType dtype) {
    const size_t size = dtype == model::DType::kBF16 ? sizeof(kernels::bf16) : sizeof(float);
    return model::NamedTensor{name,
                              {.dtype = dtype, .shape = {static_cast<int64_t>(values.size() / size)}, .bytes = values}};
  };
  std::vector<model::NamedTensor> tensors = {
      tensor("masters", std::as_bytes(std::span(masters_.data(), masters_.size())), model::DType::kF32)};
  for (const auto& memory : optimizer_.memory())
    tensors.push_back(tensor(memory.name, memory.values, dtype_of(memory)));
  // Factors alone are no model: without the one that they began with there would be nothing to export.
  if (low_rank_) tensors.push_back(tensor(kWeights, std::as_bytes(weights_->flat()), model::DType::kBF16));
  TRY(model::write_safetensors(aside / kOptimizerFile, tensors));
  Json digests;
  for (const auto& named : tensors) digests[named.name] = digest_of(named.tensor.bytes).hex();
  Json state = {{"steps", steps_},
                {"numerics_id", numerics_id()},
                {"optimizer", description()},
                {"config", model::to_json(weights_->config())},
                {"digests", digests}};
  if (low_rank_) {
    const LowRankSettings& lora = low_rank_->settings();
    state["lora"] = {
        {"rank", lora.rank}, {"alpha", lora.alpha}, {"use_rslora", lora.use_rslora}, {"targets", lora.targets}};
  }
  if (!progress.is_null()) state["progress"] = progress;
  TRY(write_file(aside / kStateFile, state.dump(2) + "\n"));
  fs::remove_all(folder, ignored);
  if (::rename(aside.c_str(), folder.c_str()) != 0) return Status::from_errno("rename " + folder.string(), errno);
  return {};
}

Status Learner::load(const fs::path& folder) {
  const Json state = TRY(read_state(folder));
  if (state["config"] != model::to_json(weights_->config())) {
    return Status::invalid("the checkpoint is of another model").at((folder / kStateFile).string());
  }
  if (const auto saved = state.value("optimizer", "adamw, fp32 moments"); saved != description()) {
    return Status::invalid(fmt::format("the checkpoint is of another optimizer: {}, not {}", saved, description()))
        .at((folder / kStateFile).string());
  }
  const auto file = TRY(model::Safetensors::open(folder / kOptimizerFile));
  TRY(read_tensor(folder, file, state, "masters", std::as_writable_bytes(std::span(masters_.data(), masters_.size()))));
  for (const auto& memory : optimizer_.memory())
    TRY(read_tensor(folder, file, state, memory.name, memory.values, dtype_of(memory)));
  steps_ = state.value("steps", int64_t{0});
  return rebuild_weights();
}

Result<Json> checkpoint_progress(const fs::path& folder) {
  const Json state = TRY(read_state(folder));
  return state.value("progress", Json());
}

Result<model::Weights> checkpoint_weights(const fs::path& folder) {
  const Json state = TRY(read_state(folder));
  auto weights = TRY(model::Weights::create(TRY(model::config_from_json(state["config"])), false));
  const auto file = TRY(model::Safetensors::open(folder / kOptimizerFile));
  if (file.tensors().contains(kWeights)) {
    TRY(read_tensor(folder, file, state, kWeights, std::as_writable_bytes(weights.flat()), model::DType::kBF16));
    return weights;
  }
  Buffer<float> masters(weights.flat().size());
  TRY(read_tensor(folder, file, state, "masters", std::as_writable_bytes(std::span(masters.data(), masters.size()))));
  for (size_t i = 0; i < masters.size(); ++i) weights.flat()[i] = kernels::to_bf16(masters[i]);
  return weights;
}

Result<std::optional<model::Adapter>> checkpoint_adapter(const fs::path& folder) {
  const Json state = TRY(read_state(folder));
  if (!state.contains("lora")) return std::optional<model::Adapter>();
  const Json& lora = state["lora"];
  const auto place = (folder / kStateFile).string();
  const auto has = [&](const char* key) { return lora.contains(key); };
  if (!std::ranges::all_of(std::array{"rank", "alpha", "use_rslora", "targets"}, has) ||
      !lora["rank"].is_number_integer() || !lora["alpha"].is_number() || !lora["use_rslora"].is_boolean() ||
      !lora["targets"].is_array())
    return fail(Status::corrupt("lora is not what a checkpoint says of its factors").at(place));
  LowRankSettings settings{.rank = lora["rank"].get<int>(),
                           .alpha = lora["alpha"].get<double>(),
                           .use_rslora = lora["use_rslora"].get<bool>()};
  for (const Json& target : lora["targets"]) {
    if (!target.is_string()) return fail(Status::corrupt("lora.targets has what is no name").at(place));
    settings.targets.push_back(target.get<std::string>());
  }
  const auto config = TRY(model::config_from_json(state["config"]));
  const auto low_rank = TRY(LowRank::plan(TRY(model::parameter_layout(config)), settings));
  Buffer<float> factors(low_rank.elements());
  const auto file = TRY(model::Safetensors::open(folder / kOptimizerFile));
  TRY(read_tensor(folder, file, state, "masters", std::as_writable_bytes(std::span(factors.data(), factors.size()))));
  return std::optional(low_rank.adapter({factors.data(), factors.size()}));
}

}  // namespace tandem::trainer
