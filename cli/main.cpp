// The process of every command: reads the command line and runs what it names.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <map>
#include <new>
#include <system_error>

#include "base/text.h"
#include "cli/command.h"
#include "cli/descriptors.h"
#include "cli/standard_streams.h"

namespace tandem::cli {
namespace {

// For a word that stands where a command must and is none, and for those that look like options: what is nearest.
void suggest(const CLI::App& command) {
  std::vector<std::string> commands;
  for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(each->get_name());
  const auto given_words = command.remaining();
  if (!commands.empty() && !given_words.empty() && !given_words[0].starts_with('-')) {
    const std::vector<std::string_view> names(commands.begin(), commands.end());
    fmt::print(stderr, "  \"{}\" is not a command{}\n", given_words[0], did_you_mean(given_words[0], names));
    return;
  }
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) options.push_back("--" + name);
  }
  const std::vector<std::string_view> names(options.begin(), options.end());
  for (const auto& word : given_words) {
    const auto given = std::string_view(word).substr(0, word.find('='));
    if (!given.starts_with("--")) continue;
    if (const auto near = nearest(given, names); !near.empty())
      fmt::print(stderr, "  \"{}\" is not an option; did you mean \"{}\"?\n", given, near);
  }
}

// What libraries throw where this machine gives no memory, no thread or no room for what is printed.
Result<int> run(const Action& action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return fail(Status::unfit("there is no memory left"));
  } catch (const std::system_error& error) {
    if (Status status = finish_standard_output(); !status) return fail(std::move(status));
    return fail(Status::unfit(error.what()));
  }
}

}  // namespace
}  // namespace tandem::cli

int main(int argc, char** argv) {
  using namespace tandem;
  using namespace tandem::cli;
  prepare_standard_streams();
  allow_descriptors(kDescriptors);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("tandem"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");

  CLI::App app("Trains agent models with reinforcement learning, and serves them.", "tandem");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_line(), "Print the version and exit");
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : commands()) {
    CLI::App* added = app.add_subcommand(command.name, command.summary);
    actions[added] = command.add(*added);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help
      app.exit(error);
      const Status written = finish_standard_output();
      if (written) return kDone;
      fmt::print(stderr, "tandem: {}\n", written.to_string());
      return exit_code_of(written);
    }
    fmt::print(stderr, "tandem: {}\n", error.what());
    std::string name = "tandem";
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands()[0];
      name += " " + command->get_name();
    }
    suggest(*command);
    fmt::print(stderr, "  see {} --help\n", name);
    return kUsage;
  }
  Result<int> outcome = run(actions.at(app.get_subcommands()[0]));
  if (outcome) {
    const Status written = finish_standard_output();
    if (written || *outcome != kDone) return *outcome;
    outcome = fail(written);
  }
  fmt::print(stderr, "tandem {}: {}\n", app.get_subcommands()[0]->get_name(), outcome.error().to_string());
  return exit_code_of(outcome.error());
}
