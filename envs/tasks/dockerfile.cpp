#include "envs/tasks/dockerfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/network_use.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

struct Instruction {
  int line = 0;
  std::string name;  // in capitals
  std::string rest;
};

// Joins continued lines; comments between them go.
std::vector<Instruction> instructions_of(const std::string& text) {
  std::vector<Instruction> found;
  std::string open;
  int number = 0, first = 0;
  for (auto line : split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (trim(line).starts_with('#')) continue;
    if (open.empty() && trim(line).empty()) continue;
    if (open.empty()) first = number;
    const bool goes_on = line.ends_with('\\');
    open.append(goes_on ? line.substr(0, line.size() - 1) : line);
    if (goes_on) {
      open += ' ';
      continue;
    }
    const auto whole = trim(open);
    const size_t end = std::min(whole.find_first_of(" \t"), whole.size());
    Instruction instruction{
        .line = first, .name = std::string(whole.substr(0, end)), .rest = std::string(trim(whole.substr(end)))};
    for (char& c : instruction.name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (!instruction.name.empty()) found.push_back(std::move(instruction));
    open.clear();
  }
  return found;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const auto word : split(text, ' ')) {
    if (!trim(word).empty()) words.emplace_back(trim(word));
  }
  return words;
}

// The packages of a RUN that does nothing but install some with apt-get; nothing where it does anything else.
std::optional<std::vector<std::string>> packages_of(const std::string& command) {
  std::vector<std::string> packages;
  std::string rest = command;
  for (size_t at = rest.find(';'); at != std::string::npos; at = rest.find(';')) rest.replace(at, 1, "&&");
  while (!rest.empty()) {
    const size_t end = rest.find("&&");
    auto words = words_of(rest.substr(0, end));
    rest = end == std::string::npos ? "" : rest.substr(end + 2);
    if (words.empty() || words[0] == "rm") continue;
    if (words[0] != "apt-get" && words[0] != "apt") return std::nullopt;
    std::erase_if(words, [](const auto& word) { return word.starts_with('-'); });
    if (words.size() < 2) return std::nullopt;
    if (words[1] == "install") {
      for (size_t i = 2; i < words.size(); ++i) packages.push_back(words[i].substr(0, words[i].find('=')));
    } else if (words[1] != "update" && words[1] != "clean" && words[1] != "upgrade") {
      return std::nullopt;
    }
  }
  return packages;
}

class Interpreter {
 public:
  Interpreter(const fs::path& context, std::string workdir, std::span<const std::string_view> hidden,
              Mistakes& mistakes)
      : context_(context), file_((context / "Dockerfile").string()), hidden_(hidden), mistakes_(mistakes) {
    build_.workdir = std::move(workdir);
  }

  Build run(const std::string& text) {
    const auto instructions = instructions_of(text);
    // The last folder is the workspace, so it must be known before anything is copied into it.
    std::string at = build_.workdir;
    for (const auto& each : instructions) {
      if (each.name == "WORKDIR") build_.workdir = at = absolute(at, each.rest);
    }
    folder_ = build_.workdir;
    bool first = true;
    for (const auto& each : instructions) {
      if (first && each.name != "FROM") refuse(each, "a Dockerfile begins with FROM");
      first = false;
      follow(each);
    }
    return std::move(build_);
  }

 private:
  void refuse(const Instruction& at, const std::string& why) {
    mistakes_.add(file_, at.line, fmt::format("{}: {}", at.name, why));
  }

  static std::string absolute(const std::string& folder, const std::string& path) {
    auto joined = (path.starts_with('/') ? fs::path(path) : fs::path(folder) / path).lexically_normal().string();
    if (joined.size() > 1 && joined.ends_with('/')) joined.pop_back();
    return joined;
  }

  // The path below the workspace; "" is its root.
  std::optional<std::string> inside(const std::string& path) const {
    if (path == build_.workdir) return "";
    if (path.starts_with(build_.workdir + "/")) return path.substr(build_.workdir.size() + 1);
    return std::nullopt;
  }

  void follow(const Instruction& each) {
    if (each.name == "FROM") {
      if (++stages_ > 1) refuse(each, "builds of several stages are not followed");
    } else if (each.name == "WORKDIR") {
      folder_ = absolute(folder_, each.rest);
    } else if (each.name == "COPY" || each.name == "ADD") {
      copy(each);
    } else if (each.name == "ENV") {
      environment(each);
    } else if (each.name == "RUN") {
      command(each);
    } else if (each.name != "LABEL" && each.name != "CMD" && each.name != "EXPOSE" && each.name != "MAINTAINER") {
      refuse(each,
             "not supported; supported are FROM, WORKDIR, COPY, ADD, ENV, RUN, and LABEL, CMD and EXPOSE, which "
             "say nothing here");
    }
  }

  void copy(const Instruction& each) {
    auto words = words_of(each.rest);
    if (!words.empty() && words[0].starts_with('[')) return refuse(each, "the form with brackets is not supported");
    if (words.size() < 2) return refuse(each, "needs a source and a destination");
    const auto target = words.back();
    words.pop_back();
    const auto below = inside(absolute(folder_, target));
    if (!below) {
      return refuse(
          each, fmt::format("{} lies outside of WORKDIR {}, which is all that a sandbox has", target, build_.workdir));
    }
    for (const auto& source : words) {
      if (source.starts_with("--")) return refuse(each, source + " is not supported");
      if (source.find("://") != std::string::npos)
        return refuse(each, "there is no network to copy " + source + " from");
      const auto relative = fs::path(source).lexically_normal().relative_path();
      if (relative.string().starts_with("..")) return refuse(each, source + " leads out of the environment folder");
      if (source.find_first_of("*?[") != std::string::npos)
        return refuse(each, "patterns are not supported: " + source);
      std::error_code error;
      for (const auto name : hidden_) {
        const bool whole = relative.empty() || relative == ".";
        if ((whole && fs::exists(context_ / name, error)) || (!relative.empty() && *relative.begin() == name))
          return refuse(each, fmt::format("{} would show {} to the model; name the files", source, name));
      }
      const fs::path from = context_ / relative;
      const bool folder = fs::is_directory(from, error);
      const bool into = target.ends_with('/') || target == "." || below->empty() || words.size() > 1;
      std::string path = *below;
      if (!folder && into) path = (fs::path(path) / relative.filename()).string();
      if (const auto added = add_folder_files(from, path, build_.files, build_.programs); !added) {
        refuse(each, added.message());
      }
    }
    // The recipe itself is no part of what the model meets.
    build_.files.erase("Dockerfile");
  }

  void environment(const Instruction& each) {
    const size_t equals = each.rest.find('='), space = each.rest.find_first_of(" \t");
    if (equals == std::string::npos || space < equals) {
      if (space == std::string::npos) return refuse(each, "needs a name and a value");
      return set(each, each.rest.substr(0, space), std::string(trim(each.rest.substr(space))));
    }
    // NAME=VALUE pairs, values in quotes or without spaces.
    std::string_view rest = each.rest;
    while (!(rest = trim(rest)).empty()) {
      const size_t sign = rest.find('=');
      if (sign == std::string_view::npos) return refuse(each, "is not NAME=VALUE");
      const std::string name(rest.substr(0, sign));
      rest.remove_prefix(sign + 1);
      const char quote = !rest.empty() && (rest[0] == '"' || rest[0] == '\'') ? rest[0] : ' ';
      const size_t begin = quote == ' ' ? 0 : 1;
      const size_t end = std::min(rest.find(quote, begin), rest.size());
      set(each, name, std::string(rest.substr(begin, end - begin)));
      rest.remove_prefix(std::min(end + begin, rest.size()));
    }
  }

  void set(const Instruction& each, const std::string& name, const std::string& value) {
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), fits))
      return refuse(each, "\"" + name + "\" is no name");
    std::string quoted;
    for (const char c : value) {
      if (c == '"' || c == '`' || c == '\\') quoted += '\\';
      quoted += c;
    }
    build_.exports.push_back("export " + name + "=\"" + quoted + "\"");
  }

  void command(const Instruction& each) {
    auto command = each.rest;
    if (command.starts_with('[')) {
      const auto words = parse_json(command);
      if (!words || !words->is_array()) return refuse(each, "is neither a command nor a list of words");
      command.clear();
      for (const auto& word : *words) {
        if (!word.is_string()) return refuse(each, "is not a list of words");
        command += (command.empty() ? "" : " ") + shell_quoted(word.get<std::string>());
      }
    }
    if (command.starts_with("--")) return refuse(each, "flags are not supported");
    if (command.find("<<") != std::string::npos) return refuse(each, "texts in place (<<) are not supported");
    if (const auto packages = packages_of(command)) {
      build_.packages.insert(build_.packages.end(), packages->begin(), packages->end());
      return;
    }
    if (const auto user = network_user(command); !user.empty()) return refuse(each, why_no_network(user));
    const auto below = inside(folder_);
    if (!below) return refuse(each, fmt::format("runs in {}, outside of the last WORKDIR {}", folder_, build_.workdir));
    const auto folder = "/workspace" + (below->empty() ? "" : "/" + *below);
    build_.commands.push_back(fmt::format("(mkdir -p {0} && cd {0} && {1})", shell_quoted(folder), command));
  }

  const fs::path context_;
  const std::string file_;
  const std::span<const std::string_view> hidden_;
  Mistakes& mistakes_;
  Build build_;
  std::string folder_;  // where the instruction at hand is
  int stages_ = 0;
};

}  // namespace

Build read_dockerfile(const fs::path& context, const std::string& workdir, std::span<const std::string_view> hidden,
                      Mistakes& mistakes) {
  const auto text = read_file(context / "Dockerfile", 1 << 20);
  if (!text) {
    mistakes.add((context / "Dockerfile").string(), 0, text.error().message());
    return {};
  }
  return Interpreter(context, workdir, hidden, mistakes).run(*text);
}

}  // namespace tandem::envs
