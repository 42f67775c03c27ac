// Files of evaluations that somebody else wrote, and what a model may have done in one.
#include "eval/cheats.h"
#include "eval/identity.h"
#include "eval/outcome_files.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

// Everything that is made of another night's results.
void judge(const eval::Night& night) {
  eval::Verdict verdict{.night = night};
  verdict.summary = eval::summarize(night, {.sample_hour = 1});
  verdict.against = eval::compare(night, night, 0.95);
  verdict.gates = eval::check_gates(
      {.max_slowdown = 1, .max_growth = 1, .max_new_lints_increase = 1, .max_tests_touched_increase = 1},
      verdict.summary, &*verdict.against, nullptr);
  verdict.history = {eval::history_line("n", night, verdict.summary, verdict.against, 0)};
  eval::junit_xml(verdict);
  eval::report_markdown(verdict);
  eval::report_page(verdict, [](const eval::SampleResult&) { return Json(); });
  dump_json(eval::results_json(verdict));
}

// The first byte says which file it is.
void eval_files(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto json = parse_json(bytes.substr(1));
  if (!json) return;
  if (bytes[0] == '0') {
    if (const auto night = eval::night_from_json(*json)) judge(*night);
  } else if (bytes[0] == '1') {
    if (const auto line = eval::history_line_from_json(*json)) eval::flaky_tasks({*line, *line});
  } else if (bytes[0] == '2') {
    if (const auto identity = eval::identity_from_json(*json)) eval::night_of(*identity, {});
  } else {
    eval::terms_from_json(*json).has_value();
  }
}

std::vector<std::string> eval_files_seeds() {
  eval::SampleResult sample{.task = "t", .outcome = rollout::Outcome::kCompleted, .reward = 1};
  sample.seconds = 1;
  sample.diff = {.files = 2, .lines_added = 3, .new_lints = 1, .linted_files = 1};
  eval::Night night{.suite = "s", .samples_wanted = 2, .tasks = {{"t", "k", "d", {sample, sample}}}};
  eval::Identity identity{.suite = "s", .tasks = {{"t", "k", "d"}}};
  const auto summary = eval::summarize(night, {});
  return {"0" + dump_json(eval::to_json(night)),
          "1" + dump_json(eval::to_json(eval::history_line("n", night, summary, {}, 0))),
          "2" + dump_json(eval::to_json(identity)), "3" + dump_json(eval::to_json(eval::Terms{}))};
}

// A command line, and a patch.
void eval_cheats(std::string_view bytes) {
  envs::Task task;
  task.files = {{"tests/test_a.py", "assert True"}};
  rollout::AgentRecord record;
  for (const auto& [name, key] : {std::pair("run_terminal_cmd", "command"), std::pair("apply_patch", "input")}) {
    rollout::AgentRound round;
    round.turn.calls.push_back({{name, {{key, std::string(bytes)}}}, "", ""});
    round.outcomes.emplace_back();
    record.rounds.push_back(std::move(round));
  }
  eval::cheats_in(task, record);
}

std::vector<std::string> eval_cheats_seeds() {
  return {"cd . && git log --all; rm -rf tests > /dev/null 2>&1 | sed -i 's/a/b/' tests/test_a.py",
          "git " + std::string(200'000, ' ') + "fetch",
          "*** Begin Patch\n*** Update File: tests/test_a.py\n-assert True\n+pass\n*** End Patch\n",
          "cat > 'a b' <<E\nos._exit" + std::string(200'000, ' ') + "(0)\nE"};
}

constexpr Target kEvalTargets[] = {{"eval_files", eval_files, eval_files_seeds},
                                   {"eval_cheats", eval_cheats, eval_cheats_seeds}};

}  // namespace

std::span<const Target> eval_targets() { return kEvalTargets; }

}  // namespace tandem::fuzz
