#include "cli/sft/sft_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_line.h"
#include "base/text.h"

namespace tandem::cli {

namespace {

struct Totals {
  int64_t tokens = 0, trained = 0, longest = 0;
};

Totals totals_of(const std::vector<trainer::PlacedSample>& samples) {
  Totals totals;
  for (const trainer::PlacedSample& placed : samples) {
    const trainer::Sample& sample = placed.sample;
    const auto length = static_cast<int64_t>(sample.tokens.size());
    totals.tokens += length;
    totals.longest = std::max(totals.longest, length);
    totals.trained += std::count(sample.trained.begin(), sample.trained.end(), 1);
  }
  return totals;
}

std::string left_out(const trainer::SampleSet& samples) {
  std::string text;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(samples.too_long, "too long");
  add(samples.low_reward, "below data.min_reward");
  add(samples.without_reward, "without a reward");
  add(samples.heldout, "of held-out tasks");
  add(samples.muted, "of weight 0 throughout");
  add(samples.mistaken, "that cannot be learned from");
  return text;
}

// How many pairs are the right way round, and by how much.
std::string preferred(const Json& event) {
  if (!event.contains("accuracy")) return {};
  const std::string reward =
      event.contains("reward") ? fmt::format("  reward {:.3f}", event.value("reward", 0.0)) : std::string();
  return fmt::format("  right {:.0f} %  margin {:.3f}{}", 100 * event.value("accuracy", 0.0),
                     event.value("margin", 0.0), reward);
}

}  // namespace

std::string describe(const SftConfig& config, const trainer::SampleSet& samples, int64_t steps) {
  const Totals train = totals_of(samples.train), validation = totals_of(samples.validation);
  const size_t each = samples.pairs ? 2 : 1;
  const char* const what = samples.pairs ? "pairs" : "transcripts";
  std::string text = fmt::format("data        {} {}, {} tokens, {} of them learned from; the longest has {}\n",
                                 samples.train.size() / each, what, train.tokens, train.trained, train.longest);
  if (const auto missing = left_out(samples); !missing.empty()) text += fmt::format("left out    {}\n", missing);
  for (const auto& mistake : samples.mistakes) text += fmt::format("skipped     {}\n", mistake);
  if (const auto more = samples.mistaken - static_cast<int64_t>(samples.mistakes.size()); more > 0)
    text += fmt::format("skipped     {} more\n", more);
  if (!samples.validation.empty()) {
    text += fmt::format("validation  {} {}, {} tokens, {} of them counted; every {} steps\n",
                        samples.validation.size() / each, what, validation.tokens, validation.trained,
                        config.validation.every);
  }
  if (samples.without_end > 0) {
    text += fmt::format(
        "note        {} do not end with an end token of the model (eos_token_id in generation_config.json): a model "
        "that learns\n            from them alone does not learn when to stop\n",
        samples.without_end);
  }
  text += fmt::format("training    {} steps of up to {} tokens{}, learning rate {:.1e}, {}\n", steps,
                      config.trainer.tokens_per_step,
                      config.trainer.steps > 0 ? "" : fmt::format(" ({} epochs)", config.trainer.epochs),
                      config.trainer.learning_rate, config.trainer.schedule);
  if (config.on_rewards()) {
    text += fmt::format("reward      head of rewards at learning rate {:.1e}, {}{}\n", config.reward.learning_rate,
                        config.reward.trunk ? "with the model" : "the model stays as it is",
                        config.reward.center_rewards_coefficient > 0
                            ? fmt::format(", centred by {}", config.reward.center_rewards_coefficient)
                            : "");
  } else if (samples.pairs) {
    text += fmt::format("preference  loss {}, beta {}, held to {}\n", config.preference.loss, config.preference.beta,
                        config.model);
  }
  return text;
}

Json to_json(const trainer::SampleSet& samples, int64_t steps) {
  const Totals train = totals_of(samples.train), validation = totals_of(samples.validation);
  return {
      {"event", "begin"},
      {"steps", steps},
      {"pairs", samples.pairs},
      {"train", {{"samples", samples.train.size()}, {"tokens", train.tokens}, {"trained_tokens", train.trained}}},
      {"validation",
       {{"samples", samples.validation.size()}, {"tokens", validation.tokens}, {"trained_tokens", validation.trained}}},
      {"left_out",
       {{"too_long", samples.too_long},
        {"low_reward", samples.low_reward},
        {"without_reward", samples.without_reward},
        {"heldout", samples.heldout},
        {"muted", samples.muted},
        {"mistaken", samples.mistaken}}},
      {"mistakes", samples.mistakes},
      {"without_end", samples.without_end}};
}

std::string marked_text(std::span<const trainer::TokenRun> runs, bool colour) {
  std::string text;
  for (const auto& run : runs) {
    if (!run.trained)
      text += run.text;
    else
      text += colour ? fmt::format("\033[32m{}\033[0m", run.text) : fmt::format("⟦{}⟧", run.text);
  }
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

std::string line_of(const Json& event, double seconds) {
  const std::string kind = event.value("event", "");
  if (kind == "resumed")
    return fmt::format("going on after step {}, from {}", event.value("step", 0), event.value("from", ""));
  if (kind == "reference")
    return fmt::format("reference   {} of {} answers", event.value("samples", 0), event.value("of", 0));
  if (kind == "checkpoint") return fmt::format("saved {}", event.value("path", ""));
  if (kind == "validation") {
    return fmt::format("validation  loss {:.4f}{}{}", event.value("loss", 0.0), preferred(event),
                       event.value("step", 0) == 0  ? " before training"
                       : event.value("best", false) ? "  the best so far"
                                                    : "");
  }
  const double took = event.value("seconds", 0.0);
  if (!event.contains("epoch")) {  // of the warm start
    return fmt::format("step {:3}/{}  loss {:.4f}  grad {:.2f}  {} tokens ({} computed)  {}", event.value("step", 0),
                       event.value("steps", 0), event.value("loss", 0.0), event.value("grad_norm", 0.0),
                       event.value("trained_tokens", int64_t{0}), event.value("tree_tokens", int64_t{0}),
                       format_seconds(seconds));
  }
  const auto tokens = event.value("sample_tokens", int64_t{0});
  return fmt::format(
      "step {:3}/{}  epoch {}  loss {:.4f}{}  grad {:.2f}  lr {:.2e}  {} tokens ({} learned from)  {:.0f} tok/s  {}",
      event.value("step", 0), event.value("steps", 0), event.value("epoch", 0), event.value("loss", 0.0),
      preferred(event), event.value("grad_norm", 0.0), event.value("learning_rate", 0.0), tokens,
      event.value("trained_tokens", int64_t{0}), took > 0 ? static_cast<double>(tokens) / took : 0.0,
      format_seconds(seconds));
}

void Reporter::text(const std::string& lines) const {
  if (!json_) fmt::print(stderr, "{}", lines);
}

void Reporter::event(const Json& event) const {
  if (!json_) return fmt::print(stderr, "{}\n", line_of(event, seconds()));
  fmt::print("{}\n", dump_json_line(event));
  std::fflush(stdout);
}

}  // namespace tandem::cli
