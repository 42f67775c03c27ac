#include "envs/tasks/unchanged_tests.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "envs/tasks/called_programs.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostListed = 64 << 10;  // bytes of the list, which goes with a command
constexpr std::string_view kOfCheck = "tandem-tests/";
constexpr std::string_view kFailed = ": FAILED";

// Data that tests bring may be what a program works on.
bool is_code(std::string_view path) {
  constexpr std::array<std::string_view, 14> kEnds = {".py", ".sh", ".bash", ".js",  ".mjs",  ".cjs", ".ts",
                                                      ".rb", ".pl", ".php",  ".lua", ".bats", ".exp", ".r"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return path.ends_with(end); });
}

std::string sha256_of(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::string made;
  for (const unsigned char byte : digest) made += fmt::format("{:02x}", byte);
  return made;
}

bool edits_in_place(std::string_view script) {
  constexpr std::array<std::string_view, 4> kEdits = {"sed -i", "sed --in-place", "perl -i", "patch "};
  return std::ranges::any_of(kEdits,
                             [&](std::string_view edit) { return script.find(edit) != std::string_view::npos; });
}

// Scripts may take their own tests away.
bool takes_away(std::string_view script) {
  return std::ranges::any_of(called_by_shell(script), [](const auto& word) { return word == "mv" || word == "rm"; });
}

}  // namespace

std::string compare_tests_command(const CommandCheck& check) {
  std::string list;
  bool may_be_gone = false;
  for (const auto& one : check.commands) {
    if (edits_in_place(one.command)) return "";
    may_be_gone |= check.verifier.empty() && takes_away(one.command);
  }
  for (const auto& [path, content] : check.files) {
    if (!is_code(path)) continue;
    if (path.ends_with(".sh")) {
      if (edits_in_place(content)) return "";
      may_be_gone |= takes_away(std::string_view(content).substr(0, kMostListed));
    }
    const bool is_moved = path.starts_with(kOfCheck);
    const auto place = is_moved ? "/tests/" + path.substr(kOfCheck.size()) : path;
    if (place.find_first_of("\n\\") != std::string::npos) continue;  // sha256sum writes such names otherwise
    auto line = fmt::format("{}  {}\n", sha256_of(content), place);
    if (list.size() + line.size() > kMostListed) break;
    list += line;
  }
  if (list.empty()) return "";
  // By the system's program, whatever PATH the tests left.
  return fmt::format(
      "PATH=/usr/local/bin:/usr/bin:/bin; unset LD_LIBRARY_PATH LD_PRELOAD; sha256sum -c --quiet {} 2> /dev/null << "
      "'TANDEM_END' || true\n{}TANDEM_END",
      may_be_gone ? "--ignore-missing" : "", list);
}

std::string changed_test(std::string_view printed) {
  for (const auto line : split(printed, '\n')) {
    if (const size_t end = line.rfind(kFailed); end != std::string_view::npos) return std::string(line.substr(0, end));
  }
  return "";
}

}  // namespace tandem::envs
