#include "envs/tasks/network_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace tandem::envs {
namespace {

// A program, and the words after it that make it fetch; without any it always does.
struct Fetcher {
  std::string_view program;
  std::vector<std::string_view> verbs;
};
const Fetcher kFetchers[] = {
    {"apt-get", {"install", "update", "upgrade"}},
    {"apt", {"install", "update", "upgrade"}},
    {"apk", {"add", "update"}},
    {"pip", {"install", "download"}},
    {"pipx", {"install", "run"}},
    {"easy_install", {}},
    {"poetry", {"install", "add"}},
    {"pipenv", {"install", "sync"}},
    {"gem", {"install"}},
    {"pnpm", {"install", "add", "i"}},
    {"uv", {"add", "sync", "run", "pip", "init", "tool"}},
    {"uvx", {}},
    {"npm", {"install", "ci", "i"}},
    {"npx", {}},
    {"yarn", {"add", "install"}},
    {"cargo", {"install", "fetch"}},
    {"go", {"get", "install"}},
    {"git", {"clone", "fetch", "pull"}},
    {"conda", {"install", "create"}},
    {"huggingface-cli", {"download"}},
};

bool is_local(std::string_view address) {
  const auto host = address.substr(address.find("://") + 3);
  return host.starts_with("localhost") || host.starts_with("127.0.0.1") || host.starts_with("0.0.0.0") ||
         host.starts_with("[::1]") || host.starts_with('$');
}

// Commands of a line, each as its words; quotes are not looked into.
std::vector<std::vector<std::string>> commands_of_line(std::string_view line) {
  std::vector<std::vector<std::string>> commands(1);
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) commands.back().push_back(std::move(word));
    word.clear();
  };
  char quote = 0;
  for (const char c : line) {
    if (quote == 0 && c == '#' && word.empty()) break;
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote == 0 ? c : 0;
    } else if (quote != 0) {
      word += c;
    } else if (c == ';' || c == '|' || c == '&' || c == '(' || c == ')' || c == '`') {
      end_word();
      if (!commands.back().empty()) commands.emplace_back();
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return commands;
}

std::string user_in(const std::vector<std::string>& words) {
  size_t at = 0;
  // What may stand before a command, and what runs another one.
  constexpr std::string_view kBefore[] = {"sudo",       "then", "do",    "else",    "if",   "!",    "exec",    "env",
                                          "time",       "{",    "while", "until",   "elif", "-m",   "python3", "python",
                                          "python3.11", "nice", "nohup", "command", "eval", "xargs"};
  while (at < words.size() && (std::find(std::begin(kBefore), std::end(kBefore), words[at]) != std::end(kBefore) ||
                               words[at].find('=') != std::string::npos))
    ++at;
  if (at == words.size()) return "";
  auto program = words[at].substr(words[at].rfind('/') + 1);
  if (program.starts_with("pip") && program.find_first_not_of("0123456789.", 3) == std::string::npos) program = "pip";
  const auto rest = std::vector<std::string>(words.begin() + static_cast<ptrdiff_t>(at) + 1, words.end());
  if (program == "curl" || program == "wget") {
    const bool away = std::any_of(rest.begin(), rest.end(), [](const auto& word) {
      return word.find("://") != std::string::npos && !is_local(word);
    });
    return away ? program : "";
  }
  const bool stays = std::any_of(rest.begin(), rest.end(), [](const auto& word) {
    return word == "--no-index" || word == "--no-build-isolation" || word == "--offline";
  });
  if (stays) return "";
  for (const auto& fetcher : kFetchers) {
    if (fetcher.program != program) continue;
    if (fetcher.verbs.empty()) return program;
    // The verb is the first word that is no option, and no folder of one.
    const auto verb = std::find_if(rest.begin(), rest.end(),
                                   [](const auto& word) { return !word.starts_with('-') && !word.starts_with('/'); });
    if (verb == rest.end()) return "";
    const bool fetches = std::find(fetcher.verbs.begin(), fetcher.verbs.end(), *verb) != fetcher.verbs.end();
    return fetches ? program + " " + *verb : "";
  }
  return "";
}

}  // namespace

std::string network_user(std::string_view command) {
  for (const auto& words : commands_of_line(command)) {
    if (auto user = user_in(words); !user.empty()) return user;
    // `bash -lc "..."`, `su - app -c "..."`: a word that is a command of its own.
    for (size_t i = 2; i < words.size(); ++i) {
      const auto& option = words[i - 1];
      const bool runs = option.starts_with('-') && !option.starts_with("--") && option.ends_with('c');
      if (!runs || words[i].size() >= command.size() || words[0].starts_with("python")) continue;
      if (auto user = network_user(words[i]); !user.empty()) return user;
    }
  }
  return "";
}

std::string why_no_network(std::string_view user) {
  return fmt::format("`{}` needs a network, which no sandbox has; use what is installed on this machine", user);
}

void refuse_network(const std::string& file, std::string_view script, Mistakes& mistakes) {
  int number = 0;
  for (const auto line : split(script, '\n')) {
    ++number;
    if (const auto user = network_user(line); !user.empty()) mistakes.add(file, number, why_no_network(user));
  }
}

}  // namespace tandem::envs
