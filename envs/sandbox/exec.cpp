#include "envs/sandbox/exec.h"

#include <cstdlib>

#include "base/clock.h"
#include "envs/tools/paths.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_state.h"

namespace tandem::envs {

std::string encode(const ExecRequest& request) {
  std::string fields;
  put_number(fields, request.argv.size());
  for (const auto& word : request.argv) put_text(fields, word);
  put_seconds(fields, request.seconds);
  put_number(fields, request.output_limit);
  return fields;
}

Result<ExecRequest> decode_exec(FieldReader& fields) {
  ExecRequest request;
  for (uint64_t left = TRY(fields.number()); left > 0; --left) request.argv.push_back(TRY(fields.text()));
  if (request.argv.empty()) return fail(Status::corrupt("an exec without a program"));
  request.seconds = TRY(fields.seconds());
  request.output_limit = TRY(fields.number());
  return request;
}

namespace {

ExecOutcome run(const ExecRequest& request, const std::filesystem::path& root, const Session& session,
                const std::vector<std::string>& environment) {
  ProcessSpec spec;
  spec.argv = request.argv;
  ExecOutcome outcome;
  if (spec.argv[0].find('/') == std::string::npos) {
    spec.argv[0] = find_program(spec.argv[0]);
    if (spec.argv[0].empty()) {
      outcome.exit_code = 127;
      outcome.errors = request.argv[0] + ": there is no such program in the sandbox\n";
      return outcome;
    }
  }
  const ShellState& shell = session.shell;
  spec.directory =
      shell.directory.empty() || !can_start_in(shell.directory) ? root : std::filesystem::path(shell.directory);
  spec.environment = shell.environment.empty() ? environment : shell.environment;
  spec.time_limit_s = request.seconds;
  spec.output_limit = request.output_limit;
  spec.errors_apart = true;
  const SystemClock clock;
  const Time start = clock.now();
  auto result = run_process(spec);
  outcome.seconds = to_seconds(clock.now() - start);
  if (!result) {
    outcome.exit_code = 126;
    outcome.errors = result.error().message() + "\n";
    return outcome;
  }
  outcome.exit_code = result->exit_code;
  outcome.timed_out = result->timed_out;
  outcome.truncated = result->truncated;
  outcome.output = std::move(result->output);
  outcome.errors = std::move(result->errors);
  return outcome;
}

}  // namespace

std::string serve_exec(FieldReader& fields, const std::filesystem::path& root, const Session& session,
                       const std::vector<std::string>& environment) {
  const auto request = decode_exec(fields);
  if (!request) return "";
  const auto outcome = run(*request, root, session, environment);
  std::string reply;
  put_number(reply, static_cast<uint64_t>(outcome.exit_code));
  put_number(reply, (outcome.timed_out ? 1u : 0u) | (outcome.truncated ? 2u : 0u));
  put_number(reply, static_cast<uint64_t>(outcome.seconds * 1e6));
  put_text(reply, outcome.output);
  put_text(reply, outcome.errors);
  return reply;
}

Result<ExecOutcome> decode_exec_answer(std::string_view reply) {
  if (reply.empty())
    return fail(
        Status::unavailable("the command was ended before it was done: files were collected, or memory ran out"));
  FieldReader fields(reply);
  ExecOutcome outcome;
  outcome.exit_code = static_cast<int>(TRY(fields.number()));
  const auto flags = TRY(fields.number());
  outcome.timed_out = (flags & 1) != 0;
  outcome.truncated = (flags & 2) != 0;
  outcome.seconds = static_cast<double>(TRY(fields.number())) / 1e6;
  outcome.output = TRY(fields.text());
  outcome.errors = TRY(fields.text());
  return outcome;
}

}  // namespace tandem::envs
