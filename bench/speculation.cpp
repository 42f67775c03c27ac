// Engines with and without drafts, turn by turn in one run: the same tokens, and how long they take.
#include <algorithm>
#include <chrono>
#include <map>

#include "base/random.h"
#include "bench/engine_parts.h"
#include "model/tokenizer.h"
#include "rollout/engine/engine.h"

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

}  // namespace

Status add_speculation(const std::shared_ptr<const model::Weights>& weights, const Settings& settings,
                       std::vector<Figure>& figures) {
  const auto make = [&](Speculation speculation) {
    return Engine::create(weights, 0, settings.place(), {.slots = 16, .max_tokens = 1024, .speculation = speculation});
  };
  auto plain = TRY(make(Speculation::kOff)), drafting = TRY(make(Speculation::kNgram));
  const int vocabulary = weights->config().vocabulary;
  std::vector<Job> jobs;
  if (!settings.model.empty()) {
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
  return {};
}

}  // namespace tandem::bench
