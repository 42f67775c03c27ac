#include "envs/tools/linters.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/file.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

// Says what CPython's own compiler says; nothing is run or written.
constexpr const char* kCompilePython =
    "import sys\n"
    "for path in sys.argv[1:]:\n"
    "    try:\n"
    "        compile(open(path, 'rb').read(), path, 'exec', dont_inherit=True)\n"
    "    except (SyntaxError, ValueError) as error:\n"
    "        place = (getattr(error, 'lineno', 0) or 1, getattr(error, 'offset', 0) or 1)\n"
    "        print('%s:%d:%d: %s' % (path, *place, getattr(error, 'msg', error)))\n";

size_t take_number(std::string_view& text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// "PATH:LINE:COLUMN: MESSAGE", the beginning that most linters share.
std::optional<Lint> read_place(std::string_view line) {
  for (size_t colon = line.find(':'); colon != std::string_view::npos && colon > 0; colon = line.find(':', colon + 1)) {
    auto rest = line.substr(colon + 1);
    Lint lint;
    lint.path = line.substr(0, colon);
    lint.line = take_number(rest);
    if (lint.line == 0 || !rest.starts_with(':')) continue;
    rest.remove_prefix(1);
    lint.column = std::max<size_t>(take_number(rest), 1);
    if (!rest.starts_with(": ")) continue;
    lint.message = trim(rest.substr(2));
    return lint;
  }
  return std::nullopt;
}

// Takes "WORD: " or "[WORD] " from the front of the message, where it is one of `words`.
std::string take_severity(Lint& lint, std::initializer_list<std::string_view> words) {
  for (const auto word : words) {
    for (const auto& form : {std::string(word) + ": ", "[" + std::string(word) + "] "}) {
      if (!lint.message.starts_with(form)) continue;
      lint.message.erase(0, form.size());
      return std::string(word);
    }
  }
  return "";
}

// Takes "[CODE]" or "(CODE)" from the end of the message.
void take_code(Lint& lint, char open, char close) {
  const size_t begin = lint.message.rfind(open);
  if (begin == std::string::npos || begin == 0 || lint.message.back() != close) return;
  lint.code = lint.message.substr(begin + 1, lint.message.size() - begin - 2);
  lint.message = trim(std::string_view(lint.message).substr(0, begin));
}

template <typename Keep>
std::vector<Lint> read_lines(std::string_view output, Keep keep) {
  std::vector<Lint> lints;
  for (const auto line : split(output, '\n')) {
    if (auto lint = read_place(line); lint && keep(*lint)) lints.push_back(std::move(*lint));
  }
  return lints;
}

std::vector<Lint> read_compiler(std::string_view output) {
  return read_lines(output, [](Lint& lint) {
    lint.severity = take_severity(lint, {"error", "warning", "fatal error"});
    if (lint.severity == "fatal error") lint.severity = "error";
    // Headers are looked at by themselves here; that is no mistake of theirs.
    if (lint.severity.empty() || lint.message.starts_with("#pragma once in main file")) return false;
    take_code(lint, '[', ']');
    return true;
  });
}

// "PATH:LINE: MESSAGE" too, where there is no column.
std::string with_columns(std::string_view output) {
  std::string text;
  for (const auto line : split(output, '\n')) {
    text += line;
    if (!read_place(line)) {
      if (const auto end = line.find(": "); end != std::string_view::npos) {
        text.resize(text.size() - line.size());
        text.append(line.substr(0, end)).append(":1").append(line.substr(end));
      }
    }
    text += '\n';
  }
  return text;
}

std::vector<Lint> read_shellcheck(std::string_view output) {
  return read_lines(output, [](Lint& lint) {
    lint.severity = take_severity(lint, {"error", "warning", "note"});
    take_code(lint, '[', ']');
    return !lint.severity.empty();
  });
}

std::vector<Lint> read_yamllint(std::string_view output) {
  return read_lines(output, [](Lint& lint) {
    lint.severity = take_severity(lint, {"error", "warning"});
    take_code(lint, '(', ')');
    return !lint.severity.empty();
  });
}

std::vector<Lint> read_pyflakes(std::string_view output) {
  return read_lines(output, [](Lint& lint) {
    constexpr std::string_view kWarnings[] = {"imported but unused",
                                              "redefinition of",
                                              "assigned to but never used",
                                              "f-string is missing placeholders",
                                              "unable to detect undefined names",
                                              "may be undefined",
                                              "but never used"};
    const bool mild = std::any_of(std::begin(kWarnings), std::end(kWarnings),
                                  [&](auto part) { return lint.message.find(part) != std::string::npos; });
    lint.severity = mild ? "warning" : "error";
    return true;
  });
}

std::vector<Lint> read_python(std::string_view output) {
  return read_lines(output, [](Lint& lint) {
    lint.severity = "error";
    return true;
  });
}

// "F401 [*] MESSAGE", or "SyntaxError: MESSAGE" and the like.
std::vector<Lint> read_ruff(std::string_view output) {
  return read_lines(output, [](Lint& lint) {
    const auto space = lint.message.find(' ');
    const auto word = lint.message.substr(0, space);
    const bool code = space != std::string::npos && !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
                        return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
                      });
    if (code) {
      lint.code = word;
      lint.message.erase(0, space + 1);
      if (lint.message.starts_with("[*] ")) lint.message.erase(0, 4);
    }
    lint.severity = !code || word.starts_with("E9") || word.starts_with("F82") ? "error" : "warning";
    return true;
  });
}

// "PATH:LINE", the line, a caret below the place, and "SyntaxError: MESSAGE".
std::vector<Lint> read_node(std::string_view output) {
  Lint lint;
  for (const auto line : split(output, '\n')) {
    if (const size_t colon = line.rfind(':');
        lint.path.empty() && line.starts_with('/') && colon != std::string_view::npos) {
      auto number = line.substr(colon + 1);
      lint.path = line.substr(0, colon);
      lint.line = std::max<size_t>(take_number(number), 1);
    } else if (trim(line).starts_with('^') && lint.message.empty()) {
      lint.column = line.find('^') + 1;
    } else if (const size_t error = line.find("Error: "); error != std::string_view::npos && !line.starts_with(' ')) {
      lint.severity = "error";
      lint.message = line;
      return {lint};
    }
  }
  return {};
}

}  // namespace

std::vector<Lint> read_any_linter(std::string_view output) {
  return read_lines(with_columns(output), [](Lint& lint) {
    lint.severity = take_severity(lint, {"error", "warning", "note", "info", "fatal error"});
    if (lint.severity == "fatal error") lint.severity = "error";
    if (lint.severity == "info") lint.severity = "note";
    if (lint.severity.empty()) lint.severity = "warning";
    take_code(lint, '[', ']');
    return true;
  });
}

namespace {

Linter clang(std::string_view program, const char* language, const char* standard) {
  return {"clang",
          program,
          {"-fsyntax-only", "-x", language, standard, "-Wall", "-Wextra", "-fno-color-diagnostics",
           "-fno-caret-diagnostics", "-I.", "-Iinclude", "-Isrc"},
          read_compiler};
}

Linter gcc(std::string_view program, const char* language, const char* standard) {
  return {program,
          program,
          {"-fsyntax-only", "-x", language, standard, "-Wall", "-Wextra", "-fdiagnostics-color=never",
           "-fno-diagnostics-show-caret", "-I.", "-Iinclude", "-Isrc"},
          read_compiler};
}

const std::vector<LintLanguage>& table() {
  static const std::vector<LintLanguage> kTable = {
      {"Python",
       {".py", ".pyi"},
       {{"ruff", "ruff", {"check", "--no-cache", "--quiet", "--output-format=concise"}, read_ruff},
        {"pyflakes", "pyflakes3", {}, read_pyflakes},
        {"pyflakes", "pyflakes", {}, read_pyflakes},
        {"python3 (syntax only)", "python3", {"-I", "-W", "ignore", "-c", kCompilePython}, read_python}}},
      {"C++", {".cpp", ".cc", ".cxx"}, {clang("clang++", "c++", "-std=gnu++20"), gcc("g++", "c++", "-std=gnu++20")}},
      {"C++ headers",
       {".h", ".hpp", ".hh", ".hxx"},
       {clang("clang++", "c++-header", "-std=gnu++20"), gcc("g++", "c++-header", "-std=gnu++20")}},
      {"C", {".c"}, {clang("clang", "c", "-std=gnu17"), gcc("gcc", "c", "-std=gnu17")}},
      {"C headers", {}, {clang("clang", "c-header", "-std=gnu17"), gcc("gcc", "c-header", "-std=gnu17")}},
      {"shell scripts",
       {".sh", ".bash"},
       {{"shellcheck", "shellcheck", {"--format=gcc", "--color=never"}, read_shellcheck}}},
      {"JavaScript", {".js", ".mjs", ".cjs"}, {{"node --check", "node", {"--check"}, read_node, false}}},
      {"YAML", {".yaml", ".yml"}, {{"yamllint", "yamllint", {"--format=parsable"}, read_yamllint}}},
  };
  return kTable;
}

bool has_ending(const fs::path& file, const std::vector<std::string_view>& endings) {
  const auto ending = file.extension().string();
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

const LintLanguage& named(std::string_view name) {
  return *std::find_if(table().begin(), table().end(), [&](auto& language) { return language.name == name; });
}

bool is_of_c(const fs::path& header) {
  bool c = false;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(header.parent_path(), error)) {
    if (has_ending(entry.path(), named("C++").endings)) return false;
    c = c || has_ending(entry.path(), named("C").endings);
  }
  return c;
}

}  // namespace

std::span<const LintLanguage> lint_languages() { return table(); }

const LintLanguage* lint_language(const fs::path& file) {
  if (file.extension() == ".h" && is_of_c(file)) return &named("C headers");
  for (const auto& language : table()) {
    if (has_ending(file, language.endings)) return &language;
  }
  return nullptr;
}

}  // namespace tandem::envs
