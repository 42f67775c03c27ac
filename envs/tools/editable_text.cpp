#include "envs/tools/editable_text.h"

#include <algorithm>

#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/output.h"

namespace tandem::envs {

std::string why_utf16(std::string_view content, std::string_view name) {
  const bool little = content.starts_with("\xFF\xFE"), big = content.starts_with("\xFE\xFF");
  // Without a mark: every other byte of the beginning is zero, as in Latin text.
  const auto begin = content.substr(0, 200);
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < begin.size(); ++i) zeros[i % 2] += begin[i] == '\0' ? 1 : 0;
  const size_t half = begin.size() / 2;
  const bool bare_little = half >= 4 && zeros[1] * 10 >= half * 9 && zeros[0] == 0;
  const bool bare_big = half >= 4 && zeros[0] * 10 >= half * 9 && zeros[1] == 0;
  if (!little && !big && !bare_little && !bare_big) return "";
  const std::string kind = big || bare_big ? "UTF-16BE" : "UTF-16LE", file(name);
  return "\"" + file + "\" is text in " + kind + ", which the file tools cannot read or edit; `iconv -f " +
         (little || big ? std::string("UTF-16") : kind) + " -t UTF-8 " + file + "` shows it";
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
  return windows_.empty() ? std::string(given) : replaced(given, "\r\n", "\n");
}

std::string EditableText::restored(std::string_view edited) const {
  std::string result(has_mark_ ? kByteOrderMark : std::string_view());
  if (windows_.empty()) return result.append(edited);
  constexpr size_t kLookAhead = 500;  // lines, for one that was there before
  const auto before = split(text_, '\n'), after = split(edited, '\n');
  // What is the same at both ends keeps its ends whatever stands between.
  size_t same_at_end = 0;
  while (same_at_end < std::min(before.size(), after.size()) &&
         before[before.size() - 1 - same_at_end] == after[after.size() - 1 - same_at_end])
    ++same_at_end;
  const size_t usual = windows_.size() - 1;
  const auto ends_windows = [&](size_t line) { return windows_[std::min(line, usual)]; };
  size_t old = 0;  // the line that comes next in the old text
  for (size_t i = 0; i < after.size(); ++i) {
    result.append(after[i]);
    if (i + 1 == after.size()) break;
    size_t from = old;
    if (after.size() - i <= same_at_end) {
      from = before.size() - (after.size() - i);
      old = from + 1;
    } else {
      const size_t last = std::min(before.size() - same_at_end, old + kLookAhead);
      size_t found = old;
      while (found < last && before[found] != after[i]) ++found;
      if (found < last) {
        from = found;
        old = found + 1;
      } else if (old >= last && old > 0) {
        from = old - 1;  // behind all old lines that are left
      }
    }
    result += ends_windows(from) ? "\r\n" : "\n";
  }
  return result;
}

}  // namespace tandem::envs
