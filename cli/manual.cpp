// `tandem manual`: the help of all commands as man pages, and as completions of bash.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"

namespace tandem::cli {
namespace {

const CLI::App& top_of(const CLI::App& command) {
  const CLI::App* app = &command;
  while (app->get_parent() != nullptr) app = app->get_parent();
  return *app;
}

std::vector<const CLI::App*> commands_below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "tandem eval history".
std::string path_of(const CLI::App& app, const char* separator) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : path_of(*app.get_parent(), separator) + separator + app.get_name();
}

// Escapes for roff: a line that begins with a dot or an apostrophe would be a request, and '-' a hyphen.
std::string roff_text(std::string_view text) {
  std::string result;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) result += "\\&";
    begins = c == '\n';
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  return result;
}

// What follows an option on the command line: "" for a flag.
std::string value_of(const CLI::Option& option) { return option.get_type_size() == 0 ? "" : option.get_type_name(); }

std::string option_lines(const CLI::Option& option) {
  std::string about = option.get_description();
  if (!option.get_default_str().empty()) about += fmt::format(" (default: {})", option.get_default_str());
  const std::string name = option.get_name(option.get_positional());
  return fmt::format(".TP\n\\fB{}\\fR {}\n{}\n", roff_text(name), roff_text(value_of(option)), roff_text(about));
}

std::string man_page(const CLI::App& app) {
  std::string page = fmt::format(".TH \"{}\" 1 \"\" \"tandem {}\" \"Tandem\"\n", path_of(app, "-"), TANDEM_VERSION);
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff_text(path_of(app, "-")), roff_text(app.get_description()));
  std::string words, positionals, options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      const std::string word = fmt::format("\\fI{}\\fR", roff_text(option->get_name(true)));
      words += option->get_required() ? " " + word : " [" + word + "]";
      positionals += option_lines(*option);
    } else {
      options += option_lines(*option);
    }
  }
  const auto below = commands_below(app);
  page += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR{}{} [\\fIoptions\\fR]\n", roff_text(path_of(app, " ")),
                      below.empty() ? "" : " \\fIcommand\\fR", words);
  if (!below.empty()) {
    page += ".SH COMMANDS\n";
    for (const CLI::App* each : below) {
      page += fmt::format(".TP\n\\fB{}\\fR\n{}; see \\fB{}\\fR(1)\n", roff_text(each->get_name()),
                          roff_text(each->get_description()), roff_text(path_of(*each, "-")));
    }
  }
  if (!positionals.empty()) page += ".SH ARGUMENTS\n" + positionals;
  if (!options.empty()) page += ".SH OPTIONS\n" + options;
  if (!app.get_footer().empty()) page += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff_text(app.get_footer()));
  page +=
      ".SH EXIT STATUS\n0 done, 1 failed, 2 usage or config, 3 this machine lacks something, 4 a regression, 5 too "
      "much "
      "without a result, 75 interrupted with a good checkpoint.\n";
  return page;
}

Status write_man_pages(const CLI::App& app, const fs::path& folder) {
  TRY(write_file(folder / (path_of(app, "-") + ".1"), man_page(app)));
  for (const CLI::App* each : commands_below(app)) TRY(write_man_pages(*each, folder));
  return {};
}

// A line of the table: the words of a command so far, and what may follow.
void add_completions(const CLI::App& app, std::string& table) {
  std::vector<std::string> words;
  for (const CLI::App* each : commands_below(app)) words.push_back(each->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) words.push_back("--" + name);
  }
  table += fmt::format("    '{}') words='{}' ;;\n", path_of(app, " "), join(words, " "));
  for (const CLI::App* each : commands_below(app)) add_completions(*each, table);
}

std::string bash_completion(const CLI::App& app) {
  std::string table;
  add_completions(app, table);
  return fmt::format(
      "# Completions of `tandem` for bash, made by `tandem manual bash`.\n"
      "_tandem_words() {{\n"
      "  case $1 in\n"
      "{}"
      "    *) return 1 ;;\n"
      "  esac\n"
      "}}\n"
      "_tandem() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} command=tandem words='' i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    _tandem_words \"$command ${{COMP_WORDS[i]}}\" && command+=\" ${{COMP_WORDS[i]}}\"\n"
      "  done\n"
      "  _tandem_words \"$command\"\n"
      "  # Options where one has begun, else commands; where neither fits, files.\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
      "}}\n"
      "complete -o default -F _tandem tandem\n",
      table);
}

}  // namespace

Action add_manual(CLI::App& command) {
  command.require_subcommand(1);
  const auto folder = std::make_shared<std::string>();
  auto* man = command.add_subcommand("man", "Write a man page for each command into a folder");
  man->add_option("FOLDER", *folder, "The folder")->required()->check(CLI::ExistingDirectory);
  man->footer("Example:\n  tandem manual man ~/.local/share/man/man1");
  auto* bash = command.add_subcommand("bash", "Print completions for bash");
  bash->footer("Example:\n  tandem manual bash > ~/.local/share/bash-completion/completions/tandem");
  command.footer("Examples:\n  tandem manual man ~/.local/share/man/man1\n  tandem manual bash > tandem.bash");
  return [&command, man, folder]() -> Result<int> {
    const CLI::App& app = top_of(command);
    if (!man->parsed()) {
      fmt::print("{}", bash_completion(app));
      return kDone;
    }
    TRY(write_man_pages(app, *folder));
    return kDone;
  };
}

}  // namespace tandem::cli
