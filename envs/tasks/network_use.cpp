#include "envs/tasks/network_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
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
    {"hf", {"download"}},
    {"spacy", {"download"}},
    {"dotnet", {"restore"}},
    {"composer", {"install", "require", "update"}},
    {"bundle", {"install"}},
    {"luarocks", {"install"}},
    {"dnf", {"install"}},
    {"yum", {"install"}},
    {"snap", {"install"}},
    {"rustup", {"install", "toolchain", "target", "component", "update"}},
    {"nvm", {"install"}},
    {"svn", {"checkout", "co"}},
    {"add-apt-repository", {}},
    {"nltk.downloader", {}},
    {"ensurepip", {}},
};

bool is_local(std::string_view address) {
  const size_t scheme = address.find("://");
  const auto host = scheme == std::string_view::npos ? address : address.substr(scheme + 3);
  return host.starts_with("localhost") || host.starts_with("127.0.0.1") || host.starts_with("0.0.0.0") ||
         host.starts_with("[::1]") || host.starts_with('$') || host.starts_with(':') || address.starts_with("file:");
}

// What curl or wget are asked for, with or without "https://".
bool asks_for_address(std::string_view program, const std::vector<std::string>& words) {
  // Options with a word of their own behind them; of letters together the last one.
  constexpr std::string_view kLetters[] = {"oHdXuAebcFTmwxrKECYyzDUP", "oOPaiBTwQtUeDRAIXl"};
  constexpr std::string_view kWords[] = {"--output",
                                         "--header",
                                         "--data",
                                         "--request",
                                         "--user",
                                         "--user-agent",
                                         "--referer",
                                         "--cookie",
                                         "--cookie-jar",
                                         "--form",
                                         "--upload-file",
                                         "--max-time",
                                         "--connect-timeout",
                                         "--write-out",
                                         "--proxy",
                                         "--retry",
                                         "--retry-delay",
                                         "--retry-max-time",
                                         "--data-raw",
                                         "--data-binary",
                                         "--data-urlencode",
                                         "--output-dir",
                                         "--cacert",
                                         "--cert",
                                         "--key",
                                         "--output-document",
                                         "--directory-prefix",
                                         "--tries",
                                         "--timeout",
                                         "--output-file",
                                         "--post-data",
                                         "--method",
                                         "--resolve",
                                         "--unix-socket",
                                         "--max-redirs",
                                         "--range",
                                         "--json",
                                         "--dump-header",
                                         "--config"};
  const auto letters = kLetters[program == "curl" ? 0 : 1];
  for (size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    // Output goes there.
    if (word.starts_with('>') || word.starts_with("2>") || word.starts_with("&>")) {
      i += word.ends_with('>') ? 1 : 0;
    } else if (word.starts_with("--")) {
      if (word.starts_with("--url=") && !is_local(word.substr(6))) return true;
      i += std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords) ? 1 : 0;
    } else if (word.starts_with('-') && word.size() > 1) {
      i += letters.find(word.back()) != std::string_view::npos ? 1 : 0;
    } else if (word != "-" && word != "\\" && !word.starts_with('<') && !is_local(word)) {
      return true;
    }
  }
  return false;
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
    return asks_for_address(program, rest) ? program : "";
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

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool is_python(std::string_view word) {
  const auto name = word.substr(word.rfind('/') + 1);
  return name.starts_with("python") && name.find_first_not_of("0123456789.", 6) == std::string_view::npos;
}

// Whether a function that fetches what an address names is called with an address elsewhere.
std::string python_fetcher(std::string_view program) {
  constexpr std::string_view kFetching[] = {"urlopen",       "urlretrieve", "requests.get",
                                            "requests.post", "httpx.get",   "wget.download"};
  constexpr std::string_view kAlways[] = {
      "nltk.download",     "snapshot_download", "hf_hub_download", "load_dataset", "hub.load_state_dict_from_url",
      "spacy.cli.download"};
  for (const auto name : kAlways) {
    if (program.find(std::string(name) + "(") != std::string_view::npos) return std::string(name);
  }
  for (const auto name : kFetching) {
    if (program.find(std::string(name) + "(") == std::string_view::npos) continue;
    for (size_t at = program.find("://"); at != std::string_view::npos; at = program.find("://", at + 1)) {
      if (!is_local(program.substr(at))) return std::string(name);
    }
  }
  return "";
}

}  // namespace

std::string python_network_user(std::string_view program) {
  if (auto fetcher = python_fetcher(program); !fetcher.empty()) return fetcher;
  // What it calls, as words: `subprocess.run(["pip", "install", "six"])` and `os.system("pip install six")` alike.
  for (const auto line : split(program, '\n')) {
    std::string plain;
    for (const char c : line.substr(0, line.find(" #")))
      plain += std::string_view("[](){},'\"=").find(c) != std::string_view::npos ? ' ' : c;
    for (const auto part : split(plain, ';')) {
      std::vector<std::string> words;
      for (const auto word : split(part, ' ')) {
        if (!trim(word).empty()) words.emplace_back(trim(word));
      }
      for (size_t i = 0; i < words.size(); ++i) {
        // `pip.main(["install", ...])` and the like.
        if (words[i].starts_with("pip.") || words[i].starts_with("pip._internal")) words[i] = "pip";
        if (auto user = user_in({words.begin() + static_cast<ptrdiff_t>(i), words.end()}); !user.empty()) return user;
      }
    }
  }
  // The name of the program and what it shall do may stand apart.
  for (size_t at = program.find("pip"); at != std::string_view::npos; at = program.find("pip", at + 1)) {
    const bool whole =
        (at == 0 || !is_word(program[at - 1])) && (at + 3 == program.size() || !is_word(program[at + 3]));
    const auto rest = program.substr(at);
    for (const std::string_view verb : {"install", "download"}) {
      const bool quoted = rest.find("'" + std::string(verb) + "'") != std::string_view::npos ||
                          rest.find("\"" + std::string(verb) + "\"") != std::string_view::npos;
      if (whole && quoted) return "pip " + std::string(verb);
    }
  }
  return "";
}

std::string network_user(std::string_view command) {
  for (const auto& words : commands_of_line(command)) {
    if (auto user = user_in(words); !user.empty()) return user;
    // `eval "$(curl ...)"`: a command within quotes.
    for (const auto& word : words) {
      const size_t begin = word.find("$("), end = word.rfind(')');
      if (begin == std::string::npos || end == std::string::npos || end < begin) continue;
      if (auto user = network_user(word.substr(begin + 2, end - begin - 2)); !user.empty()) return user;
    }
    // `bash -lc "..."`, `su - app -c "..."`: a word that is a command of its own.
    for (size_t i = 2; i < words.size(); ++i) {
      const auto& option = words[i - 1];
      const bool runs = option.starts_with('-') && !option.starts_with("--") && option.ends_with('c');
      if (!runs || words[i].size() >= command.size()) continue;
      const bool in_python = std::any_of(words.begin(), words.begin() + static_cast<ptrdiff_t>(i) - 1,
                                         [](const auto& word) { return is_python(word); });
      auto user = in_python ? python_network_user(words[i]) : network_user(words[i]);
      if (!user.empty()) return user;
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
