#include "model/tool_dialects/python_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/utf8.h"

namespace tandem::model {

namespace {

constexpr size_t kMaxStart = 4096;
constexpr int kMaxDepth = 64;
constexpr std::string_view kPythonCallSpace = " \t\r\n";
constexpr std::string_view kCall = ".call(";

bool begins_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_word(char c) { return begins_word(c) || is_digit(c); }

// Bytes of the word at `at`.
size_t word_at(std::string_view text, size_t at) {
  if (at >= text.size() || !begins_word(text[at])) return 0;
  const auto end = std::find_if_not(text.begin() + static_cast<ptrdiff_t>(at), text.end(), in_word);
  return static_cast<size_t>(end - text.begin()) - at;
}

class LiteralReader {
 public:
  LiteralReader(std::string_view text, size_t begin) : text_(text), begin_(begin), at_(begin) {}

  size_t at() const { return at_; }

  Result<Json> alone() {
    Json value = TRY(literal(0));
    if (next() != '\0' || at_ < text_.size()) return wrong("more than one value stands there");
    return value;
  }

  Result<ToolCall> call() {
    ToolCall call{.name = std::string(word())};
    at_ += kCall.size();
    for (;;) {
      if (next() == ')') break;
      const std::string key(word());
      if (key.empty() || next() != '=') return wrong("a keyword and = are missing");
      ++at_;
      Json value = TRY(literal(0));
      if (!call.arguments.emplace(key, std::move(value)).second) return wrong(fmt::format("{} is given twice", key));
      if (next() == ',') {
        ++at_;
      } else if (next() != ')') {
        return wrong("a comma or the closing bracket is missing");
      }
    }
    ++at_;
    return call;
  }

 private:
  // The next byte that is no white space, and 0 at the end.
  char next() {
    at_ = std::min(text_.find_first_not_of(kPythonCallSpace, at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::string_view word() {
    const auto found = text_.substr(at_, word_at(text_, at_));
    at_ += found.size();
    return found;
  }

  Failure wrong(std::string_view what) const {
    const auto before = text_.substr(begin_, at_ - begin_);
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t column = before.size() - (line == 0 ? 0 : before.rfind('\n') + 1);
    return fail(Status::invalid(fmt::format(
        "{} at line {} column {} of the call, which is NAME.call(key=value, ...) with Python's literals as values",
        what, line + 1, column + 1)));
  }

  Result<Json> literal(int depth) {
    if (depth > kMaxDepth) return wrong(fmt::format("a value is nested more than {} deep", kMaxDepth));
    const char c = next();
    if (c == '"' || c == '\'') return Json(TRY(string()));
    if (c == '[') return list(']', depth);
    if (c == '(') return list(')', depth);
    if (c == '{') return dictionary(depth);
    const size_t begin = at_;
    if (begins_word(c)) {
      const auto name = word();
      if (name == "None") return Json(nullptr);
      if (name == "True" || name == "False") return Json(name == "True");
      at_ = begin;
      return wrong(fmt::format("{} is no literal", name));
    }
    while (at_ < text_.size() &&
           (in_word(text_[at_]) || std::string_view("+-.").find(text_[at_]) != std::string_view::npos))
      ++at_;
    const auto sign = static_cast<size_t>(c == '+');
    auto number = parse_json(text_.substr(begin + sign, at_ - begin - sign));
    if (number && number->is_number()) return std::move(*number);
    at_ = begin;
    return wrong("there is no literal");
  }

  // Brackets around one value without a comma are only brackets.
  Result<Json> list(char close, int depth) {
    ++at_;
    Json items = Json::array();
    bool comma = close == ']';
    while (next() != close) {
      items.push_back(TRY(literal(depth + 1)));
      if (next() == ',') {
        comma = true;
        ++at_;
      } else if (next() != close) {
        return wrong(fmt::format("a comma or {} is missing", close));
      }
    }
    ++at_;
    if (!comma && items.size() == 1) return std::move(items[0]);
    return items;
  }

  Result<Json> dictionary(int depth) {
    ++at_;
    Json object = Json::object();
    while (next() != '}') {
      if (next() != '"' && next() != '\'') return wrong("a dictionary's key is no text");
      const std::string key = TRY(string());
      if (next() != ':') return wrong("a colon is missing");
      ++at_;
      object[key] = TRY(literal(depth + 1));
      if (next() == ',') {
        ++at_;
      } else if (next() != '}') {
        return wrong("a comma or } is missing");
      }
    }
    ++at_;
    return object;
  }

  Result<std::string> string() {
    const size_t begin = at_;
    const char quote = text_[at_];
    const bool three = text_.substr(at_, 3) == std::string(3, quote);
    const auto close = text_.substr(at_, three ? 3 : 1);
    at_ += close.size();
    std::string value;
    while (text_.substr(at_, close.size()) != close) {
      if (at_ >= text_.size() || (!three && text_[at_] == '\n')) {
        at_ = begin;
        return wrong("a text has no end");
      }
      if (text_[at_] != '\\') {
        value += text_[at_++];
      } else if (!escape(value)) {
        return wrong("a text has an escape that means no character");
      }
    }
    at_ += close.size();
    return value;
  }

  // Reads what begins with a backslash. One before any other character stands for itself.
  bool escape(std::string& value) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeaning = "\a\b\f\n\r\t\v\\'\"";
    if (at_ + 1 >= text_.size()) return false;
    const char c = text_[at_ + 1];
    const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (length > 0) {
      auto character = code(at_ + 2, length, 16);
      if (!character) return false;
      at_ += 2 + length;
      // A pair of surrogates, as JSON writes it, is one character.
      if (*character >= 0xD800 && *character < 0xDC00 && text_.substr(at_, 2) == "\\u") {
        const auto low = code(at_ + 2, 4, 16);
        if (!low || *low < 0xDC00 || *low > 0xDFFF) return false;
        character = 0x10000 + ((*character - 0xD800) << 10) + (*low - 0xDC00);
        at_ += 6;
      }
      return append(*character, value);
    }
    if (c >= '0' && c <= '7') {
      size_t digits = 1;
      while (digits < 3 && at_ + 1 + digits < text_.size() && text_[at_ + 1 + digits] >= '0' &&
             text_[at_ + 1 + digits] <= '7')
        ++digits;
      const auto character = code(at_ + 1, digits, 8);
      at_ += 1 + digits;
      return append(*character, value);
    }
    at_ += 2;
    if (c == '\n') return true;
    if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      value += kMeaning[known];
    } else {
      value += '\\';
      value += c;
    }
    return c != 'N';
  }

  std::optional<char32_t> code(size_t at, size_t digits, int base) const {
    const auto part = text_.substr(std::min(at, text_.size()), digits);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value, base);
    if (part.size() < digits || error != std::errc() || end != part.data() + digits) return std::nullopt;
    return value;
  }

  static bool append(char32_t character, std::string& value) {
    if (character > 0x10FFFF || (character >= 0xD800 && character <= 0xDFFF)) return false;
    append_utf8(character, value);
    return true;
  }

  std::string_view text_;
  size_t begin_, at_;
};

}  // namespace

PythonStart start_of_python(std::string_view text, bool whole) {
  if (text.size() > kMaxStart) {
    text = text.substr(0, kMaxStart);
    whole = true;
  }
  constexpr PythonStart kCode{.form = PythonForm::kCode};
  const PythonStart undecided{.form = whole ? PythonForm::kCode : PythonForm::kUndecided};
  const auto name = text.substr(0, word_at(text, 0));
  if (name.size() == text.size()) return undecided;
  const auto behind = text.substr(name.size());
  if (name.empty() || !behind.starts_with(kCall.substr(0, behind.size()))) return kCode;
  if (behind.size() < kCall.size()) return undecided;
  const PythonStart call{.form = PythonForm::kCall, .name = name};
  size_t at = text.find_first_not_of(kPythonCallSpace, name.size() + kCall.size());
  if (at == std::string_view::npos) return undecided;
  if (text[at] == ')') return call;
  const size_t keyword = word_at(text, at);
  if (keyword == 0) return kCode;
  at = text.find_first_not_of(kPythonCallSpace, at + keyword);
  if (at == std::string_view::npos) return undecided;
  if (text[at] != '=') return kCode;
  if (at + 1 == text.size()) return whole ? call : undecided;
  return text[at + 1] == '=' ? kCode : call;
}

Result<Json> read_python_literal(std::string_view text) { return LiteralReader(text, 0).alone(); }

Result<ToolCall> read_python_call(std::string_view text, size_t& at) {
  LiteralReader reader(text, at);
  ToolCall call = TRY(reader.call());
  at = reader.at();
  return call;
}

}  // namespace tandem::model
