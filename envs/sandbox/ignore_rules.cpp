#include "envs/sandbox/ignore_rules.h"

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kSpecial = "*?[\\";

// Trailing spaces count only behind a backslash.
std::string_view ignore_rules_without_end(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
  return line;
}

// Braces are characters like others to git, and alternatives to a Glob.
std::string with_plain_braces(std::string_view pattern) {
  std::string text;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      text += pattern[i++];
    } else if (pattern[i] == '{' || pattern[i] == '}' || pattern[i] == ',') {
      text += '\\';
    }
    text += pattern[i];
  }
  return text;
}

}  // namespace

void IgnoreRules::add(std::string_view folder, std::string_view text) {
  for (auto line : split(text, '\n')) {
    line = ignore_rules_without_end(line);
    if (line.empty() || line[0] == '#') continue;
    Rule rule;
    rule.takes_back = line[0] == '!';
    if (rule.takes_back) line.remove_prefix(1);
    rule.folders_only = line.ends_with('/');
    if (rule.folders_only) line.remove_suffix(1);
    rule.whole_path = line.find('/') != std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    if (line.empty()) continue;
    if (rule.whole_path && !folder.empty()) rule.skipped = folder.size() + 1;
    if (!rule.whole_path && line.find_first_of(kSpecial) == std::string_view::npos) {
      rule.text = line;
    } else if (!rule.whole_path && line[0] == '*' && line.find_first_of(kSpecial, 1) == std::string_view::npos) {
      rule.kind = Rule::Kind::kEnding;
      rule.text = line.substr(1);
    } else {
      auto glob = Glob::parse(with_plain_braces(line));
      if (!glob) continue;
      rule.kind = Rule::Kind::kGlob;
      rule.glob = std::move(*glob);
    }
    rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::ignores(std::string_view path, bool is_folder) const {
  const auto slash = path.rfind('/');
  const auto name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->folders_only && !is_folder) continue;
    const auto compared = rule->whole_path ? path.substr(std::min(rule->skipped, path.size())) : name;
    const bool matches = rule->kind == Rule::Kind::kName     ? compared == rule->text
                         : rule->kind == Rule::Kind::kEnding ? compared.ends_with(rule->text)
                                                             : rule->glob->matches(compared);
    if (matches) return !rule->takes_back;
  }
  return false;
}

}  // namespace tandem::envs
