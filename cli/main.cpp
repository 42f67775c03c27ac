#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <map>

#include "base/text.h"
#include "cli/command.h"

int main(int argc, char** argv) {
  using namespace tandem;
  using namespace tandem::cli;
  spdlog::set_default_logger(spdlog::stderr_logger_mt("tandem"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");

  CLI::App app("Trains agent models with reinforcement learning, and serves them.", "tandem");
  app.require_subcommand(1);
  std::map<const CLI::App*, Action> actions;
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    CLI::App* added = app.add_subcommand(command.name, command.summary);
    actions[added] = command.add(*added);
    names.push_back(command.name);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "tandem: {}\n", error.what());
    if (argc > 1 && app.get_subcommands().empty() && argv[1][0] != '-') {
      fmt::print(stderr, "  \"{}\" is not a command{}\n", argv[1], did_you_mean(argv[1], names));
    }
    fmt::print(stderr, "  see tandem{} --help\n",
               app.get_subcommands().empty() ? "" : " " + app.get_subcommands()[0]->get_name());
    return kUsage;
  }
  const Result<int> outcome = actions.at(app.get_subcommands()[0])();
  if (outcome) return *outcome;
  fmt::print(stderr, "tandem {}: {}\n", app.get_subcommands()[0]->get_name(), outcome.error().to_string());
  return exit_code_of(outcome.error());
}
