#include "model/constraint/pattern_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace tandem::model::constraint {

namespace {

using Ranges = std::vector<CharacterRange>;

constexpr int kMaxDepth = 100;
constexpr uint32_t kMaxRepeats = 10'000;

void normalise(Ranges& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CharacterRange& a, const CharacterRange& b) { return a.first < b.first; });
  Ranges merged;
  for (const auto& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, range.last);
    else
      merged.push_back(range);
  }
  ranges.clear();
  for (const auto& range : merged) {  // without surrogates
    if (range.first < 0xD800) ranges.push_back({range.first, std::min<char32_t>(range.last, 0xD7FF)});
    if (range.last > 0xDFFF) ranges.push_back({std::max<char32_t>(range.first, 0xE000), range.last});
  }
}

Ranges complement(Ranges ranges) {
  normalise(ranges);
  Ranges out;
  char32_t from = 0;
  for (const auto& range : ranges) {
    if (range.first > from) out.push_back({from, range.first - 1});
    from = range.last + 1;
  }
  if (from <= kLastCharacter) out.push_back({from, kLastCharacter});
  normalise(out);
  return out;
}

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                       {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  explicit Parser(std::u32string text) : text_(std::move(text)) {}

  Result<PatternNode> run() {
    PatternNode root = TRY(choice(0));
    if (at_ < text_.size()) return wrong("a ) without its (");
    return root;
  }

 private:
  bool more() const { return at_ < text_.size(); }
  bool take(char32_t c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view word) {
    if (std::u32string_view(text_).substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  Failure wrong(std::string_view what) const {
    return fail(Status::invalid(fmt::format("the pattern has {} at character {}", what, at_ + 1)));
  }
  Failure not_implemented(std::string_view what) const {
    return fail(Status::invalid(
        fmt::format("the pattern has {} at character {}, which no automaton here can do", what, at_ + 1)));
  }

  Result<PatternNode> choice(int depth) {
    if (depth > kMaxDepth) return wrong("groups nested too deep");
    PatternNode out{.kind = PatternNode::kChoice};
    do {
      out.children.push_back(TRY(sequence(depth)));
    } while (take(U'|'));
    if (out.children.size() > 1) return out;
    PatternNode only = std::move(out.children.front());
    return only;
  }

  Result<PatternNode> sequence(int depth) {
    PatternNode out;
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      PatternNode item = TRY(atom(depth));
      const bool assertion = item.kind == PatternNode::kBegin || item.kind == PatternNode::kEnd;
      const size_t before = at_;
      PatternNode repeated = TRY(quantified(std::move(item)));
      if (assertion && at_ != before) return wrong("a quantifier behind ^ or $");
      out.children.push_back(std::move(repeated));
    }
    return out;
  }

  Result<PatternNode> quantified(PatternNode item) {
    uint32_t least = 0;
    std::optional<uint32_t> most;
    if (take(U'*')) {
    } else if (take(U'+')) {
      least = 1;
    } else if (take(U'?')) {
      most = 1;
    } else if (take(U'{')) {
      least = TRY(number());
      most = least;
      if (take(U',')) {
        most.reset();
        if (more() && text_[at_] != '}') most = TRY(number());
      }
      if (!take(U'}')) return wrong("a { that is no quantifier");
      if (most && *most < least) return wrong("a quantifier whose numbers are out of order");
    } else {
      return item;
    }
    take(U'?');
    if (more() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?' || text_[at_] == '{'))
      return wrong("a quantifier behind a quantifier");
    PatternNode out{.kind = PatternNode::kRepeat, .least = least, .most = most};
    out.children.push_back(std::move(item));
    return out;
  }

  Result<uint32_t> number() {
    uint64_t value = 0;
    const size_t begin = at_;
    for (; more() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > kMaxRepeats) return wrong(fmt::format("a quantifier above {}", kMaxRepeats));
    }
    if (at_ == begin) return wrong("a { that is no quantifier");
    return static_cast<uint32_t>(value);
  }

  static PatternNode of(Ranges ranges) {
    normalise(ranges);
    return {.kind = PatternNode::kCharacters, .characters = std::move(ranges)};
  }

  Result<PatternNode> atom(int depth) {
    const char32_t c = text_[at_];
    switch (c) {
      case '^':
        ++at_;
        return PatternNode{.kind = PatternNode::kBegin};
      case '$':
        ++at_;
        return PatternNode{.kind = PatternNode::kEnd};
      case '.':
        ++at_;
        return of(complement(kLineEnds));
      case '(': {
        if (take(U"(?=") || take(U"(?!") || take(U"(?<=") || take(U"(?<!")) return not_implemented("look-around");
        if (take(U"(?<")) {
          while (more() && text_[at_] != '>') ++at_;
          if (!take(U'>')) return wrong("a group's name without its >");
        } else if (!take(U"(?:")) {
          ++at_;
          if (more() && text_[at_] == '?') return not_implemented("a group of an unknown kind");
        }
        PatternNode inside = TRY(choice(depth + 1));
        if (!take(U')')) return wrong("a ( without its )");
        return inside;
      }
      case '[':
        ++at_;
        return character_class();
      case '\\':
        ++at_;
        return of(TRY(escape(false)));
      case '*':
      case '+':
      case '?':
      case '{':
        return wrong("a quantifier with nothing before it");
      default:
        ++at_;
        return of({{c, c}});
    }
  }

  Result<PatternNode> character_class() {
    const bool negated = take(U'^');
    Ranges ranges;
    while (more() && text_[at_] != ']') {
      Ranges item = TRY(class_item());
      const bool single = item.size() == 1 && item[0].first == item[0].last;
      if (more() && text_[at_] == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const Ranges last = TRY(class_item());
        if (!single || last.size() != 1 || last[0].first != last[0].last || last[0].first < item[0].first)
          return wrong("a range in [] whose ends are out of order or no characters");
        item[0].last = last[0].first;
      }
      ranges.insert(ranges.end(), item.begin(), item.end());
    }
    if (!take(U']')) return wrong("a [ without its ]");
    return of(negated ? complement(std::move(ranges)) : std::move(ranges));
  }

  Result<Ranges> class_item() {
    if (take(U'\\')) return escape(true);
    const char32_t c = text_[at_++];
    return Ranges{{c, c}};
  }

  Result<char32_t> hexadecimal(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char32_t c = more() ? text_[at_] : 0;
      if (c >= '0' && c <= '9')
        value = value * 16 + (c - '0');
      else if ((c | 32) >= 'a' && (c | 32) <= 'f')
        value = value * 16 + ((c | 32) - 'a' + 10);
      else
        return wrong("an escape without its hexadecimal digits");
    }
    return value;
  }

  Result<Ranges> escape(bool in_class) {
    if (!more()) return wrong("a \\ with nothing behind it");
    const char32_t c = text_[at_++];
    const auto one = [](char32_t value) { return Ranges{{value, value}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        if (more() && text_[at_] >= '0' && text_[at_] <= '9') return wrong("an octal escape");
        return one(0);
      case 'b':
        if (in_class) return one('\b');
        return not_implemented("\\b");
      case 'B':
        return not_implemented("\\B");
      case 'p':
      case 'P':
        return not_implemented("\\p");
      case 'k':
        return not_implemented("a back reference");
      case 'c': {
        const char32_t letter = more() ? text_[at_++] | 32 : 0;
        if (letter < 'a' || letter > 'z') return wrong("a \\c without its letter");
        return one(letter - 'a' + 1);
      }
      case 'x':
        return one(TRY(hexadecimal(2)));
      case 'u': {
        if (take(U'{')) {
          size_t digits = 0;
          while (at_ + digits < text_.size() && text_[at_ + digits] != '}') ++digits;
          if (digits == 0 || digits > 6) return wrong("an escape without its hexadecimal digits");
          const char32_t value = TRY(hexadecimal(digits));
          if (!take(U'}') || value > kLastCharacter) return wrong("an escape of no character");
          return one(value);
        }
        char32_t value = TRY(hexadecimal(4));
        if (value >= 0xD800 && value < 0xDC00 && take(U"\\u")) {
          const char32_t low = TRY(hexadecimal(4));
          if (low < 0xDC00 || low > 0xDFFF) return wrong("half a surrogate pair");
          value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        }
        return one(value);
      }
      default:
        if (c >= '1' && c <= '9') return not_implemented("a back reference");
        if (c < 128 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
          return wrong(fmt::format("the unknown escape \\{}", static_cast<char>(c)));
        return one(c);
    }
  }

  std::u32string text_;
  size_t at_ = 0;
};

}  // namespace

Result<PatternNode> parse_pattern(std::string_view pattern) {
  std::u32string text;
  while (!pattern.empty()) {
    const auto step = next_character(pattern);
    if (step.kind != Utf8Step::kCharacter) return fail(Status::invalid("the pattern is not UTF-8"));
    text.push_back(step.character);
    pattern.remove_prefix(step.length);
  }
  return Parser(std::move(text)).run();
}

}  // namespace tandem::model::constraint
