// run_terminal_cmd: a command line for bash, each call a shell of its own in the workspace.
#include <cstdio>

#include "envs/tools/functions.h"
#include "envs/tools/paths.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

std::string seconds_text(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g", seconds);
  return text;
}

}  // namespace

std::vector<std::string> clean_environment(const ToolContext& context) {
  if (!context.environment.empty()) return context.environment;
  return {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
          "HOME=" + context.root.string(),
          "LANG=C.UTF-8",
          "TERM=dumb",
          "PAGER=cat",
          "PYTHONDONTWRITEBYTECODE=1"};  // running a script is not a change of the workspace
}

ToolOutcome tool_run_terminal_cmd(const ToolContext& context, const Json& arguments) {
  const auto command = arguments.at("command").get<std::string>();
  const bool background = arguments.contains("is_background") && arguments.at("is_background").get<bool>();
  if (command.find_first_not_of(" \t\n") == std::string::npos) return ToolOutcome::refused("the command is empty");
  if (command.find('\0') != std::string::npos) return ToolOutcome::refused("the command has a zero byte in it");
  const auto bash = find_program("bash");
  ProcessSpec spec;
  spec.argv = bash.empty() ? std::vector<std::string>{"/bin/sh", "-c", command}
                           : std::vector<std::string>{bash, "--noprofile", "--norc", "-c", command};
  spec.directory = context.root;
  spec.environment = clean_environment(context);
  spec.time_limit_s = context.time_limit_s;
  spec.output_limit = context.output_limit;
  if (background) {
    if (!context.allow_background) return ToolOutcome::refused("background commands are not available here");
    const auto process = start_process(spec);
    if (!process) return ToolOutcome::refused(process.error().message());
    return ToolOutcome::done("Started in the background, process " + std::to_string(*process) +
                             ". Its output is discarded unless the command redirects it.");
  }
  const auto before = fingerprint(context.root);
  auto result = run_process(spec);
  if (!result) return ToolOutcome::refused(result.error().message());
  ToolOutcome outcome = ToolOutcome::done(std::move(result->output));
  outcome.exit_code = result->exit_code;
  outcome.truncated = result->truncated;
  outcome.changed_files = fingerprint(context.root) != before;
  if (!outcome.output.empty() && outcome.output.back() != '\n') outcome.output += '\n';
  if (result->timed_out) {
    outcome.output += "[ended after the time limit of " + seconds_text(context.time_limit_s) + " s]\n";
  } else if (result->exit_code != 0) {
    outcome.output += "[exit code " + std::to_string(result->exit_code) + "]\n";
  } else if (outcome.output.empty()) {
    outcome.output = "[no output]\n";
  }
  return outcome;
}

}  // namespace tandem::envs
