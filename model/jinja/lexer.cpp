#include "model/jinja/lexer.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "model/jinja/value.h"

namespace tandem::model::jinja {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80); }

std::string with_plain_newlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();  // keep_trailing_newline is off
  return out;
}

// By its name in Unicode, or by a correction of that. Control characters have none.
char32_t character_named(std::string_view name) {
  const std::string text(name);
  for (const auto kind : {U_UNICODE_CHAR_NAME, U_CHAR_NAME_ALIAS}) {
    UErrorCode status = U_ZERO_ERROR;
    const UChar32 found = u_charFromName(kind, text.c_str(), &status);
    if (U_SUCCESS(status) && text.find('\0') == std::string::npos) return static_cast<char32_t>(found);
  }
  throw TemplateError(fmt::format("the name '{}' of a character is not supported", name));
}

// Python's unicode-escape.
std::string unescape(std::string_view raw) {
  std::string out;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 >= raw.size()) {
      out += raw[i];
      continue;
    }
    const char c = raw[++i];
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      out += kTo[at];
      continue;
    }
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      const std::string hex(raw.substr(i + 1, digits));
      char* end = nullptr;
      const unsigned long code = std::strtoul(hex.c_str(), &end, 16);
      if (hex.size() != static_cast<size_t>(digits) || *end != 0 || code > 0x10ffff ||
          (code >= 0xd800 && code < 0xe000)) {
        throw TemplateError(fmt::format("bad escape \\{}{} in a string", c, hex));
      }
      append_utf8(static_cast<char32_t>(code), out);
      i += digits;
    } else if (c >= '0' && c <= '7') {
      unsigned code = 0;
      size_t n = 0;
      for (; n < 3 && i + n < raw.size() && raw[i + n] >= '0' && raw[i + n] <= '7'; ++n)
        code = code * 8 + (raw[i + n] - '0');
      append_utf8(code, out);
      i += n - 1;
    } else if (c == 'N') {
      const size_t end = raw.find('}', i);
      const bool named = i + 1 < raw.size() && raw[i + 1] == '{' && end != std::string_view::npos;
      append_utf8(character_named(named ? raw.substr(i + 2, end - i - 2) : ""), out);
      i = end;
    } else if (c != '\n') {
      out += {'\\', c};
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_outside();
    add(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void stop(const std::string& message) const {
    throw TemplateError(fmt::format("line {}: {}", line_, message));
  }

  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + to, '\n'));
    at_ = to;
  }

  // Text up to the next tag, then the tag.
  void read_outside() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tag = source_.size();
        break;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    std::string data = source_.substr(at_, tag - at_);
    const char kind = tag < source_.size() ? source_[tag + 1] : 0;
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : 0;
    if (kind != 0 && sign == '-') {
      data = strip(data, nullptr, false, true);
    } else if ((kind == '%' || kind == '#') && sign != '+') {
      const size_t line_start = data.rfind('\n') + 1;
      const bool blank = std::all_of(data.begin() + line_start, data.end(), is_space);
      if ((line_start > 0 || at_line_start_) && blank) data.resize(line_start);
    }
    if (!data.empty()) add(Token::kData, std::move(data));
    advance(tag);
    if (kind == 0) return;
    const size_t inner = tag + 2 + ((sign == '-' || sign == '+') ? 1 : 0);
    if (kind == '#') return skip_comment(inner);
    if (kind == '%' && read_raw(inner)) return;
    advance(inner);
    add(kind == '{' ? Token::kVariableBegin : Token::kBlockBegin, "");
    read_inside(kind == '{');
  }

  // Behind a tag that ended at `end`: what white space goes with it.
  void close(size_t end, char sign, bool trims_newline) {
    if (sign == '-') {
      while (end < source_.size() && is_space(source_[end])) ++end;
    } else if (trims_newline && sign != '+' && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    at_line_start_ = end > 0 && source_[end - 1] == '\n';
    advance(end);
  }

  void skip_comment(size_t from) {
    const size_t end = source_.find("#}", from);
    if (end == std::string::npos) stop("a comment has no end");
    const char sign = end > from && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : 0;
    close(end + 2, sign, true);
  }

  // {% raw %} ... {% endraw %}; false where the tag is another one.
  bool read_raw(size_t inner) {
    size_t at = inner;
    while (at < source_.size() && is_space(source_[at])) ++at;
    if (source_.compare(at, 3, "raw") != 0) return false;
    at += 3;
    while (at < source_.size() && is_space(source_[at])) ++at;
    char sign = 0;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) sign = source_[at++];
    if (source_.compare(at, 2, "%}") != 0) return false;
    close(at + 2, sign, false);
    for (size_t end = source_.find("{%", at_); end != std::string::npos; end = source_.find("{%", end + 1)) {
      size_t name = end + 2;
      const char begin_sign = name < source_.size() ? source_[name] : 0;
      if (begin_sign == '-' || begin_sign == '+') ++name;
      while (name < source_.size() && is_space(source_[name])) ++name;
      if (source_.compare(name, 6, "endraw") != 0) continue;
      name += 6;
      while (name < source_.size() && is_space(source_[name])) ++name;
      char end_sign = 0;
      if (name < source_.size() && (source_[name] == '-' || source_[name] == '+')) end_sign = source_[name++];
      if (source_.compare(name, 2, "%}") != 0) continue;
      std::string data = source_.substr(at_, end - at_);
      const size_t line_start = data.rfind('\n') + 1;
      if (begin_sign == '-') {
        data = strip(data, nullptr, false, true);
      } else if (begin_sign != '+' && line_start > 0 && std::all_of(data.begin() + line_start, data.end(), is_space)) {
        data.resize(line_start);
      }
      if (!data.empty()) add(Token::kData, std::move(data));
      close(name + 2, end_sign, true);
      return true;
    }
    stop("raw has no endraw");
  }

  void read_inside(bool variable) {
    const std::string_view ending = variable ? "}}" : "%}";
    int depth = 0;  // of brackets: }} inside them is theirs
    for (;;) {
      while (at_ < source_.size() && is_space(source_[at_])) advance(at_ + 1);
      if (at_ >= source_.size()) stop(variable ? "{{ has no }}" : "{% has no %}");
      const std::string_view rest = std::string_view(source_).substr(at_);
      const bool signed_end = (rest[0] == '-' || (rest[0] == '+' && !variable)) && rest.substr(1).starts_with(ending);
      if (depth == 0 && (signed_end || rest.starts_with(ending))) {
        add(variable ? Token::kVariableEnd : Token::kBlockEnd, "");
        close(at_ + (signed_end ? 3 : 2), signed_end ? rest[0] : 0, !variable);
        return;
      }
      read_token(rest, depth);
    }
  }

  void read_token(std::string_view rest, int& depth) {
    const char c = rest[0];
    if (is_name_start(c)) {
      size_t end = 1;
      while (end < rest.size() && (is_name_start(rest[end]) || is_digit(rest[end]))) ++end;
      add(Token::kName, std::string(rest.substr(0, end)));
      advance(at_ + end);
    } else if (is_digit(c)) {
      read_number(rest);
    } else if (c == '"' || c == '\'') {
      size_t end = 1;
      while (end < rest.size() && rest[end] != c) end += rest[end] == '\\' ? 2 : 1;
      if (end >= rest.size()) stop("a string has no end");
      add(Token::kText, unescape(rest.substr(1, end - 1)));
      advance(at_ + end + 1);
    } else {
      static constexpr std::array<std::string_view, 6> kLong = {"==", "!=", "<=", ">=", "//", "**"};
      const auto found = std::find(kLong.begin(), kLong.end(), rest.substr(0, 2));
      const auto text = found != kLong.end() ? *found : rest.substr(0, 1);
      if (std::string_view("+-*/%~=<>()[]{}.,:|!").find(text[0]) == std::string_view::npos || text == "!") {
        stop(fmt::format("unexpected character '{}'", text));
      }
      if (std::string_view("([{").find(text) != std::string_view::npos) ++depth;
      if (std::string_view(")]}").find(text) != std::string_view::npos) --depth;
      add(Token::kOperator, std::string(text));
      advance(at_ + text.size());
    }
  }

  // How many characters at `at` are digits, each followed by others or by one underscore and others.
  template <typename Digit>
  static size_t digits_at(std::string_view text, size_t at, const Digit& digit) {
    size_t end = at;
    while (end < text.size() && digit(text[end])) {
      ++end;
      if (end + 1 < text.size() && text[end] == '_' && digit(text[end + 1])) ++end;
    }
    return end - at;
  }

  // Where a float ends that begins with `whole` digits; 0: it is none.
  static size_t end_of_float(std::string_view text, size_t whole) {
    size_t end = whole;
    if (end < text.size() && text[end] == '.') {
      const size_t fraction = digits_at(text, end + 1, is_digit);
      if (fraction > 0) end += 1 + fraction;
    }
    if (end < text.size() && (text[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-') ? 1 : 0;
      const size_t exponent = digits_at(text, end + 1 + sign, is_digit);
      if (exponent > 0) end += 1 + sign + exponent;
    }
    return end == whole ? 0 : end;
  }

  static size_t end_of_whole(std::string_view text) {
    const char mark = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '0';
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (base != 0) {
      const size_t begin = text.size() > 2 && text[2] == '_' ? 3 : 2;
      const size_t digits = digits_at(text, begin, [&](char c) {
        if (base == 16 && (c | 0x20) >= 'a' && (c | 0x20) <= 'f') return true;
        return is_digit(c) && c - '0' < base;
      });
      if (digits > 0) return begin + digits;
    }
    // A number that begins with 0 is 0.
    return text[0] == '0' ? digits_at(text, 0, [](char c) { return c == '0'; }) : digits_at(text, 0, is_digit);
  }

  // "1.x" is an attribute, "1.5" a number; so is a number behind a dot: "a.0.b" has none.
  void read_number(std::string_view rest) {
    const bool after_dot = !tokens_.empty() && tokens_.back().is_operator(".");
    const size_t fraction = after_dot ? 0 : end_of_float(rest, digits_at(rest, 0, is_digit));
    std::string text(rest.substr(0, fraction > 0 ? fraction : end_of_whole(rest)));
    advance(at_ + text.size());
    if (fraction > 0) std::erase(text, '_');
    add(fraction > 0 ? Token::kFloat : Token::kInteger, std::move(text));
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace tandem::model::jinja
