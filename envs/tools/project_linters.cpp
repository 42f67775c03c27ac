#include "envs/tools/project_linters.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"

namespace tandem::envs {
namespace {

constexpr size_t kProjectLintersLargestFile = 64 << 10;
constexpr size_t kMostLinters = 16, kProjectLintersMostWords = 64, kProjectLintersLongestName = 64;

Status wrong(const std::string& linter, const std::string& what) {
  return Status::invalid(std::string(kProjectLinters) + ": \"" + linter + "\" " + what);
}

Result<std::vector<std::string>> words(const std::string& linter, const Json& settings, const char* key) {
  const auto found = settings.find(key);
  if (found == settings.end() || !found->is_array() || found->empty() || found->size() > kProjectLintersMostWords)
    return fail(wrong(linter, std::string("needs ") + key + ", a list of 1 to " +
                                  std::to_string(kProjectLintersMostWords) + " texts"));
  std::vector<std::string> texts;
  for (const auto& item : *found) {
    const auto* text = item.get_ptr<const std::string*>();
    if (!text || text->empty() || text->find('\0') != std::string::npos)
      return fail(wrong(linter, std::string("has something in ") + key + " that is no text"));
    texts.push_back(*text);
  }
  return texts;
}

Result<ProjectLinter> read(const std::string& name, const Json& settings) {
  if (name.empty() || name.size() > kProjectLintersLongestName) return fail(wrong(name, "is no name for a linter"));
  if (!settings.is_object()) return fail(wrong(name, "must be {\"files\": [..], \"command\": [..]}"));
  if (const Status known = check_keys(settings, {"files", "command"}); !known)
    return fail(wrong(name, known.message()));
  ProjectLinter linter;
  linter.name = name;
  linter.arguments = TRY(words(name, settings, "command"));
  linter.program = linter.arguments.front();
  linter.arguments.erase(linter.arguments.begin());
  if (linter.program.find('/') != std::string::npos)
    return fail(wrong(
        name,
        "must name an installed program, not a path; `sh -c 'exec tools/lint \"$@\"' sh` runs one of the project"));
  for (const auto& pattern : TRY(words(name, settings, "files"))) {
    auto glob = Glob::parse(pattern.find('/') == std::string::npos ? "**/" + pattern : pattern);
    if (!glob) return fail(wrong(name, glob.error().message()));
    linter.files.push_back(std::move(*glob));
  }
  return linter;
}

}  // namespace

bool ProjectLinter::takes(std::string_view path) const {
  return std::any_of(files.begin(), files.end(), [&](const Glob& glob) { return glob.matches(path); });
}

Linter ProjectLinter::as_linter() const { return {name, program, arguments, read_any_linter}; }

Result<std::vector<ProjectLinter>> parse_project_linters(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return fail(Status::invalid(std::string(kProjectLinters) + ": " + json.error().message()));
  if (!json->is_object() || json->size() > kMostLinters) {
    return fail(Status::invalid(std::string(kProjectLinters) + " must be an object of at most " +
                                std::to_string(kMostLinters) +
                                " linters: {\"NAME\": {\"files\": [..], \"command\": [..]}}"));
  }
  std::vector<ProjectLinter> linters;
  for (const auto& [name, settings] : json->items()) linters.push_back(TRY(read(name, settings)));
  return linters;
}

Result<std::vector<ProjectLinter>> project_linters(const fs::path& root) {
  std::error_code error;
  if (!fs::is_regular_file(root / kProjectLinters, error)) return std::vector<ProjectLinter>();
  const auto text = read_file(root / kProjectLinters, kProjectLintersLargestFile);
  if (!text) return fail(Status::invalid(std::string(kProjectLinters) + ": " + text.error().message()));
  return parse_project_linters(*text);
}

}  // namespace tandem::envs
