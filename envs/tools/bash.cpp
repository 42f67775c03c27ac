// bash: run_terminal_cmd by the name and the parameters that models of Anthropic know.
#include "envs/tools/functions.h"

namespace tandem::envs {

ToolOutcome tool_bash(const ToolContext& context, const Json& arguments) {
  const bool restart = arguments.value("restart", false);
  if (!restart && !arguments.contains("command")) {
    return ToolOutcome::refused("argument \"command\" is missing. Use: bash{command}, or bash{restart: true}");
  }
  if (restart && context.session) context.session->shell = {};
  if (arguments.contains("command")) return tool_run_terminal_cmd(context, {{"command", arguments.at("command")}});
  return ToolOutcome::done("The shell is a new one, in " + context.shown_root + ".");
}

}  // namespace tandem::envs
