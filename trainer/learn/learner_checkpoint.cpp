// A learner on disk, and back.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/digest.h"
#include "model/safetensors.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "learner.json";
constexpr const char* kRewardHead = "reward_head";  // slice
// The formats of a checkpoint: 1 did not say so; 2 is one file; in 3 masters and moments lie in a file of each rank.
constexpr int kFormat = 3, kWholeFormat = 2;

Result<Json> read_state(const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  Json state = TRY(parse_json(TRY(read_file(path, 1 << 20))));
  const auto has_object = [&](const char* key) { return state.contains(key) && state[key].is_object(); };
  if (!state.is_object() || !state.contains("config") || (!has_object("digests") && !state.contains("shards"))) {
    return fail(Status::corrupt("not the state of a checkpoint").at(path.string()));
  }
  // Not kInvalid: it is good, and another program's.
  if (auto format = format_of(state, kFormat); !format)
    return fail(Status::unfit(format.error().message()).at(path.string()));
  return state;
}

std::string shard_file(int rank, int ranks) { return fmt::format("optimizer-{:05}-of-{:05}.safetensors", rank, ranks); }

// A file of a checkpoint, and where in the whole its slices begin.
struct ShardFile {
  std::string name;
  Json begins = Json::object();   // by slice; absent: 0
  Json digests = Json::object();  // by slice
};

Result<std::vector<ShardFile>> files_of(const Json& state, const fs::path& folder) {
  if (!state.contains("shards")) return std::vector{ShardFile{.name = kOptimizerFile, .digests = state["digests"]}};
  const auto corrupt = [&] {
    return fail(
        Status::corrupt("shards is not what a checkpoint says of its files").at((folder / kStateFile).string()));
  };
  const Json& shards = state["shards"];
  if (!shards.is_array() || shards.empty() || shards.size() > collectives::kMostRanks) return corrupt();
  std::vector<ShardFile> files;
  for (const Json& shard : shards) {
    if (!shard.is_object() || !shard.contains("begins") || !shard["begins"].is_object() || !shard.contains("digests") ||
        !shard["digests"].is_object())
      return corrupt();
    for (const auto& [name, begin] : shard["begins"].items())
      if (!begin.is_number_unsigned()) return corrupt();
    files.push_back({.name = shard_file(static_cast<int>(files.size()), static_cast<int>(shards.size())),
                     .begins = shard["begins"],
                     .digests = shard["digests"]});
  }
  return files;
}

// Elements [begin, ..) of the checkpoint's slice of that name into the slice, from the files that have some of them.
Status read_slice(const fs::path& folder, const Json& state, const Slice& slice, size_t begin = 0) {
  const auto size = static_cast<size_t>(model::bytes_of(slice.dtype));
  const size_t end = begin + slice.elements();
  size_t at = begin, total = 0;
  for (const ShardFile& shard : TRY(files_of(state, folder))) {
    const auto place = (folder / shard.name).string();
    const size_t first = shard.begins.value(slice.name, size_t{0});
    if (first != total)
      return Status::corrupt(fmt::format("{} does not follow the shard before", slice.name)).at(place);
    const auto file = TRY(model::Safetensors::open(folder / shard.name));
    const auto tensor = TRY(file.get(slice.name));
    if (tensor.dtype != slice.dtype) return Status::invalid(fmt::format("{} has another format", slice.name)).at(place);
    total = first + tensor.bytes.size() / size;
    if (at >= total || at >= end) continue;
    if (shard.digests.value(slice.name, "") != digest_of(tensor.bytes).hex()) {
      return Status::corrupt(
                 fmt::format("{} is damaged: its digest differs from the one in {}", slice.name, kStateFile))
          .at(place);
    }
    const size_t until = std::min(end, total);
    std::memcpy(slice.bytes.data() + (at - begin) * size, tensor.bytes.data() + (at - first) * size,
                (until - at) * size);
    at = until;
  }
  if (at < end) return Status::invalid(fmt::format("{} has the wrong size", slice.name)).at(folder.string());
  return {};
}

// Writes them to one file; their digests by name.
Result<Json> write_slices(const fs::path& path, std::span<const Slice> slices) {
  std::vector<model::NamedTensor> tensors;
  Json digests = Json::object();
  for (const Slice& slice : slices) {
    tensors.push_back({slice.name, {.dtype = slice.dtype, .shape = slice.shape, .bytes = slice.bytes}});
    digests[slice.name] = digest_of(slice.bytes).hex();
  }
  TRY(model::write_safetensors(path, tensors));
  return digests;
}

}  // namespace

// What every rank knows of its own file, for the first to write down.
struct Learner::ShardNote {
  std::array<char, 2048> json{};
};

Status Learner::save(const fs::path& folder, const Json& progress) {
  // All ranks write to one folder, which the first makes and puts in its place.
  int64_t pid = ::getpid();
  TRY(ranks_.broadcast(std::as_writable_bytes(std::span(&pid, 1))));
  const fs::path aside = folder.parent_path() / fmt::format(".{}.{}.tmp", folder.filename().string(), pid);
  std::error_code ignored;
  Status made;
  if (ranks_.is_first()) {
    fs::remove_all(aside, ignored);
    made = make_directories(aside);
  }
  TRY(ranks_.agree(made));
  auto shards = write_shards(aside);
  TRY(ranks_.agree(shards ? Status() : shards.error()));
  return ranks_.agree(ranks_.is_first() ? write_state(aside, folder, *shards, progress) : Status());
}

// Returns where each rank's slices begin and what their digests are; empty on all ranks where one file has it all.
Result<Json> Learner::write_shards(const fs::path& aside) {
  std::vector<StateSlice> states = this->state();
  // What is whole on every rank is the first one's to write; the others have none of it, at its end.
  if (critic_ && !ranks_.is_first()) {
    for (StateSlice& state : states) {
      if (!state.is_whole) continue;
      state.begin = state.slice.elements();
      state.slice = state.slice.part(state.begin, 0);
    }
  }
  std::vector<Slice> slices;
  for (const StateSlice& state : states) slices.push_back(state.slice);
  if (!shard_) {
    // Factors alone are no model: without the one that they began with there would be nothing to export.
    if (low_rank_) slices.push_back(weights_->slice());
    return ranks_.is_first() ? write_slices(aside / kOptimizerFile, slices) : Result<Json>(Json::object());
  }
  Json note = {{"begins", Json::object()}, {"digests", Json::object()}};
  auto digests = write_slices(aside / shard_file(ranks_.rank(), ranks_.count()), slices);
  if (digests) note["digests"] = *digests;
  for (const StateSlice& state : states) note["begins"][state.slice.name] = state.begin;
  std::vector<ShardNote> notes(static_cast<size_t>(ranks_.count()));
  std::vector<int> owners(notes.size());
  std::iota(owners.begin(), owners.end(), 0);
  const std::string text = note.dump();
  text.copy(notes[static_cast<size_t>(ranks_.rank())].json.data(), sizeof(ShardNote) - 1);
  TRY(ranks_.exchange(std::span(notes), owners));
  TRY(std::move(digests));
  Json shards = Json::array();
  for (const ShardNote& of_rank : notes) shards.push_back(TRY(parse_json(of_rank.json.data())));
  return shards;
}

Status Learner::write_state(const fs::path& aside, const fs::path& folder, const Json& shards, const Json& progress) {
  Json state = {{"format", shard_ ? kFormat : kWholeFormat},
                {"steps", steps_},
                {"numerics_id", numerics_id()},
                {"optimizer", description()},
                {"config", model::to_json(weights_->config())}};
  state[shard_ ? "shards" : "digests"] = shards;
  if (low_rank_) {
    const LowRankSettings& lora = low_rank_->settings();
    state["lora"] = {
        {"rank", lora.rank}, {"alpha", lora.alpha}, {"use_rslora", lora.use_rslora}, {"targets", lora.targets}};
  }
  if (gives_rewards()) state["reward_notes"] = reward_notes_;
  if (updates_ != steps_) state["updates"] = updates_;
  if (settings_.skip_spikes > 0) state["gradient_norms"] = norms_.norms();
  if (Json control = entropy_.state(); !control.is_null()) state["entropy_control"] = std::move(control);
  if (!progress.is_null()) state["progress"] = progress;
  TRY(write_file(aside / kStateFile, state.dump(2) + "\n"));
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (::rename(aside.c_str(), folder.c_str()) != 0) return Status::from_errno("rename " + folder.string(), errno);
  return {};
}

Status Learner::load(const fs::path& folder) {
  TRY(ranks_.agree(read_checkpoint(folder)));
  return rebuild_weights();
}

Result<Json> Learner::state_of_checkpoint(const fs::path& folder) const {
  Json state = TRY(read_state(folder));
  if (state["config"] != model::to_json(weights_->config())) {
    return fail(Status::invalid("the checkpoint is of another model").at((folder / kStateFile).string()));
  }
  if (const auto saved = state.value("optimizer", "adamw, fp32 moments"); saved != description()) {
    return fail(Status::invalid(fmt::format("the checkpoint is of another optimizer: {}, not {}", saved, description()))
                    .at((folder / kStateFile).string()));
  }
  return state;
}

Status Learner::read_checkpoint(const fs::path& folder) {
  const Json state = TRY(state_of_checkpoint(folder));
  for (const StateSlice& own : this->state()) TRY(read_slice(folder, state, own.slice, own.begin));
  steps_ = state.value("steps", int64_t{0});
  updates_ = state.value("updates", steps_);
  norms_.restore(state.value("gradient_norms", std::vector<double>()));
  return entropy_.restore(state.value("entropy_control", Json())).at((folder / kStateFile).string());
}

Result<std::optional<std::string>> Learner::difference_from(const fs::path& folder) {
  const Json state = TRY(state_of_checkpoint(folder));
  Buffers buffers;
  for (const StateSlice& own : this->state()) {
    const Slice other =
        buffers.add({.name = own.slice.name, .elements = own.slice.elements(), .dtype = own.slice.dtype});
    TRY(read_slice(folder, state, other));
    const auto [here, there] = std::ranges::mismatch(own.slice.bytes, other.bytes);
    if (here == own.slice.bytes.end()) continue;
    const auto size = static_cast<size_t>(model::bytes_of(own.slice.dtype));
    const size_t element = static_cast<size_t>(here - own.slice.bytes.begin()) / size;
    std::string place = fmt::format("element {} of {}", element, own.slice.name);
    if (low_rank_ == nullptr && own.slice.elements() == weights_->layout().elements) {
      for (const model::Parameter& parameter : weights_->layout().parameters) {
        if (element >= parameter.offset && element < parameter.offset + parameter.elements())
          place = fmt::format("{} of {}, element {}", own.slice.name, parameter.name, element - parameter.offset);
      }
    }
    if (own.slice.dtype != model::DType::kF32) return std::optional(place);
    return std::optional(
        fmt::format("{}: {} and not {}", place, own.slice.host<float>()[element], other.host<float>()[element]));
  }
  return std::optional<std::string>();
}

Result<Json> checkpoint_progress(const fs::path& folder) {
  const Json state = TRY(read_state(folder));
  return state.value("progress", Json());
}

Result<model::Weights> checkpoint_weights(const fs::path& folder, model::WeightFormat format) {
  const bool floats = format == model::WeightFormat::kFloat32;
  if (!floats && format != model::WeightFormat::kBf16)
    return fail(Status::invalid("the weights of a checkpoint are read as bf16 or as floats"));
  const Json state = TRY(read_state(folder));
  auto weights = TRY(model::Weights::create(TRY(model::config_from_json(state["config"])), false, format));
  const Slice slice = weights.slice();
  Buffers buffers;
  if (state.contains("digests") && state["digests"].contains(slice.name)) {  // with LoRA
    const Slice trained =
        floats ? buffers.add({.name = slice.name, .elements = slice.elements(), .dtype = model::DType::kBF16}) : slice;
    TRY(read_slice(folder, state, trained));
    if (floats)
      std::ranges::transform(trained.host<kernels::bf16>(), slice.host<float>().begin(),
                             [](kernels::bf16 value) { return kernels::to_float(value); });
    return weights;
  }
  const Slice masters = buffers.add({.name = kMasters, .elements = slice.elements()});
  TRY(read_slice(folder, state, masters));
  if (floats)
    std::ranges::copy(masters.host<float>(), slice.host<float>().begin());
  else
    std::ranges::transform(masters.host<float>(), slice.host<kernels::bf16>().begin(),
                           [](float value) { return kernels::to_bf16(value); });
  return weights;
}

Result<std::optional<model::RewardHead>> checkpoint_reward_head(const fs::path& folder) {
  const Json state = TRY(read_state(folder));
  if (!state.contains("reward_notes")) return std::optional<model::RewardHead>();
  model::RewardHead head;
  const Json& notes = state["reward_notes"];
  const auto is_text = [](const Json& note) { return note.is_string(); };
  if (!notes.is_object() || !std::ranges::all_of(notes, is_text))
    return fail(Status::corrupt("reward_notes has what is no text").at((folder / kStateFile).string()));
  for (const auto& [name, note] : notes.items()) head.notes[name] = note.get<std::string>();
  const auto config = TRY(model::config_from_json(state["config"]));
  Buffers buffers;
  const Slice numbers = buffers.add({.name = kRewardHead, .elements = static_cast<size_t>(config.width) + 1});
  TRY(read_slice(folder, state, numbers));
  head.weight.assign(numbers.host<float>().begin(), numbers.host<float>().end());
  return std::optional(std::move(head));
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
  TRY(read_slice(folder, state, factors));
  return std::optional(low_rank.adapter(factors));
}

}  // namespace tandem::trainer
