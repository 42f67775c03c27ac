#include "dashboard/summary.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/record_log.h"
#include "dashboard/heldout.h"

namespace tandem::dashboard {

namespace {

// A counter that starts again from zero when its process does: what it counted over all of its lives.
class Counter {
 public:
  void observe(double value) {
    total_ += value >= last_ ? value - last_ : value;
    last_ = value;
  }
  double total() const { return total_; }

 private:
  double last_ = 0, total_ = 0;
};

// Figures that are no counters.
constexpr std::array<std::string_view, 9> kLevels = {"version",    "pause_ms",     "max_pause_ms",
                                                     "episodes",   "live",         "waiting",
                                                     "full_bytes", "trajectories", "max_abs_logprob_diff"};

// The last word of each role, from the coordinator's last report, in the form of a line of metrics.jsonl: what was done
// after the last step (held-out tasks, the export) is only there.
Json last_words(const Json& report) {
  Json line = Json::object();
  const Json roles = report.value("roles", Json::object());
  for (const auto& [name, role] : roles.items()) {
    const Json metrics = role.value("metrics", Json());
    if (name == "trainer-0")
      line["trainer"] = metrics;
    else
      line["roles"][name] = metrics;
  }
  return line;
}

bool is_level(std::string_view key) { return std::find(kLevels.begin(), kLevels.end(), key) != kLevels.end(); }

// Whether a role said `metrics` before `last`: a counter is smaller.
bool is_older(const Json& metrics, const Json& last) {
  if (!metrics.is_object() || !last.is_object()) return false;
  for (const auto& [key, value] : metrics.items()) {
    const auto known = last.find(key);
    if (is_level(key) || known == last.end() || !value.is_number() || !known->is_number()) continue;
    if (value.get<double>() < known->get<double>()) return true;
  }
  return false;
}

// A report may be of a moment before the last step: what a role said there is not its last word then, and what counts
// down would be taken for a restart.
Json without_older(Json words, const Json& last_step) {
  if (words.contains("trainer") && is_older(words["trainer"], last_step.value("trainer", Json())))
    words.erase("trainer");
  const Json known = last_step.value("roles", Json::object());
  Json roles = Json::object();
  const Json said = words.value("roles", Json::object());
  for (const auto& [name, metrics] : said.items()) {
    if (!is_older(metrics, known.value(name, Json()))) roles[name] = metrics;
  }
  words["roles"] = roles;
  return words;
}

// The figures of every role, restarts bridged: counters summed, maxima kept.
Json roles_over_the_run(std::vector<Json> steps, const Json& supervisor) {
  if (supervisor.contains("last_report") && supervisor["last_report"].is_object()) {
    const Json last_step = steps.empty() ? Json::object() : steps.back();
    steps.push_back(without_older(last_words(supervisor["last_report"]), last_step));
  }
  std::map<std::string, std::map<std::string, Counter>> counters;
  std::map<std::string, std::map<std::string, double>> most;
  for (const Json& line : steps) {
    Json reporting = line.value("roles", Json::object());
    if (const auto trainer = line.find("trainer"); trainer != line.end()) reporting["trainer"] = *trainer;
    for (const auto& [name, metrics] : reporting.items()) {
      if (!metrics.is_object()) continue;
      for (const auto& [key, value] : metrics.items()) {
        if (!value.is_number()) continue;
        counters[name][key].observe(value.get<double>());
        double& maximum = most[name][key];
        maximum = std::max(maximum, value.get<double>());
      }
    }
  }
  Json roles = Json::object();
  for (const auto& [name, keys] : counters) {
    for (const auto& [key, counter] : keys) {
      roles[name][key] = is_level(key) ? most[name][key] : counter.total();
    }
  }
  return roles;
}

// Every trajectory says under which kernels it was sampled; the first is enough.
std::string numerics_id_of(const RunFiles& run) {
  std::string id;
  (void)read_log(run.dir / "trajectories" / "episodes.log", [&](std::string_view record, uint64_t) -> Status {
    id = TRY(parse_json(record.substr(0, record.find('\n')))).value("numerics_id", "");
    return Status::cancelled("seen enough");
  });
  return id;
}

Json rate_of(double busy, double idle) { return busy + idle > 0 ? Json(busy / (busy + idle)) : Json(); }

// Shares of the time between the first and the last step; of environments, of all their threads; of cores, what engines
// and trainer used of all processors.
Json utilisation_of(const RunFiles& run, const Json& roles, const Json& seconds) {
  double engine_busy = 0, engine_idle = 0, env_busy = 0, env_threads = 0, computed = 0;
  const double threads = number_at(run.config.value("env", Json::object()), "threads");
  for (const auto& [name, metrics] : roles.items()) {
    const Json phases = seconds.value(name, Json::object());
    if (metrics.contains("engine_steps")) {
      engine_busy += number_at(phases, "generate");
      engine_idle += number_at(phases, "idle");
    }
    if (metrics.contains("engine_steps") || metrics.contains("train_seconds"))
      computed += number_at(metrics, "cpu_seconds");
    if (metrics.contains("busy_seconds")) {
      env_busy += number_at(metrics, "busy_seconds");
      env_threads += threads;
    }
  }
  const Json trainer = seconds.value("trainer", Json::object());
  const double trained = number_at(trainer, "train") + number_at(trainer, "sync") + number_at(trainer, "save");
  const double elapsed = run.steps.empty() ? 0 : number_at(roles.value("trainer", Json::object()), "wall_seconds");
  const double processors = elapsed * number_at(run.supervisor, "cores");
  return {{"engine", rate_of(engine_busy, engine_idle)},
          {"env", elapsed > 0 && env_threads > 0 ? Json(std::min(1.0, env_busy / (elapsed * env_threads))) : Json()},
          {"trainer", rate_of(trained, number_at(trainer, "idle"))},
          {"cores", processors > 0 && computed > 0 ? Json(std::min(1.0, computed / processors)) : Json()}};
}

}  // namespace

Json phases_of(const Json& metrics) {
  static constexpr std::array<std::pair<const char*, const char*>, 9> kPhases = {{{"forward_seconds", "generate"},
                                                                                  {"sample_seconds", "generate"},
                                                                                  {"tool_seconds", "tools"},
                                                                                  {"busy_seconds", "tools"},
                                                                                  {"train_seconds", "train"},
                                                                                  {"fetch_seconds", "sync"},
                                                                                  {"sync_seconds", "sync"},
                                                                                  {"save_seconds", "save"},
                                                                                  {"idle_seconds", "idle"}}};
  Json phases = Json::object();
  for (const auto& [key, phase] : kPhases) {
    if (const auto value = maybe_number_at(metrics, key)) phases[phase] = number_at(phases, phase) + *value;
  }
  return phases;
}

namespace {

// Each alarm once, as it was said last, with the steps at which it was.
Json alarms_of(const std::vector<Json>& steps) {
  std::map<std::string, Json> by_name;
  for (const Json& line : steps) {
    const auto alarms = line.find("alarms");
    if (alarms == line.end() || !alarms->is_array()) continue;
    for (const Json& alarm : *alarms) {
      if (!alarm.is_object()) continue;
      Json& known = by_name[alarm.value("name", std::string())];
      Json at = known.is_object() ? known["steps"] : Json::array();
      at.push_back(static_cast<uint64_t>(number_at(line, "step")));
      known = alarm;
      known["steps"] = std::move(at);
    }
  }
  Json list = Json::array();
  for (auto& [name, alarm] : by_name) list.push_back(std::move(alarm));
  return list;
}

}  // namespace

Json summarise(const RunFiles& run) {
  const rollout::Ledger& ledger = run.ledger;
  const Json roles = roles_over_the_run(run.steps, run.supervisor);
  Json s;
  s["run_id"] = fs::weakly_canonical(run.dir).filename().string();
  s["exit"] = Json();
  s["steps"] = ledger.steps_trained();
  s["wall_seconds"] = run.status.contains("wall_seconds") ? run.status["wall_seconds"]
                      : run.steps.size() > 1
                          ? Json(number_at(run.steps.back(), "time") - number_at(run.steps.front(), "time"))
                          : Json();
  s["numerics_id"] = run.supervisor.contains("numerics_id") ? Json() : Json(numerics_id_of(run));
  s["heldout"] = describe_heldout(run.totals.heldout, ledger.plan().kinds, run.floors);

  const rollout::Books books = ledger.books();
  s["episodes"] = {{"admitted", books.admitted},
                   {"trained", books.trained},
                   {"dropped", books.dropped},
                   {"in_flight", books.in_flight}};
  for (const std::string_view name : rollout::kOutcomeNames) s["outcomes"][std::string(name)] = 0;
  for (const auto& [outcome, count] : run.totals.outcomes)
    s["outcomes"][std::string(rollout::to_string(outcome))] = count;

  double trained = 0, compared = 0, difference = 0;
  for (const Json& line : run.steps) {
    trained += number_at(line, "trained_tokens");
    compared += number_at(line, "compared_tokens");
    difference = std::max(difference, number_at(line, "max_abs_logprob_diff"));
  }
  s["logprob"] = {{"max_abs_diff", compared > 0 ? Json(difference) : Json()},
                  {"tokens_compared", static_cast<uint64_t>(compared)}};
  s["tokens"] = {{"prompt", run.totals.prompt_tokens},
                 {"generated", run.totals.sampled_tokens},
                 {"trained", static_cast<uint64_t>(trained)}};

  s["terms"] = run.steps.empty() ? Json() : run.steps.back().value("terms", Json());
  s["judge"] = run.steps.empty() ? Json() : run.steps.back().value("judge", Json());

  s["failures"] = run.failures;
  s["alarms"] = alarms_of(run.steps);

  double versions = 0, sent = 0, full = 0, pause = 0;
  std::optional<double> core_seconds;
  Json seconds = Json::object();
  for (const auto& [name, metrics] : roles.items()) {
    versions = std::max(versions, number_at(metrics, "version"));
    sent += number_at(metrics, "sent_bytes");
    full = std::max(full, number_at(metrics, "full_bytes"));
    pause = std::max(pause, number_at(metrics, "max_pause_ms"));
    if (const auto used = maybe_number_at(metrics, "cpu_seconds")) core_seconds = core_seconds.value_or(0) + *used;
    if (Json phases = phases_of(metrics); !phases.empty()) seconds[name] = std::move(phases);
  }
  s["weights"] = {{"versions", static_cast<uint64_t>(versions)},
                  {"full_bytes", static_cast<uint64_t>(full)},
                  {"sent_bytes", static_cast<uint64_t>(sent)},
                  {"max_pause_ms", pause}};
  s["utilisation"] = utilisation_of(run, roles, seconds);
  s["cost"] = {{"core_seconds", core_seconds ? Json(*core_seconds) : Json()}};
  s["steals"] = run.totals.steals;
  s["retokenised_turns"] = run.totals.retokenised_turns;
  s["compactions"] = run.totals.compactions;
  if (run.totals.branches > 0) {
    s["branches"] = {{"episodes", run.totals.branches},
                     {"inherited_tokens", run.totals.inherited_tokens},
                     {"inherited_calls", run.totals.inherited_calls}};
  }
  s["restarts"] = run.status.value("restarts", Json::object());
  s["seconds"] = std::move(seconds);
  // The supervisor saw the processes; where it says something, it knows better.
  for (const auto& [key, value] : run.supervisor.items()) {
    if (key == "last_report") continue;
    if (value.is_object() && s.contains(key) && s[key].is_object()) {
      for (const auto& [part, figure] : value.items()) s[key][part] = figure;
    } else {
      s[key] = value;
    }
  }
  return s;
}

}  // namespace tandem::dashboard
