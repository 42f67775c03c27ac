// The linters that read_lints runs, and what they say in one form.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

struct Lint {
  std::string path;  // as it was given to the linter
  size_t line = 1, column = 1;
  std::string severity;  // error, warning, note
  std::string message;
  std::string code;  // the linter's own name for it; may be empty
};

// One program, as it is run on files.
struct Linter {
  std::string_view name;     // what models read
  std::string_view program;  // looked for by find_program
  std::vector<std::string> arguments;
  std::vector<Lint> (*read)(std::string_view output);
  bool takes_many = true;  // files in one run; else one, and findings may lack its path
};

// Parses output of an unknown linter: "PATH:LINE[:COLUMN]: [error|warning|note:] MESSAGE [CODE]".
std::vector<Lint> read_any_linter(std::string_view output);

// A language, known by the endings of file names.
struct LintLanguage {
  std::string_view name;
  std::vector<std::string_view> endings;
  std::vector<Linter> linters;  // the first that is installed is run
};
std::span<const LintLanguage> lint_languages();

// The language of a file; null where no linter is known for it. A .h file is C where C files are beside it and none of
// C++, else C++.
const LintLanguage* lint_language(const std::filesystem::path& file);

}  // namespace tandem::envs
