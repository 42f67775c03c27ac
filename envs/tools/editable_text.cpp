#include "envs/tools/editable_text.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

// Whether the first bytes are letters of two bytes each, the higher one at `high` (0 or 1): some of them are Latin or
// line ends, all are such as texts have.
bool are_wide_letters(std::string_view begin, size_t high) {
  size_t latin = 0;
  for (size_t i = 0; i + 1 < begin.size(); i += 2) {
    const unsigned upper = static_cast<unsigned char>(begin[i + high]);
    const unsigned lower = static_cast<unsigned char>(begin[i + 1 - high]);
    const unsigned letter = upper << 8 | lower;
    const bool is_end = letter == '\n' || letter == '\r' || letter == '\t';
    if ((letter < 0x20 && !is_end) || letter == 0x7F || letter >= 0xFFFE) return false;
    latin += upper == 0 && lower < 0x7F ? 1 : 0;
  }
  return latin > 0;
}

}  // namespace

// The longest such sequence where the part that differs is small; else one that goes from line to line and looks a
// little ahead.
std::vector<size_t> lines_that_stay(const std::vector<std::string_view>& before,
                                    const std::vector<std::string_view>& after) {
  constexpr size_t kMostPairs = 4'000'000, kLookAhead = 500;
  std::vector<size_t> kept(after.size(), kNewLine);
  const size_t shorter = std::min(before.size(), after.size());
  size_t head = 0, tail = 0;
  while (head < shorter && before[head] == after[head]) kept[head] = head, ++head;
  while (tail < shorter - head && before[before.size() - 1 - tail] == after[after.size() - 1 - tail]) {
    kept[after.size() - 1 - tail] = before.size() - 1 - tail;
    ++tail;
  }
  const size_t rows = before.size() - head - tail, columns = after.size() - head - tail;
  if (rows == 0 || columns == 0) return kept;
  if (columns > kMostPairs / rows) {
    size_t old = head;
    for (size_t i = head; i < head + columns; ++i) {
      const size_t last = std::min(head + rows, old + kLookAhead);
      const auto found = std::find(before.begin() + static_cast<ptrdiff_t>(old),
                                   before.begin() + static_cast<ptrdiff_t>(last), after[i]);
      const auto line = static_cast<size_t>(found - before.begin());
      if (line == last) continue;
      kept[i] = line;
      old = line + 1;
    }
    return kept;
  }
  // How many lines can stay from here on.
  std::vector<uint32_t> most((rows + 1) * (columns + 1));
  const auto at = [&](size_t row, size_t column) -> uint32_t& { return most[row * (columns + 1) + column]; };
  for (size_t row = rows; row-- > 0;) {
    for (size_t column = columns; column-- > 0;) {
      at(row, column) = before[head + row] == after[head + column] ? at(row + 1, column + 1) + 1
                                                                   : std::max(at(row + 1, column), at(row, column + 1));
    }
  }
  for (size_t row = 0, column = 0; row < rows && column < columns;) {
    if (before[head + row] == after[head + column])
      kept[head + column++] = head + row++;
    else if (at(row + 1, column) >= at(row, column + 1))
      ++row;
    else
      ++column;
  }
  return kept;
}

std::string why_utf16(std::string_view content, std::string_view name) {
  std::string kind, file(name);
  const auto begin = content.substr(0, 200);
  bool has_mark = true;
  if (content.starts_with(std::string_view("\xFF\xFE\0\0", 4)) ||
      content.starts_with(std::string_view("\0\0\xFE\xFF", 4)))
    kind = "UTF-32";
  else if (content.starts_with("\xFF\xFE"))
    kind = "UTF-16LE";
  else if (content.starts_with("\xFE\xFF"))
    kind = "UTF-16BE";
  else if (begin.find('\0') != std::string_view::npos && content.size() % 2 == 0) {
    has_mark = false;
    kind = are_wide_letters(begin, 1) ? "UTF-16LE" : are_wide_letters(begin, 0) ? "UTF-16BE" : "";
  }
  if (kind.empty()) return "";
  const auto from = has_mark && kind != "UTF-32" ? std::string("UTF-16") : kind;
  return "\"" + file + "\" is text in " + kind + ", which the file tools cannot read or edit; `iconv -f " + from +
         " -t UTF-8 " + file + "` shows it";
}

ForeignByte foreign_byte(std::string_view content) {
  size_t line = 1;
  while (!content.empty()) {
    const size_t length = utf8_length(content);
    if (length == 0) return {line, static_cast<unsigned char>(content[0])};
    if (content[0] == '\n') ++line;
    content.remove_prefix(length);
  }
  return {};
}

Result<EditableText> EditableText::of(std::string_view content, std::string_view name) {
  if (auto why = why_utf16(content, name); !why.empty()) return fail(Status::invalid(std::move(why)));
  EditableText editable;
  editable.has_mark_ = content.starts_with(kByteOrderMark);
  if (editable.has_mark_) content.remove_prefix(kByteOrderMark.size());
  if (content.find("\r\n") == std::string_view::npos) {
    editable.text_ = content;
    return editable;
  }
  for (size_t at = content.find('\n'); at != std::string_view::npos; at = content.find('\n', at + 1))
    editable.windows_.push_back(at > 0 && content[at - 1] == '\r');
  editable.text_ = replaced(content, "\r\n", "\n");
  return editable;
}

std::string EditableText::adapted(std::string_view given) const {
  if (given.starts_with(kByteOrderMark)) given.remove_prefix(kByteOrderMark.size());
  // Where there are no line ends yet, those of the new lines stay as they are.
  const bool has_ends = text_.find('\n') != std::string::npos;
  return has_ends ? replaced(given, "\r\n", "\n") : std::string(given);
}

std::string EditableText::restored(std::string_view edited) const {
  std::string result(has_mark_ ? kByteOrderMark : std::string_view());
  if (windows_.empty()) return result.append(edited);
  const auto before = split(text_, '\n'), after = split(edited, '\n');
  const auto kept = lines_that_stay(before, after);
  const size_t usual = windows_.size() - 1;
  size_t i = 0, old_begin = 0;  // what comes next in the new text, and in the old one
  const auto put = [&](size_t old_line) {
    result.append(after[i]);
    if (++i < after.size()) result += windows_[std::min(old_line, usual)] ? "\r\n" : "\n";
  };
  while (i < after.size()) {
    if (kept[i] != kNewLine) {
      old_begin = kept[i] + 1;
      put(kept[i]);
      continue;
    }
    size_t end = i;
    while (end < after.size() && kept[end] == kNewLine) ++end;
    const size_t old_end = end < after.size() ? kept[end] : before.size();
    // One after another, and the last in place of the last: what follows a text that is replaced stays as it is.
    for (size_t old = old_begin; i < end; ++old) {
      if (old_begin == old_end)
        put(old_begin > 0 ? old_begin - 1 : 0);  // as the line before it
      else
        put(i + 1 == end ? old_end - 1 : std::min(old, old_end - 1));
    }
    old_begin = old_end;
  }
  return result;
}

}  // namespace tandem::envs
