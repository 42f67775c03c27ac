// run_terminal_cmd: a command line for bash. Each call has a shell of its own, which starts where the last one ended.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/file.h"
#include "envs/tools/functions.h"
#include "envs/tools/output.h"
#include "envs/tools/paths.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_state.h"

namespace tandem::envs {
namespace {

std::string seconds_text(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g", seconds);
  return text;
}

// Whether a shell that has `after` differs from one that was started by `before`, PWD left aside: bash sets it anyway.
bool differs(const ProcessSpec& before, const ShellState& after) {
  const auto sorted = [](std::vector<std::string> settings) {
    std::erase_if(settings, [](const auto& setting) { return setting.starts_with("PWD="); });
    std::sort(settings.begin(), settings.end());
    return settings;
  };
  return after.directory != before.directory || sorted(after.environment) != sorted(before.environment);
}

// Whether a program says that it reached nobody: names that cannot be resolved, routes that are not there. Where the
// command `has_failed` more counts as that.
bool misses_network(std::string_view output, bool has_failed) {
  constexpr std::string_view kPlain[] = {"Temporary failure in name resolution", "Could not resolve host",
                                         "getaddrinfo ENOTFOUND", "getaddrinfo EAI_AGAIN",
                                         "unable to resolve host address"};
  constexpr std::string_view kOfFailures[] = {"Name or service not known",
                                              "could not resolve host",
                                              "Temporary failure resolving",
                                              "Network is unreachable",
                                              "Failed to establish a new connection",
                                              "failed to lookup address information",
                                              "no such host",
                                              "dial tcp",
                                              "EAI_AGAIN",
                                              "ENOTFOUND",
                                              "ENETUNREACH",
                                              "UnknownHostException",
                                              "nodename nor servname provided",
                                              "No matching distribution found",
                                              "npm error network",
                                              "npm ERR! network"};
  const auto is_said = [&](std::string_view words) { return output.find(words) != std::string_view::npos; };
  return std::any_of(std::begin(kPlain), std::end(kPlain), is_said) ||
         (has_failed && std::any_of(std::begin(kOfFailures), std::end(kOfFailures), is_said));
}

// Whether the exit code of a command line may be that of another program than one in it that fetches something.
bool may_hide_failure(std::string_view command) {
  constexpr std::string_view kFetchers[] = {"pip",  "pipx", "uv",  "uvx",     "npm",  "npx",   "yarn",  "pnpm",
                                            "curl", "wget", "git", "apt-get", "apt",  "cargo", "go",    "gem",
                                            "mvn",  "pip3", "bun", "gradle",  "deno", "conda", "bundle"};
  if (command.find_first_of("|;&\n$`") == std::string_view::npos) return false;
  for (size_t at = 0; at < command.size();) {
    const auto ends = " \t\n|;&()`\"'/";
    const size_t end = std::min(command.find_first_of(ends, at), command.size());
    if (std::ranges::find(kFetchers, command.substr(at, end - at)) != std::end(kFetchers)) return true;
    at = end + 1;
  }
  return false;
}

// In such a shell BASH_ENV has no effect.
bool is_posix(const ProcessSpec& spec) {
  return std::any_of(spec.environment.begin(), spec.environment.end(),
                     [](const auto& setting) { return setting.starts_with("POSIXLY_CORRECT="); });
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
  Session none;
  ShellState& shell = (context.session ? *context.session : none).shell;
  const std::string lost = shell.directory.empty() || can_start_in(shell.directory) ? "" : shell.directory;
  if (!lost.empty()) shell.directory.clear();
  spec.directory = shell.directory.empty() ? context.root : fs::path(shell.directory);
  spec.environment = shell.environment.empty() ? clean_environment(context) : shell.environment;
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
  const ProcessSpec bare = spec;
  std::optional<ShellKeeper> keeper;
  if (context.session && !bash.empty() && !is_posix(spec) && may_change_shell(command)) keeper.emplace(spec);
  auto result = run_process(spec);
  if (!result) return ToolOutcome::refused(result.error().message());
  if (keeper && !result->timed_out) {
    if (auto after = keeper->take(); after && differs(bare, *after)) shell = std::move(*after);
  }
  ToolOutcome outcome = ToolOutcome::done(as_on_terminal(result->output));
  if (!lost.empty()) {
    outcome.output.insert(0, "[" + lost + " is not there any more; this ran in " + context.shown_root + "]\n");
  }
  outcome.exit_code = result->exit_code;
  outcome.truncated = result->truncated;
  outcome.changed_files = fingerprint(context.root) != before;
  if (!outcome.output.empty() && outcome.output.back() != '\n') outcome.output += '\n';
  if (!context.has_network && misses_network(outcome.output, result->exit_code != 0 || may_hide_failure(command)))
    outcome.output += "[there is no network here]\n";
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
