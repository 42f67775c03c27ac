#include "eval/night.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"

namespace tandem::eval {
namespace {

constexpr double kFlakyWeight = 0.5;

// Seconds that the intervals cover together.
double covered_seconds(std::vector<std::pair<double, double>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double total = 0, end = -1;
  for (const auto& [from, to] : intervals) {
    total += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return total;
}

double mean_seconds(const TaskNight& task) {
  double sum = 0;
  for (const auto& sample : task.samples) sum += sample.has_verdict() ? sample.seconds : 0;
  return task.verdicts() > 0 ? sum / task.verdicts() : 0;
}

std::optional<double> median_seconds(const Night& night) {
  std::vector<double> seconds;
  for (const auto& task : night.tasks) {
    for (const auto& sample : task.samples) {
      if (sample.has_verdict()) seconds.push_back(sample.seconds);
    }
  }
  return quantile(std::move(seconds), 0.5);
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

double tokens_of(const NightSummary& s) { return static_cast<double>(s.prompt_tokens + s.completion_tokens); }

// Sample i of a task is drawn with the same seed in both.
void add_pairs(const TaskNight& before, const TaskNight& after, int& lost, int& won) {
  for (const auto& was : before.samples) {
    const auto is = std::find_if(after.samples.begin(), after.samples.end(),
                                 [&](const auto& sample) { return sample.sample == was.sample; });
    if (is == after.samples.end() || !was.has_verdict() || !is->has_verdict()) continue;
    lost += was.passed() && !is->passed();
    won += !was.passed() && is->passed();
  }
}

std::vector<std::string> by_change(std::vector<std::pair<double, std::string>> tasks) {
  std::sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) {
    return std::abs(a.first) != std::abs(b.first) ? std::abs(a.first) > std::abs(b.first) : a.second < b.second;
  });
  std::vector<std::string> names;
  for (auto& [change, name] : tasks) names.push_back(std::move(name));
  return names;
}

}  // namespace

int TaskNight::verdicts() const {
  return static_cast<int>(std::count_if(samples.begin(), samples.end(), [](const auto& s) { return s.has_verdict(); }));
}
int TaskNight::passed() const {
  return static_cast<int>(std::count_if(samples.begin(), samples.end(), [](const auto& s) { return s.passed(); }));
}
std::optional<double> TaskNight::rate() const {
  const int count = verdicts();
  return count > 0 ? std::optional(static_cast<double>(passed()) / count) : std::nullopt;
}

std::string other_models_of(const Night& night) {
  std::map<std::string, size_t> counts;
  for (const auto& task : night.tasks) {
    for (const auto& sample : task.samples) {
      if (!sample.answered_as.empty()) ++counts[sample.answered_as];
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, count] : counts) names.push_back(fmt::format("{} answered {} samples", name, count));
  return names.empty() ? ""
                       : fmt::format("the server says that {}, and {} was asked for", join(names, ", "), night.model);
}

Night night_of(const Identity& identity, const std::map<SampleKey, SampleResult>& samples) {
  Night night{.suite = identity.suite,
              .model = identity.model,
              .model_digest = identity.model_digest,
              .tasks_digest = identity.tasks_digest(),
              .config_digest = identity.config_digest(),
              .version = identity.version,
              .profile = identity.profile,
              .samples_wanted = identity.samples,
              .tasks = {}};
  std::vector<std::pair<double, double>> intervals;
  for (const auto& own : identity.own_tasks()) {
    TaskNight task{own.task, own.kind, own.digest, {}};
    for (int sample = 0; sample < identity.samples; ++sample) {
      const auto found = samples.find({own.task, sample});
      if (found == samples.end()) continue;
      task.samples.push_back(found->second);
      intervals.emplace_back(found->second.began, found->second.began + found->second.seconds);
    }
    night.tasks.push_back(std::move(task));
  }
  for (const auto& [from, to] : intervals) night.started = night.started == 0 ? from : std::min(night.started, from);
  night.seconds = covered_seconds(std::move(intervals));
  return night;
}

Json to_json(const Night& night) {
  Json tasks = Json::array();
  for (const auto& task : night.tasks) {
    Json samples = Json::array();
    for (const auto& sample : task.samples) {
      Json entry = Json::object();
      const Json whole = to_json(sample);
      for (const auto& [key, value] : whole.items()) {
        if (key != "task") entry[key] = value;
      }
      samples.push_back(std::move(entry));
    }
    tasks.push_back({{"task", task.task},
                     {"kind", task.kind},
                     {"digest", task.digest},
                     {"pass_rate", number_or_null(task.rate())},
                     {"samples", std::move(samples)}});
  }
  return {{"suite", night.suite},
          {"model", night.model},
          {"model_digest", night.model_digest},
          {"tasks_digest", night.tasks_digest},
          {"config_digest", night.config_digest},
          {"version", night.version},
          {"profile", night.profile},
          {"started", night.started},
          {"seconds", night.seconds},
          {"samples_wanted", night.samples_wanted},
          {"tasks", std::move(tasks)}};
}

Result<Night> night_from_json(const Json& json) {
  Night night;
  try {
    night.suite = json.at("suite").get<std::string>();
    night.model = json.value("model", "");
    night.model_digest = json.at("model_digest").get<std::string>();
    night.tasks_digest = json.at("tasks_digest").get<std::string>();
    night.config_digest = json.value("config_digest", "");
    night.version = json.value("version", "");
    night.profile = json.value("profile", "");
    night.started = json.at("started").get<double>();
    night.seconds = json.at("seconds").get<double>();
    for (const Json& entry : json.at("tasks")) {
      TaskNight task{
          entry.at("task").get<std::string>(), entry.at("kind").get<std::string>(), entry.value("digest", ""), {}};
      for (const Json& line : entry.at("samples")) {
        Json whole = line;
        whole["task"] = task.task;
        task.samples.push_back(TRY(sample_from_json(whole)));
      }
      night.samples_wanted = std::max(night.samples_wanted, static_cast<int>(task.samples.size()));
      night.tasks.push_back(std::move(task));
    }
    night.samples_wanted = json.value("samples_wanted", night.samples_wanted);
    constexpr double kMost = 1e11;
    const bool times = night.started >= 0 && night.started <= kMost && night.seconds >= 0 && night.seconds <= kMost;
    if (!times || night.samples_wanted < 0)
      return fail(Status::corrupt("no result of an evaluation: a time or a number of samples is out of range"));
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(std::string("no result of an evaluation: ") + error.what()));
  }
  return night;
}

Result<Night> read_night(const fs::path& directory) {
  const fs::path path = directory / "results.json";
  const auto text = read_file(path);
  if (!text) {
    return fail(Status::invalid("has no results.json")
                    .at(directory.string())
                    .hint("give the folder of an evaluation that has ended; `tandem eval` writes it"));
  }
  const auto read = [&]() -> Result<Night> { return night_from_json(TRY(parse_json(*text))); };
  auto night = read();
  if (!night) return fail(Status(night.error()).at(path.string()));
  return night;
}

NightSummary summarize(const Night& night, const Prices& prices) {
  NightSummary out;
  for (const auto name : rollout::kOutcomeNames) out.outcomes[std::string(name)] = 0;
  std::vector<dashboard::TaskScore> scores;
  std::vector<double> seconds;
  std::map<int, std::pair<double, int>> pass_at;
  out.use = ComputeUse::none();
  for (const auto& task : night.tasks) {
    out.wanted += static_cast<size_t>(night.samples_wanted);
    const int verdicts = task.verdicts(), passed = task.passed();
    out.solved += passed > 0;
    scores.push_back({static_cast<double>(passed), verdicts});
    for (int k = 1; k <= verdicts;
         k = k < night.samples_wanted && 2 * k > night.samples_wanted ? night.samples_wanted : 2 * k) {
      auto& [sum, count] = pass_at[k];
      sum += pass_at_k(verdicts, passed, k);
      ++count;
    }
    for (const auto& sample : task.samples) {
      ++out.ended;
      ++out.outcomes[std::string(rollout::to_string(sample.outcome))];
      out.prompt_tokens += sample.prompt_tokens;
      out.completion_tokens += sample.completion_tokens;
      out.sample_seconds += sample.seconds;
      out.use += sample.use;
      out.flagged += !sample.flags.empty();
      if (!sample.has_verdict()) continue;
      ++out.verdicts;
      out.passed += sample.passed();
      seconds.push_back(sample.seconds);
      out.behaviour.add(sample.behaviour);
      if (!sample.diff) continue;
      out.diffs.add(*sample.diff);
      if (sample.passed()) out.diffs_of_passed.add(*sample.diff);
    }
  }
  out.pass_rate = dashboard::pass_rate(scores);
  for (const auto& [k, of] : pass_at) out.pass_at[k] = of.first / of.second;
  if (out.wanted > 0)
    out.error_share = static_cast<double>(out.wanted - out.verdicts) / static_cast<double>(out.wanted);
  out.seconds_p50 = quantile(seconds, 0.5);
  out.seconds_p95 = quantile(seconds, 0.95);
  const double tokens = tokens_of(out);
  const bool has_prices =
      prices.million_prompt_tokens > 0 || prices.million_completion_tokens > 0 || prices.sample_hour > 0;
  out.cost = !has_prices ? tokens
                         : prices.million_prompt_tokens * static_cast<double>(out.prompt_tokens) / 1e6 +
                               prices.million_completion_tokens * static_cast<double>(out.completion_tokens) / 1e6 +
                               prices.sample_hour * out.sample_seconds / 3600;
  if (out.passed > 0) {
    out.cost_of_pass = out.cost / static_cast<double>(out.passed);
    out.seconds_of_pass = out.sample_seconds / static_cast<double>(out.passed);
  }
  return out;
}

std::optional<double> of_solved_task(const NightSummary& summary, const std::optional<double>& sum) {
  return sum && summary.solved > 0 ? std::optional(*sum / static_cast<double>(summary.solved)) : std::nullopt;
}

std::string solved_task_text(const NightSummary& s) {
  if (s.solved == 0) return "no task was solved";
  const auto amount = [&](const std::optional<double>& sum) { return fmt::format("{:.3g}", *of_solved_task(s, sum)); };
  std::vector<std::string> parts;
  if (s.use.model_gpus.value_or(0) > 0) parts.push_back(amount(s.use.model_gpus) + " GPU-seconds");
  if (s.use.cores()) {
    parts.push_back(fmt::format("{} core-seconds ({} of the model, {} of sandboxes)", amount(s.use.cores()),
                                amount(s.use.model_cores), amount(s.use.sandbox_cores)));
  } else if (s.use.sandbox_cores) {
    parts.push_back(fmt::format("{} core-seconds of sandboxes (the model is behind a server: not known)",
                                amount(s.use.sandbox_cores)));
  } else {
    parts.emplace_back("core-seconds not known");
  }
  parts.push_back(fmt::format("{:.0f} tokens", *of_solved_task(s, tokens_of(s))));
  parts.push_back(seconds_text(*of_solved_task(s, s.sample_seconds)) + " of samples");
  return join(parts, ", ");
}

Json to_json(const NightSummary& s) {
  Json pass_at = Json::object();
  for (const auto& [k, share] : s.pass_at) pass_at[std::to_string(k)] = share;
  return {{"pass_rate", s.pass_rate ? Json(s.pass_rate->value) : Json()},
          {"ci95", s.pass_rate ? Json({s.pass_rate->low, s.pass_rate->high}) : Json()},
          {"pass_at", std::move(pass_at)},
          {"outcomes", s.outcomes},
          {"samples", {{"wanted", s.wanted}, {"ended", s.ended}, {"verdicts", s.verdicts}, {"passed", s.passed}}},
          {"error_share", s.error_share},
          {"sample_seconds",
           {{"p50", number_or_null(s.seconds_p50)},
            {"p95", number_or_null(s.seconds_p95)},
            {"total", s.sample_seconds},
            {"per_pass", number_or_null(s.seconds_of_pass)}}},
          {"tokens", {{"prompt", s.prompt_tokens}, {"completion", s.completion_tokens}}},
          {"cost", {{"total", s.cost}, {"per_pass", number_or_null(s.cost_of_pass)}}},
          {"compute",
           {{"sandbox_core_seconds", number_or_null(s.use.sandbox_cores)},
            {"model_core_seconds", number_or_null(s.use.model_cores)},
            {"model_gpu_seconds", number_or_null(s.use.model_gpus)}}},
          {"solved_tasks", s.solved},
          {"per_solved_task",
           {{"core_seconds", number_or_null(of_solved_task(s, s.use.cores()))},
            {"gpu_seconds", number_or_null(of_solved_task(s, s.use.model_gpus))},
            {"tokens", number_or_null(of_solved_task(s, tokens_of(s)))},
            {"seconds", number_or_null(of_solved_task(s, s.sample_seconds))},
            {"cost", number_or_null(of_solved_task(s, s.cost))}}},
          {"flagged", s.flagged},
          {"behaviour", s.behaviour.means()},
          {"diff", {{"all", s.diffs.summary()}, {"passed", s.diffs_of_passed.summary()}}}};
}

NightComparison compare(const Night& before, const Night& after, double confidence,
                        const std::set<std::string>& flaky) {
  NightComparison out{.model = before.model, .confidence = confidence};
  out.same_config = before.config_digest == after.config_digest;
  std::map<std::string, const TaskNight*> was;
  for (const auto& task : before.tasks) was.emplace(task.task, &task);
  std::vector<PairedRate> rates, paces;
  std::vector<TaskPair> work;
  std::vector<std::pair<double, std::string>> fell, rose;
  int lost = 0, won = 0;
  for (const auto& task : after.tasks) {
    const auto found = was.find(task.task);
    const bool same = found != was.end() && found->second->digest == task.digest;
    if (found == was.end()) {
      out.other_tasks.push_back(task.task + " is new");
      continue;
    }
    const TaskNight& then = *found->second;
    was.erase(found);
    if (!same) {
      out.other_tasks.push_back(task.task + " was changed");
      continue;
    }
    work.push_back({then.samples, task.samples});
    const auto rate_then = then.rate(), rate_now = task.rate();
    if (!rate_then || !rate_now) continue;
    const bool is_flaky = flaky.contains(task.task);
    if (is_flaky) out.flaky.push_back(task.task);
    rates.push_back({*rate_then, *rate_now, is_flaky ? kFlakyWeight : 1});
    if (*rate_now < *rate_then) fell.emplace_back(*rate_now - *rate_then, task.task);
    if (*rate_now > *rate_then) rose.emplace_back(*rate_now - *rate_then, task.task);
    add_pairs(then, task, lost, won);
    const double pace_then = mean_seconds(then), pace_now = mean_seconds(task);
    if (pace_then > 0 && pace_now > 0) paces.push_back({std::log(pace_then), std::log(pace_now)});
  }
  for (const auto& [name, task] : was) out.other_tasks.push_back(name + " is gone");
  out.difference = paired_difference(rates, confidence);
  out.pairs = mcnemar(lost, won);
  out.regressed = by_change(std::move(fell));
  out.improved = by_change(std::move(rose));
  const auto then = median_seconds(before), now = median_seconds(after);
  if (then && now && *then > 0) out.slowdown = *now / *then - 1;
  const auto pace = paired_difference(paces, confidence);
  out.is_slower = pace && pace->low > 0;
  out.work = compare_work(work, confidence);
  return out;
}

Json to_json(const NightComparison& c) {
  const auto& d = c.difference;
  return {{"dir", c.directory},
          {"model", c.model},
          {"points", d ? Json(d->points) : Json()},
          {"ci95", d ? Json({d->low95, d->high95}) : Json()},
          {"p_value", c.pairs.p_value},
          {"regressed", c.regressed},
          {"improved", c.improved},
          {"confidence", c.confidence},
          {"interval", d ? Json({d->low, d->high}) : Json()},
          {"regression", c.is_regression()},
          {"least_detectable", d ? Json(d->least_detectable) : Json()},
          {"tasks", d ? d->tasks : 0},
          {"mcnemar", {{"lost", c.pairs.lost}, {"won", c.pairs.won}}},
          {"flaky", c.flaky},
          {"not_compared", c.other_tasks},
          {"same_config", c.same_config},
          {"slowdown", number_or_null(c.slowdown)},
          {"work", to_json(c.work)}};
}

std::string verdict_of(const NightComparison& c) {
  if (!c.difference) return "nothing to compare: no task is the same and has a verdict in both";
  const auto& d = *c.difference;
  const auto interval =
      fmt::format("{:g} % interval {:+.1f} to {:+.1f}", c.confidence * 100, d.low * 100, d.high * 100);
  if (c.is_regression()) return fmt::format("worse by {:.1f} points ({})", -d.points * 100, interval);
  if (d.low > 0) return fmt::format("better by {:.1f} points ({})", d.points * 100, interval);
  return fmt::format("no sure difference: {:+.1f} points ({}); a loss of {:.1f} points or more would have been seen",
                     d.points * 100, interval, d.least_detectable * 100);
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1000) : format_seconds(seconds);
}

}  // namespace tandem::eval
