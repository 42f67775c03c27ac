#include "base/yaml.h"

#include <yaml-cpp/eventhandler.h>

#include <optional>
#include <sstream>
#include <string_view>

#include "base/utf8.h"

namespace tandem {
namespace {

// Whether the text that begins at `begin` with a quote has another at its end; what begins otherwise has none.
bool is_closed(std::string_view text, size_t begin) {
  if (begin >= text.size() || (text[begin] != '"' && text[begin] != '\'')) return true;
  const char quote = text[begin];
  for (size_t at = begin + 1; at < text.size(); ++at) {
    const bool is_double = quote == '\'' && text.substr(at).starts_with("''");
    if (is_double || (quote == '"' && text[at] == '\\'))
      ++at;
    else if (text[at] == quote)
      return true;
  }
  return false;
}

// The place of a scalar behind its tag and anchor, which are none of it.
YAML::Mark behind_properties(std::string_view text, YAML::Mark at) {
  const auto letter = [&] {
    return static_cast<size_t>(at.pos) < text.size() ? text[static_cast<size_t>(at.pos)] : '\0';
  };
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  const auto step = [&] {
    const bool ends_line = letter() == '\n';
    at.line += ends_line ? 1 : 0;
    at.column = ends_line ? 0 : at.column + 1;
    ++at.pos;
  };
  while (letter() == '!' || letter() == '&') {
    while (letter() != '\0' && !is_blank(letter())) step();
    while (is_blank(letter()) || letter() == '#') {
      const bool is_comment = letter() == '#';
      do step();
      while (is_comment && letter() != '\0' && letter() != '\n');
    }
  }
  return at;
}

// Where a document begins, and whether there is anything in it. A quote without an end, which the parser takes for a
// text up to the end of the file, is an error.
class Beginning final : public YAML::EventHandler {
 public:
  explicit Beginning(std::string_view text) : text_(text) {}
  int position() const { return mark_ ? mark_->pos : -1; }
  const YAML::Mark& mark() const { return *mark_; }
  bool empty() const { return empty_; }

 private:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { see(mark, true); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { see(mark, false); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override {
    const auto begin = behind_properties(text_, mark);
    if (!is_closed(text_, static_cast<size_t>(begin.pos))) throw YAML::ParserException(begin, "this quote has no end");
    see(mark, false);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    see(mark, false);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    see(mark, false);
  }
  void OnMapEnd() override {}

  void see(const YAML::Mark& mark, bool empty) {
    if (mark_) return;
    mark_ = mark;
    empty_ = empty;
  }
  const std::string_view text_;
  std::optional<YAML::Mark> mark_;
  bool empty_ = true;
};

}  // namespace

namespace {

// UTF-16 behind its mark as UTF-8; any other text, and what is wrong in it, as it is.
std::string without_utf16(const std::string& text) {
  const bool big = text.starts_with("\xfe\xff");
  const bool is_utf32 = text.starts_with(std::string_view("\xff\xfe\0\0", 4));
  if ((!big && !text.starts_with("\xff\xfe")) || is_utf32 || text.size() % 2 != 0) return text;
  const auto unit = [&](size_t at) -> char32_t {
    if (at + 1 >= text.size()) return 0;
    const auto a = static_cast<unsigned char>(text[at]), b = static_cast<unsigned char>(text[at + 1]);
    return big ? a * 256u + b : b * 256u + a;
  };
  std::string found;
  for (size_t at = 2; at < text.size(); at += 2) {
    char32_t character = unit(at);
    if (character >= 0xd800 && character < 0xe000) {
      const char32_t second = unit(at + 2);
      if (character >= 0xdc00 || second < 0xdc00 || second >= 0xe000) return text;
      character = 0x10000 + ((character - 0xd800) << 10) + (second - 0xdc00);
      at += 2;
    }
    append_utf8(character, found);
  }
  return found;
}

}  // namespace

YAML::Node load_yaml(const std::string& bytes) {
  const std::string text = without_utf16(bytes);
  // Places are of UTF-8 without a byte order mark.
  const bool has_mark = text.starts_with("\xef\xbb\xbf");
  const bool has_places = is_valid_utf8(text) && text.find('\0') == std::string::npos;
  const std::string_view readable = has_places ? std::string_view(text).substr(has_mark ? 3 : 0) : "";
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  int last = -1;
  for (int number = 0;; ++number) {
    Beginning document(readable);
    if (!parser.HandleNextDocument(document) || document.position() < 0) break;
    if (document.position() == last) throw YAML::ParserException(document.mark(), "this cannot begin anything");
    if (number > 0 && !document.empty())
      throw YAML::ParserException(document.mark(), "a second document begins here; only one is read");
    last = document.position();
  }
  return YAML::Load(text);
}

}  // namespace tandem
