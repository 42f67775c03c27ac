#include "trainer/sft/tiny_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "envs/tasks/workspace/kinds.h"
#include "rollout/agent/text_calls.h"
#include "trainer/sft/phrase_tokenizer.h"
#include "trainer/sft/warm_start.h"

namespace tandem::trainer {

namespace {

constexpr int kDemonstrations = 768;  // drawn once: playing them costs more than a step on them
constexpr int kPerStep = 32;
constexpr int kLongest = 512;  // tokens
constexpr double kLearningRate = 3e-3;
// Copying stays right; what to call, and in which file, is decided badly.
constexpr envs::Noise kNoise{.random_tool = 0.4, .corrupt_argument = 0.65};

constexpr std::string_view kTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const std::array<std::string, 3> kSpecial = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
constexpr model::TokenId kEndOfText = 0, kEndOfTurn = 2;

// Two letters of a word of `echo`: a token of their own wherever they stand, so that copying is the same everywhere.
constexpr const char* kCut = "[A-Z][AEIOU]";

std::vector<std::string> pieces_of(const envs::Transcript& transcript) {
  // As the template writes them; special tokens part them.
  std::vector<std::string> texts;
  const auto opening = envs::opening(transcript.task, envs::prompted_tools(), {}, envs::ToolListing::kInMessages);
  for (const auto& message : opening.messages) texts.insert(texts.end(), {message.role + "\n" + message.content, "\n"});
  for (const auto& turn : transcript.turns) {
    texts.insert(texts.end(),
                 {"assistant\n", turn.calls.empty() ? turn.answer : rollout::write_calls(turn.calls), "\n"});
    std::vector<std::string> results;
    for (const auto& outcome : turn.outcomes) results.push_back(outcome.output);
    if (!results.empty()) texts.insert(texts.end(), {"user\n" + rollout::write_results(results), "\n"});
  }
  return texts;
}

model::ModelConfig config_for(int vocabulary) {
  model::ModelConfig config;
  config.family = "llama";
  config.layers = 2;
  config.width = 128;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 256;
  config.vocabulary = vocabulary;
  config.max_positions = 1024;
  config.norm_epsilon = 1e-5;
  config.tied_embeddings = true;
  config.dtype = model::DType::kBF16;
  config.eos_tokens = {kEndOfTurn};
  config.bos_token = kEndOfText;
  config.pad_token = kEndOfTurn;
  return config;
}

// Everything but the weights.
Result<model::ModelConfig> write_text_files(const fs::path& folder, std::span<const envs::Transcript> transcripts) {
  std::vector<std::string> texts;
  for (const auto& transcript : transcripts) {
    for (auto& text : pieces_of(transcript)) texts.push_back(std::move(text));
  }
  const Json tokenizer = TRY(make_phrase_tokenizer(
      texts, {.least_count = static_cast<int>(transcripts.size() / 24), .cut = kCut, .special = kSpecial}));
  const auto config = config_for(static_cast<int>(tokenizer["model"]["vocab"].size()));
  TRY(make_directories(folder));
  TRY(write_file(folder / "tokenizer.json", tokenizer.dump(1) + "\n"));
  const Json names = {
      {"bos_token", kSpecial[kEndOfText]}, {"eos_token", kSpecial[kEndOfTurn]}, {"pad_token", kSpecial[kEndOfTurn]}};
  Json tokenizer_config = names;
  tokenizer_config["chat_template"] = kTemplate;
  tokenizer_config["clean_up_tokenization_spaces"] = false;
  tokenizer_config["model_max_length"] = config.max_positions;
  tokenizer_config["tokenizer_class"] = "PreTrainedTokenizerFast";
  TRY(write_file(folder / "tokenizer_config.json", tokenizer_config.dump(2) + "\n"));
  TRY(write_file(folder / "special_tokens_map.json", names.dump(2) + "\n"));
  TRY(write_file(folder / "config.json", model::to_json(config).dump(2) + "\n"));
  TRY(write_file(folder / "generation_config.json", model::generation_config_json(config).dump(2) + "\n"));
  return config;
}

Status make(const fs::path& folder, const TinyModelSettings& settings,
            const std::function<void(const std::string&)>& progress) {
  std::vector<envs::Transcript> transcripts;
  for (uint64_t number = 0; number < kDemonstrations; ++number) {
    const auto task = TRY(envs::make_task({.kind = "echo", .seed = derive_seed(settings.seed, {1, number})}));
    Random random(derive_seed(settings.seed, {2, number}));
    transcripts.push_back(TRY(envs::demonstrate(task, random, kNoise)));
  }
  const auto config = TRY(write_text_files(folder, transcripts));
  const auto conversation = TRY(rollout::Conversation::load(folder));
  std::vector<Sample> samples;
  for (const auto& transcript : transcripts) samples.push_back(TRY(sample_of(transcript, conversation, kLongest)));
  progress(
      fmt::format("tiny model: {} demonstrations, {} tokens in the vocabulary, the first prompt has {}", samples.size(),
                  config.vocabulary,
                  std::find(samples[0].trained.begin(), samples[0].trained.end(), 1) - samples[0].trained.begin()));

  auto weights = TRY(model::Weights::create(config, true));
  model::randomise(weights, settings.seed);
  auto learner = TRY(Learner::create(
      std::move(weights), TRY(kernels::Stream::cpu(settings.threads)),
      {.learning_rate = {
           .peak = kLearningRate, .warmup_steps = 10, .decay = Decay::kLinear, .steps = settings.warm_steps}}));
  Random random(derive_seed(settings.seed, {3}));
  std::vector<Sample> batch;
  for (int step = 1; step <= settings.warm_steps; ++step) {
    batch.clear();
    for (int i = 0; i < kPerStep; ++i) batch.push_back(samples[random.below(samples.size())]);
    const auto metrics = TRY(learner.imitate(batch));
    if (step % 40 == 0 || step == settings.warm_steps) {
      progress(fmt::format("tiny model: step {}/{}, loss {:.3f}", step, settings.warm_steps, metrics.loss));
    }
  }
  return model::save_weights(learner.weights(), folder, folder);
}

}  // namespace

Status make_tiny_model(const fs::path& out, const TinyModelSettings& settings,
                       const std::function<void(const std::string&)>& progress) {
  const fs::path aside = fmt::format("{}.tmp-{}", out.string(), ::getpid());
  std::error_code error;
  const Status made = make(aside, settings, progress);
  if (made.ok()) {
    fs::remove_all(out, error);
    fs::rename(aside, out, error);
    if (!error) return {};
  }
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  return made.ok() ? Status::from_errno(out.string(), error.value()) : made;
}

}  // namespace tandem::trainer
