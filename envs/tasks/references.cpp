#include "envs/tasks/references.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::envs {
namespace {

constexpr int kDeepest = 16;
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

constexpr std::string_view kDigitsOfName = "0123456789";
constexpr std::string_view kParametersOfShell = "@*#?-$!";

// Whether what stands there is escaped.
bool is_escaped(std::string_view text, const ReferenceRules& rules) {
  return text.size() > 1 && text[0] == rules.escape &&
         (text[1] == '$' || (rules.escapes_itself && text[1] == rules.escape));
}

// As docker-compose knows them, after a dollar: a brace may stand in front.
bool begins_name(std::string_view text) {
  if (text.starts_with('{')) text.remove_prefix(1);
  return !text.empty() && kLetters.find(text[0]) != std::string_view::npos &&
         kDigitsOfName.find(text[0]) == std::string_view::npos;
}

// Behind a parameter of a shell ("$12", "$$"); 0 where there is none.
size_t end_of_parameter(std::string_view text) {
  if (text.size() < 2 || text[0] != '$') return 0;
  if (kParametersOfShell.find(text[1]) != std::string_view::npos) return 2;
  const size_t end = std::min(text.find_first_not_of(kDigitsOfName, 1), text.size());
  return end > 1 ? end : 0;
}

// Behind the brace that ends a reference with braces; npos where none does.
size_t end_of_braces(std::string_view text, const ReferenceRules& rules) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_escaped(text.substr(i), rules)) {
      ++i;
    } else if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{') {
      ++depth, ++i;
    } else if (text[i] == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

class Replacer {
 public:
  Replacer(const ReferenceRules& rules, const ValueOf& value_of) : rules_(rules), value_of_(value_of) {}

  Result<std::string> replaced(std::string_view text, int depth) const {
    if (depth > kDeepest) return fail(Status::invalid("its references are too deep in each other"));
    std::string result;
    while (!text.empty()) {
      if (is_escaped(text, rules_)) {
        result += rules_.unset == Unset::kKept ? text.substr(0, 2) : text.substr(1, 1);
        text.remove_prefix(2);
      } else if (rules_.escape == '$' && text[0] == '$' && !begins_name(text.substr(1))) {
        return fail(Status::invalid(fmt::format("invalid interpolation format: {}; a dollar is written $$", text)));
      } else if (const size_t parameter = end_of_parameter(text); parameter > 0) {
        text.remove_prefix(parameter);
      } else if (text[0] == '$' && text.size() > 1 && text[1] == '{') {
        const size_t end = end_of_braces(text, rules_);
        if (end == std::string_view::npos) return fail(Status::invalid(fmt::format("{} has no end", text)));
        result += TRY(in_braces(text.substr(0, end), depth));
        text.remove_prefix(end);
      } else if (const size_t end = std::min(text.find_first_not_of(kLetters, 1), text.size());
                 text[0] == '$' && end > 1) {
        result += TRY(plain(text.substr(0, end), text.substr(1, end - 1)));
        text.remove_prefix(end);
      } else {
        result += text[0];
        text.remove_prefix(1);
      }
    }
    return result;
  }

 private:
  Result<std::string> plain(std::string_view reference, std::string_view name) const {
    if (const auto value = value_of_(name)) return written(*value);
    if (rules_.unset == Unset::kRefused) return fail(Status::invalid(fmt::format("{} is not set", name)));
    return std::string(rules_.unset == Unset::kKept ? reference : "");
  }

  Result<std::string> in_braces(std::string_view reference, int depth) const {
    const auto inside = reference.substr(2, reference.size() - 3);
    const size_t length = std::min(inside.find_first_not_of(kLetters), inside.size());
    const auto name = inside.substr(0, length);
    auto rest = inside.substr(length);
    if (rest.empty() && !name.empty()) return plain(reference, name);
    const bool has_colon = rest.starts_with(':');
    if (has_colon) rest.remove_prefix(1);
    if (name.empty() || rest.empty() || std::string_view("-+?").find(rest[0]) == std::string_view::npos)
      return rules_.unset == Unset::kKept ? Result<std::string>(std::string(reference))
                                          : fail(Status::invalid(fmt::format("{} is not supported", reference)));
    const auto value = value_of_(name);
    const bool is_set = value && !(has_colon && value->empty());
    const char mark = rest[0];
    const auto text = TRY(replaced(rest.substr(1), depth + 1));
    if (!value && rules_.unset == Unset::kKept)
      return fmt::format("${{{}{}{}{}}}", name, has_colon ? ":" : "", mark, text);
    if (mark == '+') return is_set ? text : std::string();
    if (is_set) return written(*value);
    if (mark == '-') return text;
    return fail(Status::invalid(fmt::format("{} is not set{}{}", name, text.empty() ? "" : ": ", text)));
  }

  std::string written(const std::string& value) const {
    if (rules_.unset != Unset::kKept) return value;
    std::string text;
    for (const char c : value) {
      if (c == '$' || (rules_.escapes_itself && c == rules_.escape)) text += rules_.escape;
      text += c;
    }
    return text;
  }

  const ReferenceRules rules_;
  const ValueOf& value_of_;
};

}  // namespace

Result<std::string> without_references(std::string_view text, const ReferenceRules& rules, const ValueOf& value_of) {
  return Replacer(rules, value_of).replaced(text, 0);
}

}  // namespace tandem::envs
