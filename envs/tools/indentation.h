// New lines with the indentation of the file that they go into, where who wrote them had another one in mind. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

std::string_view indentation(std::string_view line);

// `old_lines` are those of `file_lines`, one for one, but for spaces at their ends; `new_lines` are written as the old
// ones are. They come back with the file's indentation: that of the old line of the same depth, and deeper or less deep
// by the file's own step, which is a tab where the file has tabs. Nothing where that cannot be told, as the old lines
// have lost their depths.
std::optional<std::vector<std::string>> indented_as_file(std::span<const std::string_view> old_lines,
                                                         std::span<const std::string_view> file_lines,
                                                         std::span<const std::string_view> new_lines,
                                                         std::span<const std::string_view> whole_file);

}  // namespace tandem::envs
