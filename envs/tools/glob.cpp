#include "envs/tools/glob.h"

#include <algorithm>
#include <string>

namespace tandem::envs {
namespace {

constexpr size_t kMostAlternatives = 256;
constexpr size_t kGlobLongest = 4096;  // characters of a pattern

// The end of the braces that open at `begin`; npos where they are not closed.
size_t closing_brace(std::string_view pattern, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (pattern[i] == '{') {
      ++depth;
    } else if (pattern[i] == '}' && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

size_t opening_brace(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\')
      ++i;
    else if (pattern[i] == '{')
      return i;
  }
  return std::string_view::npos;
}

// Outside of braces within.
bool has_comma(std::string_view inside) {
  int depth = 0;
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] == '\\')
      ++i;
    else if (inside[i] == ',' && depth == 0)
      return true;
    else
      depth += inside[i] == '{' ? 1 : inside[i] == '}' ? -1 : 0;
  }
  return false;
}

Status expand_braces(const std::string& pattern, std::vector<std::string>& expanded) {
  const size_t open = opening_brace(pattern);
  if (open == std::string::npos) {
    expanded.push_back(pattern);
    if (expanded.size() <= kMostAlternatives) return {};
    return Status::invalid("the pattern has more than " + std::to_string(kMostAlternatives) +
                           " alternatives in braces; use a wider one, such as *");
  }
  const size_t close = closing_brace(pattern, open);
  if (close == std::string::npos) return Status::invalid("the pattern has a \"{\" that is not closed by \"}\"");
  int depth = 0;
  size_t begin = open + 1;
  if (!has_comma(std::string_view(pattern).substr(begin, close - begin))) {
    const auto inside = pattern.substr(begin, close - begin);
    return expand_braces(pattern.substr(0, open) + "\\{" + inside + "\\}" + pattern.substr(close + 1), expanded);
  }
  for (size_t i = open + 1; i <= close; ++i) {
    if (pattern[i] == '\\') {
      ++i;
      continue;
    }
    if (pattern[i] == '{') ++depth;
    if ((pattern[i] == ',' && depth == 0) || i == close) {
      TRY(expand_braces(pattern.substr(0, open) + pattern.substr(begin, i - begin) + pattern.substr(close + 1),
                        expanded));
      begin = i + 1;
    }
    if (pattern[i] == '}') --depth;
  }
  return {};
}

// The characters of the set that opens at `at`, which then stands behind it; false where it is not closed.
bool read_set(std::string_view pattern, size_t& at, std::vector<bool>& set) {
  size_t i = at + 1;
  const bool inverted = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (inverted) ++i;
  set.assign(256, inverted);
  for (bool first = true; i < pattern.size() && (first || pattern[i] != ']'); first = false) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    const auto low = static_cast<unsigned char>(pattern[i++]);
    auto high = low;
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      high = static_cast<unsigned char>(pattern[i + 1]);
      i += 2;
    }
    for (unsigned c = low; c <= high; ++c) set[c] = !inverted;
  }
  set['/'] = false;
  at = i + 1;
  return i < pattern.size();
}

// A pattern in parts, of which brackets are some.
struct GlobPart {
  std::string text;
  bool is_set = false;
};

// A set whose range goes backwards is none: [user-id] is a name.
bool has_backward_range(std::string_view set) {
  for (size_t i = 1; i + 2 < set.size(); ++i) {
    if (set[i] == '-' && i > 1 && static_cast<unsigned char>(set[i - 1]) > static_cast<unsigned char>(set[i + 1]))
      return true;
  }
  return false;
}

std::string taken_literally(std::string_view text) {
  std::string literal;
  for (const char c : text) {
    if (std::string_view("*?[]{}\\").find(c) != std::string_view::npos) literal += '\\';
    literal += c;
  }
  return literal;
}

Result<std::vector<GlobPart>> parts_of(std::string_view pattern) {
  std::vector<GlobPart> parts(1);
  for (size_t i = 0; i < pattern.size();) {
    if (pattern[i] != '[') {
      const size_t length = pattern[i] == '\\' && i + 1 < pattern.size() ? 2 : 1;
      parts.back().text += pattern.substr(i, length);
      i += length;
      continue;
    }
    std::vector<bool> set;
    const size_t begin = i;
    if (!read_set(pattern, i, set)) return fail(Status::invalid("the pattern has a \"[\" that is not closed by \"]\""));
    const auto text = pattern.substr(begin, i - begin);
    if (has_backward_range(text)) {
      parts.back().text += taken_literally(text);
      continue;
    }
    parts.push_back({std::string(text), true});
    parts.emplace_back();
  }
  return parts;
}

}  // namespace

Result<std::vector<std::string>> glob_meanings(std::string_view pattern) {
  constexpr size_t kMostSets = 4;  // each by itself; of more, all or none
  if (pattern.size() > kGlobLongest)
    return fail(Status::invalid("the pattern is longer than " + std::to_string(kGlobLongest) + " characters"));
  std::vector<std::string> expanded, meanings;
  TRY(expand_braces(std::string(pattern), expanded));
  for (const auto& each : expanded) {
    const auto parts = TRY(parts_of(each));
    const auto sets =
        static_cast<size_t>(std::count_if(parts.begin(), parts.end(), [](auto& part) { return part.is_set; }));
    const size_t ways = sets == 0 ? 1 : sets <= kMostSets ? size_t{1} << sets : 2;
    for (size_t way = 0; way < ways; ++way) {
      std::string meaning;
      size_t set = 0;
      for (const auto& part : parts) {
        const bool is_name = part.is_set && (sets <= kMostSets ? way >> set & 1 : way) != 0;
        meaning += is_name ? taken_literally(part.text) : part.text;
        set += part.is_set ? 1 : 0;
      }
      if (std::find(meanings.begin(), meanings.end(), meaning) == meanings.end()) meanings.push_back(meaning);
    }
  }
  return meanings;
}

Result<Glob::Tokens> Glob::tokens_of(std::string_view pattern) {
  Tokens tokens;
  for (size_t i = 0; i < pattern.size();) {
    const bool name_begins = i == 0 || pattern[i - 1] == '/';
    const auto rest = pattern.substr(i);
    if (name_begins && rest.starts_with("**/")) {
      tokens.push_back({Kind::kFolders});
      i += 3;
    } else if (name_begins && rest == "**") {
      tokens.push_back({Kind::kRest});
      i += 2;
    } else if (rest[0] == '*') {
      if (tokens.empty() || tokens.back().kind != Kind::kName) tokens.push_back({Kind::kName});
      ++i;
    } else if (rest[0] == '?') {
      tokens.push_back({Kind::kAny});
      ++i;
    } else if (rest[0] == '[') {
      Token token{Kind::kSet};
      if (!read_set(pattern, i, token.set)) {
        return fail(Status::invalid("the pattern has a \"[\" that is not closed by \"]\""));
      }
      tokens.push_back(std::move(token));
    } else {
      if (rest[0] == '\\' && rest.size() > 1) ++i;
      tokens.push_back({Kind::kCharacter, pattern[i++]});
    }
  }
  return tokens;
}

Result<Glob> Glob::parse(std::string_view pattern) {
  if (pattern.size() > kGlobLongest) {
    return fail(Status::invalid("the pattern is longer than " + std::to_string(kGlobLongest) + " characters"));
  }
  std::vector<std::string> expanded;
  TRY(expand_braces(std::string(pattern), expanded));
  Glob glob;
  for (const auto& alternative : expanded) glob.alternatives_.push_back(TRY(tokens_of(alternative)));
  return glob;
}

bool Glob::matches(std::string_view path) const {
  return std::any_of(alternatives_.begin(), alternatives_.end(),
                     [&](const Tokens& tokens) { return match(tokens, path); });
}

bool Glob::match(const Tokens& tokens, std::string_view path) {
  // Which tokens could come next: all ways through the pattern at once, so that none is ever tried again.
  std::vector<bool> now(tokens.size() + 1), next(tokens.size() + 1);
  const auto skip_empty = [&](std::vector<bool>& states, bool name_begins) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Kind kind = tokens[i].kind;
      const bool may_be_empty = kind == Kind::kName || kind == Kind::kRest || (kind == Kind::kFolders && name_begins);
      if (states[i] && may_be_empty) states[i + 1] = true;
    }
  };
  now[0] = true;
  skip_empty(now, true);
  for (const char c : path) {
    std::fill(next.begin(), next.end(), false);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!now[i]) continue;
      const Token& token = tokens[i];
      switch (token.kind) {
        case Kind::kCharacter:
          if (c == token.character) next[i + 1] = true;
          break;
        case Kind::kAny:
          if (c != '/') next[i + 1] = true;
          break;
        case Kind::kSet:
          if (token.set[static_cast<unsigned char>(c)]) next[i + 1] = true;
          break;
        case Kind::kName:
          if (c != '/') next[i] = true;
          break;
        case Kind::kFolders:
        case Kind::kRest:
          next[i] = true;
          break;
      }
    }
    skip_empty(next, c == '/');
    now.swap(next);
  }
  return now.back();
}

}  // namespace tandem::envs
