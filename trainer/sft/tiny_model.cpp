#include "trainer/sft/tiny_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "envs/tasks/workspace/kinds.h"
#include "trainer/sft/phrase_tokenizer.h"
#include "trainer/sft/seeds.h"
#include "trainer/sft/warm_start.h"

namespace tandem::trainer {

namespace {

constexpr int kDemonstrations = 768;  // drawn once: playing them costs more than a step on them
constexpr int kPerStep = 32;
constexpr int kLongest = 512;  // tokens
constexpr double kLearningRate = 3e-3;
// Copying stays right; what to call, and in which file, is decided badly.
constexpr envs::Noise kNoise{.random_tool = 0.4, .corrupt_argument = 0.65};

// Two letters of a word of `echo`: a token of their own wherever they stand, so that copying is the same everywhere.
constexpr const char* kCut = "[A-Z][AEIOU]";

// What the template writes of a transcript, parted at its special tokens.
Result<std::vector<std::string>> pieces_of(const envs::Transcript& transcript, const TinyTemplate& format,
                                           const model::ChatTemplate& chat_template) {
  const bool is_plain = format.name == kPlainTemplate;
  const rollout::CallNotation notation{
      .listing = is_plain ? envs::ToolListing::kInMessages : envs::ToolListing::kByTemplate,
      .dialect = model::dialect_of_template(format.source),
      .arguments_as_text = format.arguments_as_text,
      .one_call = format.one_call};
  const auto opening = envs::opening(transcript.task, envs::prompted_tools(), {}, notation.listing);
  Json messages = Json::array();
  for (const auto& message : opening.messages) messages.push_back(rollout::message_of(message));
  for (const auto& turn : transcript.turns) {
    rollout::Said said{.text = turn.answer, .reasoning = {}, .calls = {}};
    for (const auto& call : turn.calls) said.calls.push_back({.call = call, .error = {}, .id = {}});
    messages.push_back(message_of(said, notation));
    rollout::Reply reply;
    for (const auto& outcome : turn.outcomes) reply.results.push_back(outcome.output);
    if (turn.outcomes.empty()) break;
    for (const Json& message : messages_of(said, reply, notation)) messages.push_back(message);
  }
  const Json tools = is_plain ? Json() : opening.tools;
  const std::string text = TRY(chat_template.render(messages, tools, {})).text;
  // What the model says is made into tokens apart from what opens its turn.
  const std::string opened = TRY(chat_template.render(messages, tools, {.add_generation_prompt = true})).text;
  const auto last_mark = [&](std::string_view rest) {
    size_t end = 0;
    for (const auto& mark : format.marks)
      if (const size_t at = rest.rfind(mark); at != std::string_view::npos) end = std::max(end, at + mark.size());
    return rest.substr(end);
  };
  const std::string begin(last_mark(opened));
  std::vector<std::string> pieces;
  const auto add = [&](std::string piece) {
    const bool is_turn = !begin.empty() && piece.size() > begin.size() && piece.starts_with(begin);
    if (is_turn) pieces.push_back(begin);
    piece.erase(0, is_turn ? begin.size() : 0);
    if (!piece.empty()) pieces.push_back(std::move(piece));
  };
  std::string piece;
  for (size_t at = 0; at < text.size();) {
    const auto mark = std::ranges::find_if(
        format.marks, [&](const auto& each) { return std::string_view(text).substr(at).starts_with(each); });
    if (mark == format.marks.end()) {
      piece += text[at++];
      continue;
    }
    add(std::exchange(piece, ""));
    at += mark->size();
  }
  add(std::move(piece));
  return pieces;
}

model::ModelConfig config_for(const TinyTemplate& format, int vocabulary) {
  const auto id_of = [&](const std::string& mark) {
    return static_cast<model::TokenId>(std::ranges::find(format.marks, mark) - format.marks.begin());
  };
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
  for (const auto& mark : format.ends) config.eos_tokens.push_back(id_of(mark));
  config.bos_token = 0;
  config.pad_token = config.eos_tokens.front();
  return config;
}

// Everything but the weights.
Result<model::ModelConfig> write_text_files(const fs::path& folder, const TinyTemplate& format,
                                            std::span<const envs::Transcript> transcripts) {
  std::vector<std::string> texts;
  const auto chat_template = TRY(model::ChatTemplate::parse(format.source, {{"bos_token", format.marks[0]}}));
  for (const auto& transcript : transcripts) {
    for (auto& text : TRY(pieces_of(transcript, format, chat_template))) texts.push_back(std::move(text));
  }
  const Json tokenizer = TRY(make_phrase_tokenizer(
      texts, {.least_count = static_cast<int>(transcripts.size() / 24), .cut = kCut, .special = format.marks}));
  const auto config = config_for(format, static_cast<int>(tokenizer["model"]["vocab"].size()));
  TRY(make_directories(folder));
  TRY(write_file(folder / "tokenizer.json", tokenizer.dump(1) + "\n"));
  const Json names = {{"bos_token", format.marks[0]}, {"eos_token", format.ends[0]}, {"pad_token", format.ends[0]}};
  Json tokenizer_config = names;
  tokenizer_config["chat_template"] = format.source;
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
  const TinyTemplate* format = find_tiny_template(settings.chat_template);
  if (format == nullptr) return Status::invalid("there is no tiny template " + settings.chat_template);
  std::vector<envs::Transcript> transcripts;
  for (uint64_t number = 0; number < kDemonstrations; ++number) {
    const auto task =
        TRY(envs::make_task({.kind = "echo", .seed = derive_seed(settings.seed, {kDemonstrationTaskStream, number})}));
    Random random(derive_seed(settings.seed, {kDemonstrationNoiseStream, number}));
    transcripts.push_back(TRY(envs::demonstrate(task, random, kNoise)));
  }
  const auto config = TRY(write_text_files(folder, *format, transcripts));
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
  Random random(derive_seed(settings.seed, {kTinyBatchStream}));
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

Result<model::ParameterLayout> tiny_layout() {
  return model::parameter_layout(config_for(*find_tiny_template(kPlainTemplate), 1));
}

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
