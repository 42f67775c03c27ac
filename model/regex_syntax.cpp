#include "model/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "model/unicode16.h"

namespace tandem::model {
namespace {

constexpr std::string_view kOnigurumaSpaces =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexDigits = "0-9a-fA-F";
constexpr int kMostDeep = 16, kMostRepetitions = 65535;

// Sets that are the same in both, or known where they differ (model/unicode16.h).
constexpr std::array<std::string_view, 33> kCategories = {
    "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "N", "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe",
    "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs", "Cc", "Cf", "Co"};
constexpr std::array<std::string_view, 21> kScriptNames = {
    "Han",      "Latin",  "Greek", "Cyrillic",   "Hiragana", "Katakana", "Hangul",
    "Arabic",   "Hebrew", "Thai",  "Devanagari", "Bengali",  "Tamil",    "Armenian",
    "Georgian", "Khmer",  "Lao",   "Tibetan",    "Myanmar",  "Ethiopic", "Telugu"};

template <size_t Size>
bool name_is_of(const std::array<std::string_view, Size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What stands in a class for a category, completed by what PCRE2 lacks of it.
std::string members_of(std::string_view name) {
  std::string members = fmt::format("\\p{{{}{}}}", name_is_of(kScriptNames, name) ? "sc:" : "", name);
  for (const NewCharacters& entry : kNewCharacters)
    if (entry.category == name) members += entry.ranges;
  return members;
}

// What Oniguruma takes for \w. Within a class some numbers of Latin-1 are none.
std::string word_members(bool in_class) {
  std::string members;
  for (const auto name : {"L", "M", "Nd", "Nl", "Pc"}) members += members_of(name);
  members += R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
  return in_class ? members : members + R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
}

// Letters that Oniguruma takes for one where case does not count: it compares "ss" with "ß" and "fi" with "ﬁ".
constexpr std::array<std::string_view, 5> kJoinedLetters = {"ss", "st", "ff", "fi", "fl"};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> translated() {
    while (at_ < pattern_.size()) {
      if (!TRY(step())) joined_ = '\0';
    }
    if (groups_.size() > 1) return fail(wrong("a ( without its )"));
    close_options();
    return std::move(out_);
  }

 private:
  struct Options {
    bool any_case = false, dot_all = false, extended = false;
  };
  struct Group {
    Options options;
    size_t begin = 0;      // in `out_`
    int opened = 0;        // groups that options have opened, which end with this one
    bool is_atom = false;  // it can be repeated
  };
  // A class as what PCRE2 has: characters in brackets, or a choice of groups that match one character each.
  struct Class {
    std::string plain;                // what stands in the brackets, or nothing
    std::vector<std::string> others;  // groups
    std::vector<std::string> within;  // of which all match too
    bool negated = false;

    bool is_plain() const { return others.empty() && within.empty(); }
    std::string positive() const {
      std::string any = plain.empty() ? "" : "[" + plain + "]";
      for (const auto& other : others) any += (any.empty() ? "" : "|") + other;
      if (others.size() + (plain.empty() ? 0 : 1) > 1) any = "(?:" + any + ")";
      std::string ahead;
      for (const auto& other : within) ahead += "(?=" + other + ")";
      return ahead.empty() ? any : "(?:" + ahead + any + ")";
    }
    std::string whole() const {
      if (is_plain()) return negated ? "[^" + plain + "]" : "[" + plain + "]";
      return negated ? "(?:(?!" + positive() + ")(?s:.))" : positive();
    }
  };

  Status wrong(std::string_view what) const {
    return Status::invalid(fmt::format("regular expression \"{}\": {}", pattern_, what));
  }
  Status unknown(std::string_view construct) const {
    return wrong(fmt::format("{} is not supported", construct))
        .hint("Oniguruma, which HF tokenizers uses, has it; write the pattern without it");
  }
  std::string_view rest() const { return pattern_.substr(std::min(at_, pattern_.size())); }
  Options& options() { return groups_.back().options; }

  void add_atom(std::string_view text) {
    atom_ = out_.size();
    repeated_ = false;
    out_ += text;
  }
  void add_other(std::string_view text) {
    atom_.reset();
    out_ += text;
  }
  void close_options() {
    out_.append(static_cast<size_t>(groups_.back().opened), ')');
    groups_.back().opened = 0;
  }

  // One construct; true where it was a letter, which may be joined with the next.
  Result<bool> step() {
    const char c = pattern_[at_];
    if (options().extended && (std::string_view(" \t\r\n\f\v").find(c) != std::string_view::npos || c == '#')) {
      at_ = c == '#' ? std::min(pattern_.find('\n', at_), pattern_.size()) : at_ + 1;
      return true;
    }
    switch (c) {
      case '[':
        add_atom(TRY(class_at(0)).whole());
        return false;
      case '(':
        TRY(open());
        return false;
      case ')': {
        if (groups_.size() == 1) return fail(wrong("a ) without its ("));
        close_options();
        const Group group = groups_.back();
        groups_.pop_back();
        out_ += ')';
        atom_ = group.is_atom ? std::optional(group.begin) : std::nullopt;
        repeated_ = false;
        ++at_;
        return false;
      }
      case '*':
      case '+':
      case '?':
      case '{':
        return repeat();
      case '.':
        add_atom(options().dot_all ? "(?s:.)" : "[^\\n]");
        ++at_;
        return false;
      case '|':
      case '^':
      case '$':
        add_other(std::string_view(&c, 1));
        ++at_;
        return false;
      case '\\':
        return escape();
      default:
        return literal(next_character(rest()));
    }
  }

  Result<bool> literal(const Utf8Step& step) {
    const auto text = rest().substr(0, step.length);
    at_ += step.length;
    return character(step.character, text);
  }

  // A character that stands for itself.
  Result<bool> character(char32_t c, std::string_view text = {}) {
    if (options().any_case) {
      if (c >= 0x80) return fail(unknown("a character beyond ASCII where case does not count"));
      const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c);
      const std::array<char, 2> pair = {joined_, small};
      if (name_is_of(kJoinedLetters, std::string_view(pair.data(), 2)))
        return fail(unknown(fmt::format("\"{}{}\" where case does not count", joined_, small)));
      joined_ = small;
    }
    if (text.empty() || text == "{")
      add_atom(fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(c)));
    else
      add_atom(text);
    return true;
  }

  Status open() {
    const size_t begin = out_.size();
    ++at_;
    Options inner = options();
    if (!rest().starts_with('?')) {
      out_ += '(';
      ++captures_;
      groups_.push_back({.options = inner, .begin = begin, .opened = 0, .is_atom = true});
      atom_.reset();
      return {};
    }
    for (const std::string_view head : {"?:", "?>", "?=", "?!", "?<=", "?<!"}) {
      if (!rest().starts_with(head)) continue;
      at_ += head.size();
      out_ += fmt::format("({}", head);
      groups_.push_back({.options = inner, .begin = begin, .opened = 0, .is_atom = head == "?:" || head == "?>"});
      atom_.reset();
      return {};
    }
    if (rest().starts_with("?#")) {
      const size_t end = rest().find(')');
      if (end == std::string_view::npos) return wrong("a comment without its )");
      at_ += end + 1;
      return {};
    }
    if (rest().starts_with("?<")) {  // a name, to which nothing here refers
      const size_t end = rest().find('>');
      const auto name = rest().substr(2, std::min(end, rest().size()) - 2);
      const auto is_word = [](char c) {
        return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      };
      if (end == std::string_view::npos || name.empty() || !std::all_of(name.begin(), name.end(), is_word))
        return unknown("a group (?< of this kind");
      at_ += end + 1;
      named_ = true;
      out_ += "(?:";
      groups_.push_back({.options = inner, .begin = begin, .opened = 0, .is_atom = true});
      atom_.reset();
      return {};
    }
    bool on = true;
    size_t i = 1;
    for (; i < rest().size() && rest()[i] != ':' && rest()[i] != ')'; ++i) {
      if (rest()[i] == '-')
        on = false;
      else if (rest()[i] == 'i')
        inner.any_case = on;
      else if (rest()[i] == 'm')
        inner.dot_all = on;
      else if (rest()[i] == 'x')
        inner.extended = on;
      else
        return unknown(fmt::format("(?{}", rest().substr(1, i)));
    }
    if (i == rest().size() || i == 1) return unknown("a group (? of this kind");
    out_ += inner.any_case ? "(?i:" : "(?-i:";
    atom_.reset();
    // Options alone hold to the end of the group that they stand in, its alternatives included.
    if (rest()[i] == ')') {
      options() = inner;
      ++groups_.back().opened;
    } else {
      groups_.push_back({.options = inner, .begin = begin, .opened = 0, .is_atom = true});
    }
    at_ += i + 1;
    return {};
  }

  // {n}, {n,}, {,n} and {n,m}.
  struct Interval {
    int64_t least = 0, most = -1;
    size_t length = 0;
    bool exact = false;
  };
  std::optional<Interval> interval() const {
    Interval found;
    size_t i = 1;
    const auto number = [&](int64_t& value) {
      const size_t begin = i;
      for (value = 0; i < rest().size() && rest()[i] >= '0' && rest()[i] <= '9' && i < begin + 9; ++i)
        value = value * 10 + (rest()[i] - '0');
      return i > begin;
    };
    const bool has_least = number(found.least);
    if (rest().substr(i).starts_with(',')) {
      ++i;
      int64_t most = 0;
      if (number(most))
        found.most = most;
      else if (!has_least)
        return std::nullopt;
    } else {
      if (!has_least) return std::nullopt;
      found.most = found.least;
      found.exact = true;
    }
    if (!rest().substr(i).starts_with('}')) return std::nullopt;
    found.length = i + 1;
    return found;
  }

  Result<bool> repeat() {
    const auto found = rest()[0] == '{' ? interval() : std::nullopt;
    if (rest()[0] == '{' && !found) return literal({.length = 1, .character = U'{'});
    if (!atom_) return fail(wrong(fmt::format("nothing to repeat before {}", rest().substr(0, 1))));
    // What is repeated already is repeated as a whole: Oniguruma reads {n}+ and ** so.
    if (repeated_) {
      out_.insert(*atom_, "(?:");
      out_ += ')';
    }
    repeated_ = true;
    if (!found) {
      out_ += rest()[0];
      ++at_;
      if (rest().starts_with('?') || rest().starts_with('+')) {
        out_ += rest()[0];
        ++at_;
      }
      return false;
    }
    if (found->least > kMostRepetitions || found->most > kMostRepetitions ||
        (found->most >= 0 && found->most < found->least))
      return fail(unknown(rest().substr(0, found->length)));
    out_ += found->exact      ? fmt::format("{{{}}}", found->least)
            : found->most < 0 ? fmt::format("{{{},}}", found->least)
                              : fmt::format("{{{},{}}}", found->least, found->most);
    at_ += found->length;
    if (!found->exact && rest().starts_with('?')) {
      out_ += '?';
      ++at_;
    }
    return false;
  }

  // \xHH, \x{H..} and \uHHHH at `at_`; nothing for others.
  Result<std::optional<char32_t>> code_point() {
    const char kind = rest()[1];
    const bool braces = kind == 'x' && rest().substr(2).starts_with('{');
    size_t i = braces ? 3 : 2;
    const size_t begin = i, most = braces ? 8 : kind == 'x' ? 2 : 4;
    uint32_t value = 0;
    for (; i < rest().size() && i < begin + most && std::isxdigit(static_cast<unsigned char>(rest()[i])) != 0; ++i) {
      const char c = rest()[i];
      value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    const bool whole = braces ? i > begin && rest().substr(i).starts_with('}') : i == begin + most;
    // \x80 and up is a byte to Oniguruma, and a character to PCRE2.
    if (!whole || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) || (kind == 'x' && !braces && value >= 0x80))
      return fail(unknown(fmt::format("\\{} of this kind", kind)));
    at_ += braces ? i + 1 : i;
    return std::optional<char32_t>(value);
  }

  // The character that an escape at `at_` stands for, in a class or outside; nothing where it stands for others.
  Result<std::optional<char32_t>> escaped_character(bool in_class) {
    const auto step = next_character(rest().substr(1));
    const char32_t c = step.character;
    if (c == 'x' || c == 'u') return code_point();
    constexpr std::string_view kFrom = "tnrfvae", kTo = "\t\n\r\f\v\a\x1b";
    const bool letter = c < 0x80 && std::isalnum(static_cast<int>(c)) != 0;
    const size_t control = letter ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    std::optional<char32_t> meant;
    if (control != std::string_view::npos) meant = static_cast<char32_t>(kTo[control]);
    if (in_class && c == 'b') meant = U'\b';
    if (!letter) meant = c;
    if (meant) at_ += 1 + step.length;
    return meant;
  }

  // A set that an escape at `at_` names, as what stands in a class; its complement is told apart.
  struct Set {
    std::string members;
    bool negated = false;
  };
  Result<std::optional<Set>> escaped_set(bool in_class) {
    const char c = rest()[1];
    const bool capital = c >= 'A' && c <= 'Z';
    const auto made = [&](std::string members) {
      at_ += 2;
      return std::optional(Set{.members = std::move(members), .negated = capital});
    };
    switch (c | 32) {
      case 's':
        return made(std::string(kOnigurumaSpaces));
      case 'h':
        return made(std::string(kHexDigits));
      case 'd':
        return made(members_of("Nd"));
      case 'w':
        if (options().any_case) return fail(unknown("\\w where case does not count"));
        return made(word_members(in_class));
      case 'p':
        break;
      default:
        return std::optional<Set>();
    }
    const size_t close = rest().find('}');
    if (rest().substr(2, 1) != "{" || close == std::string_view::npos) return fail(unknown("\\p without braces"));
    auto name = rest().substr(3, close - 3);
    const bool turned = name.starts_with('^');
    if (turned) name.remove_prefix(1);
    if (!name_is_of(kCategories, name) && !name_is_of(kScriptNames, name))
      return fail(unknown(fmt::format("\\p{{{}}}", name)));
    if (options().any_case) return fail(unknown(fmt::format("\\p{{{}}} where case does not count", name)));
    at_ += close + 1;
    return std::optional(Set{.members = members_of(name), .negated = capital != turned});
  }

  Result<bool> escape() {
    if (rest().size() < 2) return fail(wrong("a \\ at its end"));
    const char c = rest()[1];
    if (auto set = TRY(escaped_set(false))) {
      add_atom(fmt::format("[{}{}]", set->negated ? "^" : "", set->members));
      return false;
    }
    if (const auto meant = TRY(escaped_character(false))) return character(*meant);
    if (c == 'R' || c == 'N' || c == 'O') {
      add_atom(c == 'R' ? "\\R" : c == 'N' ? "[^\\n]" : "(?s:.)");
    } else if (c == 'A' || c == 'z' || c == 'Z') {
      add_other(rest().substr(0, 2));
    } else if (c == 'b' || c == 'B') {
      const std::string w = "[" + word_members(false) + "]";
      add_other(c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", w)
                         : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", w));
    } else if (c >= '1' && c <= '9' && !named_ && c - '0' <= captures_ &&
               (rest().size() == 2 || std::isdigit(static_cast<unsigned char>(rest()[2])) == 0)) {
      add_atom(fmt::format("\\g{{{}}}", c));
    } else {
      return fail(unknown(fmt::format("\\{}", c)));
    }
    at_ += 2;
    return false;
  }

  static void add_set(const Set& set, Class& side) {
    if (set.negated)
      side.others.push_back("[^" + set.members + "]");
    else
      side.plain += set.members;
  }

  Status add_posix(Class& side) {
    const size_t end = rest().find(":]");
    auto name = rest().substr(2, end - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const std::pair<std::string_view, std::string> sets[] = {
        {"space", std::string(kOnigurumaSpaces)},     {"digit", members_of("Nd")}, {"xdigit", std::string(kHexDigits)},
        {"blank", "\\x09" + members_of("Zs")},        {"cntrl", members_of("Cc")}, {"word", word_members(true)},
        {"punct", members_of("P") + members_of("S")}, {"ascii", "\\x00-\\x7f"}};
    for (const auto& [known, members] : sets) {
      if (known != name) continue;
      if (options().any_case) return unknown("[[:name:]] where case does not count");
      add_set({.members = members, .negated = negated}, side);
      at_ += end + 2;
      return {};
    }
    return unknown(fmt::format("[:{}:]", name));
  }

  // A character of a class at `at_`; nothing where something else stands there.
  Result<std::optional<char32_t>> class_character() {
    if (rest().starts_with('\\')) {
      if (rest().size() < 2) return fail(wrong("a \\ at its end"));
      return escaped_character(true);
    }
    const auto step = next_character(rest());
    at_ += step.length;
    return std::optional(step.character);
  }

  Result<Class> class_at(int depth) {
    if (depth > kMostDeep) return fail(wrong("classes within each other are nested too deep"));
    ++at_;
    Class made;
    if (rest().starts_with('^')) {
      made.negated = true;
      ++at_;
    }
    std::vector<Class> sides(1);
    for (bool first = true;; first = false) {
      if (rest().empty()) return fail(wrong("a [ without its ]"));
      Class& side = sides.back();
      if (rest()[0] == ']' && !first) break;
      if (rest().starts_with("&&")) {
        sides.emplace_back();
        at_ += 2;
      } else if (rest().starts_with("[:") && rest().find(":]") != std::string_view::npos) {
        TRY(add_posix(side));
      } else if (rest().starts_with("[=") || rest().starts_with("[.")) {
        return fail(unknown(rest().substr(0, 2)));
      } else if (rest()[0] == '[') {
        const Class inner = TRY(class_at(depth + 1));
        if (inner.is_plain() && !inner.negated)
          side.plain += inner.plain;
        else
          side.others.push_back(inner.whole());
      } else {
        TRY(add_members(side));
      }
    }
    ++at_;
    for (const Class& side : sides)
      if (side.plain.empty() && side.others.empty()) return fail(unknown("an empty part of a class"));
    const bool negated = made.negated;
    made = sides[0];
    made.negated = negated;
    for (size_t i = 1; i < sides.size(); ++i) made.within.push_back(sides[i].positive());
    return made;
  }

  // A set, a character, or a range of them.
  Status add_members(Class& side) {
    if (rest().starts_with('\\') && rest().size() > 1) {
      if (const auto set = TRY(escaped_set(true))) {
        add_set(*set, side);
        return {};
      }
    }
    const bool dash = rest().starts_with('-');
    const auto from = TRY(class_character());
    if (!from) return unknown(fmt::format("\\{} in a class", rest().substr(1, 1)));
    char32_t to = *from;
    const auto behind = rest().size() > 1 ? rest().substr(1) : std::string_view();
    const bool set_behind = behind.size() > 1 && behind[0] == '\\' &&
                            std::string_view("sSwWdDhHpP").find(behind[1]) != std::string_view::npos;
    if (rest().starts_with('-') && !behind.empty() && behind[0] != ']' && behind[0] != '[' && !set_behind &&
        !behind.starts_with("&&")) {
      if (dash) return unknown("a range that begins with -");
      ++at_;
      const auto last = TRY(class_character());
      if (!last) return unknown(fmt::format("\\{} in a class", rest().substr(1, 1)));
      to = *last;
      if (to < *from) return wrong("a range that ends before it begins");
    }
    if (options().any_case && to >= 0x80) return unknown("a character beyond ASCII where case does not count");
    side.plain += to == *from
                      ? fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(to))
                      : fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(*from), static_cast<uint32_t>(to));
    return {};
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_ = std::vector<Group>(1);
  std::optional<size_t> atom_;  // where in `out_` it begins what a quantifier repeats
  bool repeated_ = false;       // that has a quantifier already
  bool named_ = false;
  int captures_ = 0;
  char joined_ = '\0';  // the letter before, where case does not count
};

}  // namespace

Result<std::string> pcre2_of_oniguruma(std::string_view pattern) { return Translator(pattern).translated(); }

}  // namespace tandem::model
