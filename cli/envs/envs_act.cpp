// `tandem envs exec` and `kill`: what operators do to one sandbox.
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_line.h"
#include "cli/command.h"
#include "cli/envs/envs_commands.h"
#include "cli/envs/fleet_view.h"
#include "envs/tools/output.h"

namespace tandem::cli {
namespace {

Status check_name(const std::string& sandbox) {
  if (envs::is_sandbox_id(sandbox)) return {};
  return Status::invalid(fmt::format("\"{}\" is not the name of a sandbox", sandbox))
      .hint("`tandem envs ls RUN` shows their names, like h2kq-17");
}

// A terminal is not steered by what a sandbox prints; a file or a pipe gets the bytes.
Status put(int descriptor, const std::string& bytes, const char* name) {
  return write_all(descriptor, ::isatty(descriptor) == 1 ? envs::make_printable(bytes) : bytes, name);
}

}  // namespace

Result<int> run_in_sandbox(const FleetTarget& target, const ExecOptions& options) {
  TRY(check_name(options.sandbox));
  size_t bytes = 0;
  for (const auto& word : options.command) bytes += word.size();
  if (options.command.size() > envs::kMostExecWords || bytes > envs::kMostExecBytes) {
    return fail(
        Status::invalid(fmt::format("the command has {} words of {} bytes; at most {} of {} are taken",
                                    options.command.size(), bytes, envs::kMostExecWords, envs::kMostExecBytes)));
  }
  auto client = TRY(FleetClient::open(target));
  envs::ExecQuery query{.sandbox = options.sandbox, .request = {}};
  query.request.argv = options.command;
  query.request.seconds = options.seconds;
  query.request.output_limit = options.output_bytes;
  // The server ends the command; the sandbox may take a while to begin it.
  const auto found = TRY(client.ask_owner<envs::ExecOutcome>(query, options.seconds + 20 + client.patience()));
  const envs::ExecOutcome& outcome = found.first;
  if (options.json) {
    fmt::print("{}\n", dump_json_line(Json{{"sandbox", options.sandbox},
                                           {"server", found.second->name()},
                                           {"exit_code", outcome.exit_code},
                                           {"timed_out", outcome.timed_out},
                                           {"truncated", outcome.truncated},
                                           {"seconds", outcome.seconds},
                                           {"output", outcome.output},
                                           {"errors", outcome.errors}}));
    return outcome.exit_code;
  }
  TRY(put(STDOUT_FILENO, outcome.output, "standard output"));
  TRY(put(STDERR_FILENO, outcome.errors, "standard error"));
  if (outcome.timed_out) fmt::print(stderr, "tandem envs: ended after its {:g} s\n", options.seconds);
  return outcome.exit_code;
}

Result<int> kill_sandbox(const FleetTarget& target, const KillOptions& options) {
  TRY(check_name(options.sandbox));
  auto client = TRY(FleetClient::open(target));
  const auto found =
      TRY(client.ask_owner<envs::Killed>(envs::FleetQuery(envs::KillQuery{options.sandbox}), client.patience()));
  const envs::SandboxRow& row = found.first.before;
  if (options.json) {
    fmt::print("{}\n", dump_json_line(to_json(SeenSandbox{found.second->name(), row})));
    return kDone;
  }
  const auto doing = row.doing.empty() ? "" : fmt::format(" ({})", envs::make_printable(row.doing));
  fmt::print("{} was {}{} and is ended\n", row.id, to_string(row.state), doing);
  if (row.holder.lease != 0) {
    fmt::print(
        "episode {} attempt {} ({}): what it asks of its sandbox fails from now on; infra_error, no reward, another "
        "attempt\n",
        row.holder.episode, row.holder.attempt, envs::make_printable(row.holder.task));
  }
  return kDone;
}

}  // namespace tandem::cli
