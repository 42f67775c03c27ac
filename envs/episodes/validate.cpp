#include "envs/episodes/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/clock.h"
#include "envs/tasks/cheats.h"
#include "envs/tasks/needs.h"
#include "envs/tasks/task_set.h"

namespace tandem::envs {
namespace {

constexpr std::array<std::string_view, 4> kVerdicts = {"passed", "failed", "unfit", "error"};

bool is_there(const Solution& solution) { return !solution.turns.empty() || !solution.answer.empty(); }

bool has_solution(const Task& task) {
  if (task.steps.empty()) return is_there(task.solution);
  return std::all_of(task.steps.begin(), task.steps.end(),
                     [](const TaskStep& step) { return is_there(step.solution); });
}

// In any of its steps.
bool has_use_for(Cheat cheat, const Task& task) {
  if (task.steps.empty()) return applies_to(cheat, task);
  Task step = task;
  for (size_t i = 0; i < task.steps.size(); ++i) {
    step.begin_step(i);
    if (applies_to(cheat, step)) return true;
  }
  return false;
}

// The first script of a solution with line ends that bash stumbles over; "" where none has.
std::string windows_script_of(const Task& task) {
  const auto found_in = [](const Solution& solution) -> std::string {
    for (const auto& [path, content] : solution.files) {
      if (path.ends_with(".sh") && content.find("\r\n") != std::string::npos) return path.substr(path.rfind('/') + 1);
    }
    return "";
  };
  auto found = found_in(task.solution);
  for (const auto& step : task.steps) {
    if (found.empty()) found = found_in(step.solution);
  }
  return found;
}

// Attempts of one task, until one of them cannot be made.
class Trial {
 public:
  Trial(const Task& task, SandboxBackend& backend, const EpisodeOptions& options, Validation& validation)
      : task_(task), backend_(backend), options_(options), validation_(validation) {}

  Status run() {
    TRY(check_needs(task_, installs_python(options_)));
    for (int i = 0; i < validation_.repeats && validation_.findings.empty(); ++i) {
      const auto grade = TRY(graded("the solution", play_solution(task_, backend_, options_)));
      if (grade && grade->reward != 1) {
        const auto windows = windows_script_of(task_);
        found(fmt::format(
            "the solution scores {}{}: {}{}", grade->reward, again(i), grade->why,
            windows.empty() ? ""
                            : fmt::format("; {} has line ends of Windows (CRLF), which bash does not read", windows)));
      }
    }
    // Tests that give no verdict on the solution can give nothing else.
    if (!validation_.findings.empty() && no_verdicts_) return {};
    const size_t before = validation_.findings.size();
    for (int i = 0; i < validation_.repeats && validation_.findings.size() == before; ++i) {
      const auto grade = TRY(graded("doing nothing", play(std::nullopt)));
      if (grade && grade->reward != 0) found(fmt::format("doing nothing scores {}{}", grade->reward, again(i)));
    }
    for (const Cheat cheat : kCheats) {
      if (!has_use_for(cheat, task_)) continue;
      const auto grade = TRY(without_verdict(play(cheat)));
      if (grade && grade->reward != 0) {
        found(fmt::format("the cheat {} scores {}: {}", to_string(cheat), grade->reward, advice(cheat)));
      }
    }
    return {};
  }

 private:
  static std::string again(int i) {
    return i == 0 ? "" : fmt::format(" the {}. time, though not before: its check is not stable", i + 1);
  }

  // Nothing where the tests gave no verdict: whoever is responsible, there is no reward.
  static Result<std::optional<Grade>> without_verdict(Result<Grade> grade) {
    if (grade) return std::move(*grade);
    if (grade.error().code() == Code::kInvalid) return std::nullopt;
    return fail(grade.error());
  }

  // The same, and that is a finding.
  Result<std::optional<Grade>> graded(const char* who, Result<Grade> grade) {
    if (!grade && grade.error().code() == Code::kInvalid) {
      found(fmt::format("{} gets {}", who, grade.error().message()));
      no_verdicts_ = true;
    }
    return without_verdict(std::move(grade));
  }

  void found(std::string what) { validation_.findings.push_back(std::move(what)); }

  // In every step of the task.
  Result<Grade> play(std::optional<Cheat> cheat) {
    auto episode = TRY(Episode::open(task_, backend_, options_));
    do {
      const auto commands = cheat ? commands_of(*cheat, episode->task()) : std::vector<std::string>();
      for (const auto& command : commands) TRY(episode->call("run_terminal_cmd", {{"command", command}}));
    } while (TRY(episode->next_step("")));
    return episode->score("");
  }

  const Task& task_;
  SandboxBackend& backend_;
  const EpisodeOptions& options_;
  Validation& validation_;
  bool no_verdicts_ = false;
};

}  // namespace

std::string_view to_string(Verdict verdict) { return kVerdicts[static_cast<size_t>(verdict)]; }

Result<Grade> play_solution(const Task& task, SandboxBackend& backend, const EpisodeOptions& options) {
  if (!has_solution(task)) return fail(Status::invalid("the task has no solution to play"));
  auto episode = TRY(Episode::open(task, backend, options));
  std::string answer;
  do {
    const auto& solution = episode->task().solution;
    TRY(episode->put(solution.files));
    for (const auto& turn : solution.turns) {
      std::vector<ParsedCall> calls;
      for (const auto& call : turn) calls.push_back({call, ""});
      TRY(episode->turn(calls));
      if (episode->over()) break;
    }
    answer = solution.answer;
  } while (TRY(episode->next_step(answer)));
  return episode->score(answer);
}

Validation validate(const Task& task, SandboxBackend& backend, int repeats, const EpisodeOptions& options) {
  Validation validation{.name = task.name.empty() ? task.spec.id() : task.name,
                        .kind = task.spec.kind,
                        .digest = digest_of_task(task),
                        .repeats = repeats,
                        .findings = {},
                        .packages = options.packages ? options.packages->identity() : ""};
  const SystemClock clock;
  const Time start = clock.now();
  if (!has_solution(task)) validation.findings.push_back("it has no solution, so nothing shows that it can be solved");
  const Status status = has_solution(task) ? Trial(task, backend, options, validation).run() : Status();
  if (!status.ok()) {
    validation.verdict = status.code() == Code::kUnfit     ? Verdict::kUnfit
                         : status.code() == Code::kInvalid ? Verdict::kFailed
                                                           : Verdict::kError;
    validation.findings.push_back(status.message());
  } else if (!validation.findings.empty()) {
    validation.verdict = Verdict::kFailed;
  }
  validation.seconds = to_seconds(clock.now() - start);
  return validation;
}

Json to_json(const Validation& v) {
  Json json = {{"name", v.name},         {"kind", v.kind},       {"verdict", to_string(v.verdict)},
               {"findings", v.findings}, {"repeats", v.repeats}, {"seconds", v.seconds},
               {"digest", v.digest}};
  if (!v.packages.empty()) json["packages"] = v.packages;
  return json;
}

Result<Validation> validation_from_json(const Json& json) {
  TRY(check_keys(json, {"name", "kind", "verdict", "findings", "repeats", "seconds", "digest", "packages"}));
  try {
    Validation v{.name = json.at("name").get<std::string>(),
                 .kind = json.at("kind").get<std::string>(),
                 .digest = json.at("digest").get<std::string>(),
                 .repeats = json.at("repeats").get<int>(),
                 .findings = json.at("findings").get<std::vector<std::string>>(),
                 .seconds = json.at("seconds").get<double>(),
                 .packages = json.value("packages", "")};
    const auto verdict = std::find(kVerdicts.begin(), kVerdicts.end(), json.at("verdict").get<std::string>());
    if (verdict == kVerdicts.end()) return fail(Status::invalid("\"verdict\" is none of passed, failed, unfit, error"));
    v.verdict = static_cast<Verdict>(verdict - kVerdicts.begin());
    return v;
  } catch (const Json::exception& error) {
    return fail(Status::invalid(error.what()));
  }
}

}  // namespace tandem::envs
