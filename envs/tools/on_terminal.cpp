// What a terminal shows in the end: a cursor that goes over lines, and what is printed where it stands.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "envs/tools/escapes.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

uint32_t letter_of(std::string_view bytes) {
  uint32_t letter = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() > 1) letter &= 0xFFu >> (bytes.size() + 1);
  for (size_t i = 1; i < bytes.size(); ++i) letter = letter << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3F);
  return letter;
}

// Accents stand on the letter before them.
bool is_accent(std::string_view letter) {
  const auto code = letter_of(letter);
  return (code >= 0x300 && code < 0x370) || (code >= 0x200B && code < 0x2010) || (code >= 0xFE00 && code < 0xFE10);
}

// Whether a letter takes two columns.
bool is_wide(std::string_view letter) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range kWide[] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF}, {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
                             {0xFE30, 0xFE6F}, {0xFF00, 0xFF60}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
  const auto code = letter_of(letter);
  return std::any_of(std::begin(kWide), std::end(kWide),
                     [&](const Range& range) { return code >= range.first && code <= range.last; });
}

std::string_view first_letter_of(std::string_view text) {
  return text.substr(0, std::max<size_t>(utf8_length(text), 1));
}

class Terminal {
 public:
  void print(std::string_view letter) {
    if (is_over_) erase_line();
    if (is_half_ && !before_.empty()) before_.pop_back();
    is_half_ = false;
    before_.emplace_back(letter);
    if (!ahead_.empty() && !is_accent(letter)) ahead_.pop_back();
  }

  void end_line() {
    keep_line();
    open_line(row_ + 1);
    is_over_ = !before_.empty();
  }

  // What is printed from here on is in place of the line.
  void go_to_begin() {
    for (; !ahead_.empty(); ahead_.pop_back()) before_.push_back(std::move(ahead_.back()));
    is_half_ = false;
    is_over_ = !before_.empty();
  }

  void go_back(size_t columns) {
    if (is_over_) return;
    for (; columns > 0 && !before_.empty(); --columns) {
      if (is_wide(before_.back()) && !is_half_) {
        is_half_ = true;
        continue;
      }
      is_half_ = false;
      std::string letter = std::move(before_.back());
      before_.pop_back();
      for (; is_accent(letter) && !before_.empty(); before_.pop_back()) letter.insert(0, before_.back());
      ahead_.push_back(std::move(letter));
    }
  }

  void go_on(size_t columns) {
    if (is_over_) {
      is_over_ = false;
      go_back(kMostColumns);
    }
    for (size_t i = 0; i < std::min(columns, kMostColumns); ++i) {
      if (ahead_.empty()) {
        before_.emplace_back(" ");
        continue;
      }
      before_.push_back(std::move(ahead_.back()));
      ahead_.pop_back();
    }
  }

  // To lines above, or below that are there. At its beginning a line is printed over.
  void go_to_row(size_t row, bool to_begin) {
    const size_t columns = to_begin || is_over_ ? 0 : before_.size();
    row = std::min(row, std::max(lines_.size(), row_ + 1) - 1);
    if (work_ > kMostWork || row == row_) return to_begin ? go_to_begin() : void();
    keep_line();
    open_line(row);
    is_over_ = !before_.empty();
    if (columns > 0) go_on(columns);
  }
  size_t row() const { return row_; }

  void erase_line() {
    before_.clear();
    ahead_.clear();
    is_over_ = is_half_ = false;
  }

  void erase_ahead() {
    if (is_over_) erase_line();
    ahead_.clear();
  }

  void erase_below() {
    erase_ahead();
    if (lines_.size() > row_) lines_.resize(row_);
  }

  std::string text() {
    keep_line();
    return join(lines_, "\n");
  }

 private:
  static constexpr size_t kMostColumns = 1000;
  static constexpr size_t kMostWork = 64 << 20;  // bytes of lines gone to; then there is one line after another

  std::string line_now() const {
    std::string line;
    for (const auto& letter : before_) line += letter;
    for (auto letter = ahead_.rbegin(); letter != ahead_.rend(); ++letter) line += *letter;
    return line;
  }

  void set_line(std::string_view line) {
    erase_line();
    work_ += line.size();
    while (!line.empty()) {
      const auto letter = first_letter_of(line);
      before_.emplace_back(letter);
      line.remove_prefix(letter.size());
    }
  }

  void keep_line() {
    if (lines_.size() <= row_) lines_.resize(row_ + 1);
    lines_[row_] = line_now();
  }

  void open_line(size_t row) {
    row_ = row;
    set_line(row < lines_.size() ? std::string_view(lines_[row]) : std::string_view());
  }

  std::vector<std::string> lines_;
  size_t row_ = 0, work_ = 0;
  std::vector<std::string> before_, ahead_;  // letters up to the cursor; and from it on, the next one last
  bool is_over_ = false;                     // the cursor stands at the beginning of the line in before_
  bool is_half_ = false;                     // in the middle of a wide letter
};

void steer(Terminal& terminal, const Escape& escape) {
  size_t count = 0;
  const auto& digits = escape.parameters;
  if (!digits.empty() &&
      std::from_chars(digits.data(), digits.data() + digits.size(), count).ptr != digits.data() + digits.size())
    return;  // one with several parameters, or of a terminal's own
  const size_t steps = std::max<size_t>(count, 1);
  const size_t above = terminal.row() - std::min(terminal.row(), steps);
  switch (escape.final) {
    case 'A':
      return terminal.go_to_row(above, false);
    case 'B':
      return terminal.go_to_row(terminal.row() + std::min<size_t>(steps, 10'000), false);
    case 'C':
      return terminal.go_on(steps);
    case 'D':
      return terminal.go_back(steps);
    case 'E':
      return terminal.go_to_row(terminal.row() + std::min<size_t>(steps, 10'000), true);
    case 'F':
      return terminal.go_to_row(above, true);
    case 'G':
      terminal.go_to_begin();
      return steps > 1 ? terminal.go_on(steps - 1) : void();
    case 'J':  // all of the screen: what was there is still in what has scrolled by
      return count == 0 ? terminal.erase_below() : void();
    case 'K':
      return count == 2 ? terminal.erase_line() : count == 0 ? terminal.erase_ahead() : void();
    default:
      return;
  }
}

}  // namespace

std::string as_on_terminal(std::string_view bytes) {
  if (bytes.find_first_of("\r\b\a\x1b\xC2") == std::string_view::npos) return std::string(bytes);
  Terminal terminal;
  while (!bytes.empty()) {
    if (const auto escape = escape_at(bytes); escape.length > 0) {
      if (escape.final != 0) steer(terminal, escape);
      bytes.remove_prefix(escape.length);
      continue;
    }
    const auto letter = first_letter_of(bytes);
    bytes.remove_prefix(letter.size());
    if (letter == "\n")
      terminal.end_line();
    else if (letter == "\r")
      terminal.go_to_begin();
    else if (letter == "\b")
      terminal.go_back(1);
    else if (letter != "\a")
      terminal.print(letter);
  }
  return terminal.text();
}

}  // namespace tandem::envs
