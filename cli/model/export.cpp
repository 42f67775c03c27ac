// `tandem export`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/digest.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model/scorer.h"
#include "model/reward_head.h"
#include "model/tokenizer.h"
#include "run/run_step.h"
#include "trainer/learn/learner.h"

namespace tandem::cli {

namespace {

struct ExportOptions {
  std::string checkpoint, out, model, dtype = "bfloat16";
  bool verify = false, json = false;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

// What is exported, and the model directory that its tokenizer comes from.
struct Source {
  fs::path folder, texts;
  bool checkpoint = false;
};

Result<Source> source_of(const ExportOptions& options) {
  fs::path given = options.checkpoint;
  std::error_code error;
  // The name of a step; a run alone is its newest checkpoint here.
  if (!fs::is_directory(given, error)) {
    if (const auto step = TRY(run::run_step_named(options.checkpoint))) given = step->checkpoint;
  }
  for (const fs::path& folder : {given, given / "checkpoints" / "latest"}) {
    if (!fs::exists(folder / "learner.json", error)) continue;
    const fs::path real = fs::canonical(folder, error);
    const fs::path run_model = real.parent_path().parent_path() / "model";
    if (!options.model.empty()) return Source{real, options.model, true};
    if (fs::exists(run_model / "config.json", error)) return Source{real, run_model, true};
    return fail(Status::invalid(
        fmt::format("{} is not in a run directory; say with --model whose tokenizer it has", folder.string())));
  }
  if (fs::exists(given / "config.json", error)) return Source{given, given};
  return fail(Status::not_found(fmt::format(
      "{} is neither a run, nor a checkpoint (RUN/checkpoints/step_N), nor a model directory", options.checkpoint)));
}

// Some prose, a call and numbers; ids alone where there is no tokenizer.
Result<std::vector<std::vector<int32_t>>> fixed_texts(const fs::path& directory, const model::ModelConfig& config) {
  std::vector<std::vector<int32_t>> texts;
  if (!fs::exists(directory / "tokenizer.json")) {
    std::vector<int32_t> ids;
    for (int i = 0; i < std::min(96, config.max_positions); ++i) ids.push_back(i * 7919 % config.vocabulary);
    texts.push_back(std::move(ids));
    return texts;
  }
  const auto tokenizer = TRY(model::Tokenizer::load(directory));
  for (const char* text :
       {"A checkpoint that was written is worth what can be read from it again.",
        "<tool_call>{\"name\": \"read_file\", \"arguments\": {\"target_file\": \"notes/a.txt\"}}</tool_call>",
        "for (int i = 0; i < 10; ++i) total += 3.14159 * i;  // 0 1 1 2 3 5 8 13 21 34"}) {
    const auto ids = TRY(tokenizer.encode(text, model::AddSpecial::kYes));
    texts.emplace_back(ids.begin(), ids.end());
  }
  return texts;
}

// Files beside the weights that are not written again: a licence, settings of an image processor.
std::vector<std::string> left_behind(const fs::path& texts, const fs::path& out) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(texts, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') || !it->is_regular_file(ignored) || fs::exists(out / name, ignored)) continue;
    const auto ends_with = [&](const char* end) { return name.ends_with(end); };
    constexpr std::array kWeights = {".safetensors", ".index.json", ".bin", ".pt", ".pth", ".gguf"};
    if (std::ranges::none_of(kWeights, ends_with)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

struct Verified {
  std::string digest;
  size_t logprobs = 0;
};

// What was written, read back: the same weights, and by the engine's code the log-probabilities that the trainer's code
// gives for what was to be written.
Result<Verified> verify(model::Weights weights, const fs::path& out, int threads) {
  const auto written =
      TRY(Scorer::create(TRY(model::load_weights(out, false, weights.format())), {.threads = threads}));
  const std::span<const std::byte> expected = weights.slice().bytes, found = written->weights().slice().bytes;
  if (expected.size() != found.size() || std::memcmp(expected.data(), found.data(), found.size()) != 0)
    return fail(
        Status::corrupt("the weights that were read back differ from those that were written").at(out.string()));
  Verified verified{.digest = digest_of(found).hex()};
  const auto texts = TRY(fixed_texts(out, weights.config()));
  const auto original = TRY(Scorer::create(std::move(weights), {.threads = threads}));
  for (const auto& text : texts) {
    // Bits and not numbers: a NaN that was there before is the same.
    const auto before = TRY(original->by_trainer(text)).logprobs, after = TRY(written->by_engine(text)).logprobs;
    if (before.size() != after.size() ||
        std::memcmp(before.data(), after.data(), std::as_bytes(std::span(after)).size()) != 0)
      return fail(Status::corrupt("log-probabilities differ after the way through the files").at(out.string()));
    verified.logprobs += text.size() - 1;
  }
  return verified;
}

Result<int> run_export(const ExportOptions& options) {
  const Source source = TRY(source_of(options));
  const fs::path out = fs::absolute(options.out).lexically_normal();
  if (fs::exists(out) && !fs::is_empty(out))
    return fail(Status::invalid(fmt::format("{} is there already; name a folder that is not", options.out)));
  const auto adapter =
      source.checkpoint ? TRY(trainer::checkpoint_adapter(source.folder)) : std::optional<model::Adapter>();
  const auto reward_head =
      source.checkpoint ? TRY(trainer::checkpoint_reward_head(source.folder))
                        : TRY(model::read_reward_head(source.folder, TRY(model::read_config(source.folder)).width));
  const model::DType dtype = *model::dtype_from_torch(options.dtype);
  // What is written in more digits than bf16 has is read in as many.
  const auto format = dtype == model::DType::kBF16 ? model::WeightFormat::kBf16 : model::WeightFormat::kFloat32;
  auto weights = source.checkpoint ? TRY(trainer::checkpoint_weights(source.folder, format))
                                   : TRY(model::load_weights(source.folder, false, format));
  const size_t rounded = dtype == model::DType::kF16 ? model::round_to_float16(weights) : 0;
  // Whole or not at all.
  const fs::path aside = out.parent_path() / fmt::format(".{}.{}.tmp", out.filename().string(), ::getpid());
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  const auto write = [&]() -> Result<Verified> {
    TRY(model::save_weights(weights, aside, source.texts, dtype));
    if (adapter) TRY(model::write_adapter(*adapter, aside / "adapter", source.texts.string()));
    if (reward_head) TRY(model::write_reward_head(*reward_head, aside));
    Verified verified;
    if (options.verify) verified = TRY(verify(std::move(weights), aside, options.threads));
    fs::remove(out, ignored);
    if (::rename(aside.c_str(), out.c_str()) != 0)
      return fail(Status::from_errno("rename " + aside.string() + " to " + out.string(), errno));
    return verified;
  };
  const auto config = weights.config();
  const uint64_t bytes = weights.layout().elements * static_cast<uint64_t>(model::bytes_of(dtype));
  const auto verified = write();
  if (!verified) {
    fs::remove_all(aside, ignored);
    return fail(verified.error());
  }
  const auto left = left_behind(source.texts, out);
  if (options.json) {
    Json result = {{"out", options.out},      {"from", source.folder.string()},
                   {"family", config.family}, {"parameters", model::parameter_count(config)},
                   {"bytes", bytes},          {"dtype", options.dtype},
                   {"rounded", rounded},      {"verified", options.verify},
                   {"left_behind", left}};
    if (adapter) result["adapter"] = options.out + "/adapter";
    if (reward_head) result["reward_head"] = options.out + "/" + model::kRewardHeadFile;
    if (options.verify) result.update({{"digest", verified->digest}, {"logprobs_compared", verified->logprobs}});
    fmt::print("{}\n", dump_json_line(result));
    return kDone;
  }
  fmt::print("{}: {} with {} parameters in {}, {}, from {}\n", options.out, config.family,
             model::parameter_count(config), options.dtype, format_bytes(bytes), source.folder.string());
  if (adapter) {
    fmt::print("adapter: {}/adapter, rank {} on {} matrices, in PEFT's format\n", options.out, adapter->rank,
               adapter->factors.size());
  }
  if (reward_head) fmt::print("reward head: {}/{}\n", options.out, model::kRewardHeadFile);
  if (rounded > 0) fmt::print("rounded: {} numbers are others in float16\n", rounded);
  if (!left.empty())
    fmt::print("left behind: {}; copy what is wanted from {}\n", join(left, ", "), source.texts.string());
  if (options.verify) {
    fmt::print(
        "verified: read back with the same bits (digest {}), {} log-probabilities the same by engine and trainer\n",
        verified->digest, verified->logprobs);
  }
  return kDone;
}

}  // namespace

Action add_export(CLI::App& command) {
  auto options = std::make_shared<ExportOptions>();
  command
      .add_option("CKPT", options->checkpoint,
                  "A run (its newest checkpoint), RUN/checkpoints/step_N, or a model directory")
      ->required();
  command.add_option("OUT", options->out, "Folder to write, in the layout of Hugging Face")->required();
  command.add_option("--model", options->model, "Model directory whose tokenizer goes with it (default: the run's)");
  command
      .add_option("--dtype", options->dtype,
                  "Number format of the written weights; float32 and float16 of a checkpoint come from its fp32 "
                  "masters, except with LoRA, whose masters are the factors")
      ->check(CLI::IsMember({"bfloat16", "float16", "float32"}));
  command.add_flag("--verify", options->verify, "Read back what was written and compare weights and log-probabilities");
  command.add_option("--threads", options->threads, "Threads to compute with")->check(CLI::Range(1, 1024));
  command.add_flag("--json", options->json, "Print the result as JSON");
  command.footer(
      "A checkpoint that learned with LoRA gives the merged model, and in OUT/adapter the factors in PEFT's format.\n"
      "Examples:\n"
      "  tandem export runs/mine my-model --verify\n"
      "  tandem export runs/mine/checkpoints/step_50 half-way");
  return [options] { return run_export(*options); };
}

}  // namespace tandem::cli
