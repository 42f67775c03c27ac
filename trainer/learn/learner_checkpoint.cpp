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
constexpr int kFormat = 2;  // of a checkpoint; the same as 1, which did not say so

Result<Json> read_state(const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  Json state = TRY(parse_json(TRY(read_file(path, 1 << 20))));
  if (!state.is_object() || !state.contains("config") || !state.contains("digests") || !state["digests"].is_object()) {
    return fail(Status::corrupt("not the state of a checkpoint").at(path.string()));
  }
  // Not kInvalid: it is good, and another program's.
  if (auto format = format_of(state, kFormat); !format)
    return fail(Status::unfit(format.error().message()).at(path.string()));
  return state;
}

// The tensor of the slice's name into the slice.
Status read_slice(const fs::path& folder, const model::Safetensors& file, const Json& state, const Slice& slice) {
  const auto place = (folder / kOptimizerFile).string();
  const auto tensor = TRY(file.get(slice.name));
  if (tensor.bytes.size() != slice.bytes.size() || tensor.dtype != slice.dtype) {
    return Status::invalid(fmt::format("{} has the wrong size", slice.name)).at(place);
  }
  if (state["digests"].value(slice.name, "") != digest_of(tensor.bytes).hex()) {
    return Status::corrupt(fmt::format("{} is damaged: its digest differs from the one in {}", slice.name, kStateFile))
        .at(place);
  }
  std::memcpy(slice.bytes.data(), tensor.bytes.data(), tensor.bytes.size());
  return {};
}

}  // namespace

Status Learner::save(const fs::path& folder, const Json& progress) {
  const fs::path aside = folder.parent_path() / fmt::format(".{}.{}.tmp", folder.filename().string(), ::getpid());
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  TRY(make_directories(aside));
  std::vector<Slice> slices = state();
  // Factors alone are no model: without the one that they began with there would be nothing to export.
  if (low_rank_) slices.push_back(weights_->slice());
  std::vector<model::NamedTensor> tensors;
  for (const Slice& slice : slices)
    tensors.push_back({slice.name, {.dtype = slice.dtype, .shape = slice.shape, .bytes = slice.bytes}});
  TRY(model::write_safetensors(aside / kOptimizerFile, tensors));
  Json digests;
  for (const auto& named : tensors) digests[named.name] = digest_of(named.tensor.bytes).hex();
  Json state = {{"format", kFormat},
                {"steps", steps_},
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
  for (const Slice& slice : this->state()) TRY(read_slice(folder, file, state, slice));
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
  const Slice slice = weights.slice();
  if (file.tensors().contains(slice.name)) {  // with LoRA
    TRY(read_slice(folder, file, state, slice));
    return weights;
  }
  Buffers buffers;
  const Slice masters = buffers.add({.name = kMasters, .elements = slice.elements()});
  TRY(read_slice(folder, file, state, masters));
  std::ranges::transform(masters.host<float>(), slice.host<kernels::bf16>().begin(),
                         [](float value) { return kernels::to_bf16(value); });
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
  Buffers buffers;
  const Slice factors = buffers.add({.name = kMasters, .elements = low_rank.elements()});
  const auto file = TRY(model::Safetensors::open(folder / kOptimizerFile));
  TRY(read_slice(folder, file, state, factors));
  return std::optional(low_rank.adapter(factors.host<float>()));
}

}  // namespace tandem::trainer
