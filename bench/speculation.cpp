// Engines with and without drafts, turn by turn in one run: the same tokens, and how long they take.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/random.h"
#include "bench/engine_parts.h"
#include "model/tokenizer.h"
#include "rollout/engine/draft_model.h"

namespace tandem::bench {

namespace {

using rollout::Engine;
using rollout::Speculation;
using Tokens = std::vector<int32_t>;

struct Job {
  const char* name;
  Tokens prompt, prediction;
  int tokens = 200;  // of each sequence
  float temperature = 0;
  int sequences = 1;
  bool same_seed = false;  // in all rounds: its prediction is of one answer
};

struct Played {
  double seconds = 0;  // from the first token of all on
  std::map<rollout::SequenceId, Tokens> said;
};

Result<Played> play(Engine& engine, const Job& job, uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < job.sequences; ++i) {
    TRY(engine.add(i, job.prompt,
                   {.max_new_tokens = job.tokens,
                    .sampling = {.temperature = job.temperature},
                    .seed = seed * 100 + i,
                    .prediction = job.prediction}));
  }
  Played played;
  auto start = Clock::now();
  while (!engine.idle()) {
    const auto sampled = TRY(engine.step());
    if (static_cast<int>(played.said.size()) < job.sequences) start = Clock::now();
    for (const auto& token : sampled) played.said[token.sequence].push_back(token.token);
  }
  played.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  for (int i = 0; i < job.sequences; ++i) engine.release(i);
  return played;
}

// Tokens a second beside those without drafts, medians of turns.
Result<Figure> compare(Engine& plain, Engine& drafting, const Job& job, double seconds) {
  std::vector<double> without, with;
  double total = 0;
  for (uint64_t seed = 1; with.size() < 3 || total < seconds; ++seed) {
    const auto expected = TRY(play(plain, job, job.same_seed ? 1 : seed));
    const auto drafted = TRY(play(drafting, job, job.same_seed ? 1 : seed));
    if (expected.said != drafted.said) return fail(Status::internal("drafts have changed what was sampled"));
    without.push_back(expected.seconds);
    with.push_back(drafted.seconds);
    total += expected.seconds + drafted.seconds;
  }
  const auto rate = [&](std::vector<double>& all) {
    std::ranges::sort(all);
    return (job.tokens - 1) * job.sequences / all[all.size() / 2];
  };
  return Figure{job.name, rate(with), "tok/s", rate(without), "without drafts"};
}

// The answer of a job with one token in twenty changed, left out or put in.
Result<Tokens> nearly_said(Engine& plain, const Job& job, int vocabulary) {
  Random random(3);
  Tokens out;
  const auto played = TRY(play(plain, job, 1));
  for (const int32_t token : played.said.at(0)) {
    const auto dice = random.below(60);
    if (dice != 0) out.push_back(dice == 1 ? static_cast<int32_t>(random.below(vocabulary)) : token);
    if (dice == 2) out.push_back(static_cast<int32_t>(random.below(vocabulary)));
  }
  return out;
}

// Weights of random numbers, of which every layer from `kept` on adds nothing to what those before it said: the model
// of the kept layers alone says the same for a part of the work.
struct Pair {
  std::shared_ptr<model::Weights> large, small;
};
Result<Pair> pair_of(model::ModelConfig config, int kept, const Settings& settings) {
  Pair pair{.large = std::make_shared<model::Weights>(TRY(model::Weights::create(config, false, settings.weights)))};
  model::randomise(*pair.large, 11);
  const auto& all = pair.large->layout();
  const auto flat = pair.large->flat();
  const auto values_of = [](const model::Parameter& p, auto values) { return values.subspan(p.offset, p.elements()); };
  for (size_t layer = static_cast<size_t>(kept); layer < all.layers.size(); ++layer) {
    for (const int silent : {all.layers[layer].output, all.layers[layer].down})
      std::ranges::fill(values_of(all.parameters[static_cast<size_t>(silent)], flat), kernels::bf16{});
  }
  config.layers = kept;
  if (!config.sliding.empty()) config.sliding.resize(static_cast<size_t>(kept));
  pair.small = std::make_shared<model::Weights>(TRY(model::Weights::create(config, false, settings.weights)));
  for (const model::Parameter& parameter : pair.small->layout().parameters) {
    const auto same = std::ranges::find(all.parameters, parameter.name, &model::Parameter::name);
    if (same == all.parameters.end()) return fail(Status::internal("no parameter " + parameter.name));
    std::ranges::copy(values_of(*same, flat), values_of(parameter, pair.small->flat()).begin());
  }
  for (const auto& weights : {pair.large, pair.small}) TRY(settings.place().ready(*weights));
  return pair;
}

// A draft model of an eighth of the layers, which is always right, and one that never is.
Status add_draft_models(const model::ModelConfig& config, const Settings& settings, std::vector<Figure>& figures) {
  const int kept = std::max(1, config.layers / 8);
  if (config.layers < 8) return {};
  const Pair pair = TRY(pair_of(config, kept, settings));
  model::ModelConfig other = pair.small->config();
  auto stranger = std::make_shared<model::Weights>(TRY(model::Weights::create(other, false, settings.weights)));
  model::randomise(*stranger, 12);
  TRY(settings.place().ready(*stranger));
  const rollout::EngineSettings of_engine{.slots = 16, .max_tokens = 1024, .speculation = Speculation::kNgram};
  auto plain_settings = of_engine;
  plain_settings.speculation = Speculation::kOff;
  auto plain = TRY(Engine::create(pair.large, 0, settings.place(), plain_settings));
  for (const auto& [words, small] : {std::pair("always right", pair.small), {"never right", stranger}}) {
    auto drafting = TRY(Engine::create(pair.large, 0, settings.place(), of_engine));
    drafting.draft_with(TRY(rollout::DraftModel::create(small, settings.place(), of_engine)));
    for (const int sequences : {1, 16}) {
      const std::string name = fmt::format("draft model of {} of {} layers, {}{}", kept, config.layers, words,
                                           sequences > 1 ? ", 16 at once" : "");
      const Job job{name.c_str(), random_tokens(5, 64, config.vocabulary), {}, sequences > 1 ? 60 : 200, 1, sequences};
      figures.push_back(TRY(compare(plain, drafting, job, settings.seconds * 2)));
    }
  }
  return {};
}

}  // namespace

Status add_speculation(const std::shared_ptr<const model::Weights>& weights, const Settings& settings,
                       std::vector<Figure>& figures) {
  const auto make = [&](Speculation speculation) {
    return Engine::create(weights, 0, settings.place(), {.slots = 16, .max_tokens = 1024, .speculation = speculation});
  };
  auto plain = TRY(make(Speculation::kOff)), drafting = TRY(make(Speculation::kNgram));
  const int vocabulary = weights->config().vocabulary;
  std::vector<Job> jobs;
  if (!settings.model.empty() && fs::exists(fs::path(settings.model) / "tokenizer.json")) {
    // A file, and the same file again, of which the first lines are there.
    const auto tokenizer = TRY(model::Tokenizer::load(settings.model));
    const std::string file = made_up_code(900);
    const std::string begun = "// A file:\n" + file + "\n// The same file, line by line:\n" + file.substr(0, 120);
    const Tokens prompt = TRY(tokenizer.encode(begun)), prediction = TRY(tokenizer.encode(file.substr(120)));
    jobs.push_back({"copy a file, from the prompt", prompt, {}});
    jobs.push_back({"copy a file, predicted", prompt, prediction});
    const Tokens text = TRY(tokenizer.encode(file));
    jobs.push_back({"text at temperature 1", text, {}, 200, 1});
    jobs.push_back({"text at temperature 1, 16 at once", text, {}, 60, 1, 16});
  }
  Job edit{"1 token of 20 edited, predicted", random_tokens(1, 256, vocabulary), {}, 200, 1};
  edit.same_seed = true;
  edit.prediction = TRY(nearly_said(plain, edit, vocabulary));
  jobs.push_back(edit);
  jobs.push_back({"random tokens, 16 at once", random_tokens(2, 256, vocabulary), {}, 60, 1, 16});
  jobs.push_back({"random tokens", random_tokens(2, 256, vocabulary), {}, 200, 1});
  for (const Job& job : jobs) figures.push_back(TRY(compare(plain, drafting, job, settings.seconds * 2)));
  const auto& config = weights->config();
  const bool is_plain = std::ranges::all_of(weights->layout().layers, [](const model::LayerParameters& layer) {
    return layer.router < 0 && layer.query_up < 0;
  });
  if (is_plain) TRY(add_draft_models(config, settings, figures));
  return {};
}

}  // namespace tandem::bench
