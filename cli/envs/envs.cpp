// `tandem envs`: the sandboxes of living environment servers, for operators and scripts.
#include <fmt/format.h>

#include <memory>

#include "base/json_line.h"
#include "cli/command.h"
#include "cli/envs/envs_commands.h"
#include "cli/envs/fleet_view.h"
#include "run/layout.h"

namespace tandem::cli {
namespace {

struct EnvsOptions {
  FleetTarget target;
  bool json = false;
  LogsOptions logs;
  ExecOptions exec;
  KillOptions kill;
  TopOptions top;
};

Result<int> list_sandboxes(const FleetTarget& target, bool json) {
  auto client = TRY(FleetClient::open(target));
  std::vector<SeenSandbox> seen;
  const auto run = target.run.empty() ? "" : run::name_of_run(target.run);
  Status trouble;
  size_t answered = 0;
  for (auto& line : client.lines()) {
    auto rows = client.rows(line);
    if (!rows) {
      if (client.lines().size() > 1) fmt::print(stderr, "tandem envs: {}\n", rows.error().to_string());
      trouble = rows.error();
      continue;
    }
    ++answered;
    for (auto& row : *rows) {
      const auto& of_run = row.holder.run;  // empty: it is kept ready, or the server has one run
      if (run.empty() || of_run.empty() || of_run == run) seen.push_back({line.name(), std::move(row)});
    }
  }
  if (answered == 0) return fail(std::move(trouble));
  if (json) {
    for (const auto& each : seen) fmt::print("{}\n", dump_json_line(to_json(each)));
  } else if (seen.empty()) {
    fmt::print(stderr, "there are no sandboxes now\n");
  } else {
    fmt::print("{}", table_of(seen));
  }
  return trouble ? kDone : kIncomplete;
}

}  // namespace

Action add_envs(CLI::App& command) {
  const auto options = std::make_shared<EnvsOptions>();
  command.require_subcommand(1);
  command.footer(
      "RUN is a run that is on; its environment servers are found through its directory. A host that serves many runs\n"
      "is also asked by --endpoint and --key, without a run. docs/environments.md shows each of them at work.\n\n"
      "Example:\n"
      "  tandem envs ls runs/tiny-1\n"
      "  tandem envs ls --endpoint tcp://10.0.0.5:7070 --key ~/tandem.key\n"
      "  tandem envs exec runs/tiny-1 h2kq-17 -- ps aux");
  const auto add = [&](const char* name, const char* summary) {
    auto* sub = command.add_subcommand(name, summary);
    sub->add_option("RUN", options->target.run, "The run directory");
    sub->add_option(
           "--endpoint", options->target.endpoints,
           "A server in place of those of the run: tcp://HOST:PORT or ipc://PATH; may be repeated. Of a host of many "
           "runs all is shown where RUN is left out")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    sub->add_option("--key", options->target.key, "File with the key of hosts; the run's env.key by default")
        ->check(CLI::ExistingFile);
    sub->add_option("--timeout", options->target.patience, "Seconds for a server to answer")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
    return sub;
  };
  constexpr const char* kCodes = "Exit code 0: done; 1: no server is alive, or none knows the sandbox; 2: usage.";

  auto* list = add("ls", "List the sandboxes: whose they are, what they do, what they use");
  list->add_flag("--json", options->json, "Print a JSON object a line");
  list->footer(
      "States: warm (kept ready, nobody's), leased (an episode's, between calls), calling (a call runs in it), "
      "grading\n"
      "(tests run in it), draining (ended, not yet let go). `lease` is what is left of it where nobody asks about the\n"
      "episode; memory is what its processes and its files in memory take.\n"
      "Exit code 0: done; 1: no server is alive; 2: usage; 5: some servers did not answer.\n\n"
      "Example:\n"
      "  tandem envs ls runs/tiny-1\n"
      "  tandem envs ls runs/tiny-1 --json | jq -r 'select(.memory_bytes > 1e9) | .sandbox'");
  auto* logs = add("logs", "What the server recorded about a sandbox, or about all");
  logs->add_option("SANDBOX", options->logs.sandbox, "As `ls` names it; all by default");
  logs->add_option("-n,--lines", options->logs.lines, "Number of last events to print")
      ->check(CLI::Range(0, static_cast<int>(envs::Fleet::kMostEvents)))
      ->capture_default_str();
  logs->add_flag("-f,--follow", options->logs.follow, "Follow new events, until Ctrl-C or the server ends");
  logs->add_flag("--json", options->logs.json, "Print a JSON object a line");
  logs->footer(
      fmt::format("Made, leased, each call with its tool, time and exit code, killed, ended. The server keeps the last "
                  "{} events of\n"
                  "all its sandboxes; what a call said or printed is not among them.\n{}\n\n"
                  "Example:\n"
                  "  tandem envs logs runs/tiny-1 h2kq-17\n"
                  "  tandem envs logs runs/tiny-1 --follow --json",
                  envs::Fleet::kMostEvents, kCodes));
  auto* exec = add("exec", "Run a command in a sandbox, beside what runs in it");
  exec->add_option("SANDBOX", options->exec.sandbox, "As `ls` names it")->required();
  exec->add_option("COMMAND", options->exec.command, "A program and its arguments, after --")->required();
  exec->add_option("--seconds", options->exec.seconds, "Then it is ended")
      ->check(CLI::Range(0.01, envs::kLongestExec))
      ->capture_default_str();
  exec->add_option("--output-bytes", options->exec.output_bytes, "Most bytes of its output, and of its errors")
      ->check(CLI::Range(uint32_t{1}, envs::kMostExecOutput))
      ->capture_default_str();
  exec->add_flag("--json", options->exec.json, "Print {sandbox, exit_code, timed_out, truncated, output, errors, ..}");
  exec->footer(
      "The command starts where the episode's shell is, with its variables, and shares files, processes and limits "
      "with\n"
      "it; the shell stays as it was, and neither the model nor the trajectory sees it. What it leaves running is "
      "ended.\n"
      "It is no shell: name one for pipes and the like. No input.\n"
      "Exit code: the command's; 124: its time was up; 127: there is no such program; 1, with a line on stderr: no\n"
      "server is alive, or none knows the sandbox; 2: usage.\n\n"
      "Example:\n"
      "  tandem envs exec runs/tiny-1 h2kq-17 -- ls -la\n"
      "  tandem envs exec runs/tiny-1 h2kq-17 --seconds 60 -- bash -c 'du -sh . | cut -f1'");
  auto* kill = add("kill", "End a sandbox at once");
  kill->add_option("SANDBOX", options->kill.sandbox, "As `ls` names it")->required();
  kill->add_flag("--json", options->kill.json, "Print it as it was, as a line of `ls --json`");
  kill->footer(
      fmt::format("All its processes are ended. An episode that has it ends as infra_error, which is no reward of "
                  "zero, and is tried\n"
                  "again; one that was kept ready is replaced.\n{}\n\n"
                  "Example:\n"
                  "  tandem envs kill runs/tiny-1 h2kq-17",
                  kCodes));
  auto* top = add("top", "How fast sandboxes come and go, and what they do, each second");
  top->add_option("--seconds", options->top.seconds, "Then it ends; 0: not before Ctrl-C")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  top->add_flag("--once", options->top.once, "Once, in a line");
  top->add_flag("--json", options->top.json, "Print a JSON object a server and second");
  top->footer(
      "On a terminal: figures and sandboxes, drawn anew each second. Else a line a second. Spawns a second are those "
      "of\n"
      "the last 10 s, p50 and p99 of the last 1024; `given warm` is the share of sandboxes that were ready when they\n"
      "were wanted; kills are of sandboxes (operator, lost, deadline, idle) and of calls (time_limit, memory).\n"
      "Exit code 0: done; 1: no server is alive (any more); 2: usage; 5: some servers did not answer --once.\n\n"
      "Example:\n"
      "  tandem envs top runs/tiny-1\n"
      "  tandem envs top runs/tiny-1 --seconds 60 --json > fleet.jsonl");

  return [=]() -> Result<int> {
    if (top->parsed()) return show_top(options->target, options->top);
    if (exec->parsed()) return run_in_sandbox(options->target, options->exec);
    if (kill->parsed()) return kill_sandbox(options->target, options->kill);
    if (logs->parsed()) return show_logs(options->target, options->logs);
    return list_sandboxes(options->target, options->json);
  };
}

}  // namespace tandem::cli
