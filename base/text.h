// Text for people: suggestions for misspelt names, formatted sizes and durations.
#pragma once

#include <concepts>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// The candidate nearest to `word` by edits and transpositions, or empty where none is near (more than max(2,
// length/3)).
std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

// "; did you mean \"x\"?" or, where nothing is near, "; expected one of a, b, c".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);
inline std::string did_you_mean(std::string_view word, std::initializer_list<std::string_view> candidates) {
  return did_you_mean(word, std::span(candidates.begin(), candidates.size()));
}

// Compares secrets in a time that depends on their lengths alone.
bool equal_in_constant_time(std::string_view left, std::string_view right);

// & < > ' " as the entities that markupsafe writes.
std::string escape_html(std::string_view text);

std::string format_bytes(uint64_t bytes);    // "270 MB"
std::string format_seconds(double seconds);  // "1.2 s", "3m05s", "2h10m"

// Parts of `text`, which must outlive them.
std::vector<std::string_view> split(std::string_view text, char separator);
template <std::same_as<std::string> Temporary>
std::vector<std::string_view> split(Temporary&& text, char separator) = delete;
// Lines, without an empty one after the last line break.
std::vector<std::string_view> split_lines(std::string_view text);
template <std::same_as<std::string> Temporary>
std::vector<std::string_view> split_lines(Temporary&& text) = delete;
std::string_view trim(std::string_view text);
std::string join(std::span<const std::string> parts, std::string_view separator);

}  // namespace tandem
