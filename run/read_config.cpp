#include "run/read_config.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace tandem::run {
namespace {

bool is_of_keys(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; }

// Keys of the schema that a sentence names, in its order.
std::vector<std::string> keys_in(std::string_view sentence, const Schema& schema) {
  std::vector<std::string> keys;
  for (size_t at = 0; at < sentence.size();) {
    size_t end = at;
    while (end < sentence.size() && is_of_keys(sentence[end])) ++end;
    auto word = sentence.substr(at, end - at);
    while (word.ends_with('.')) word.remove_suffix(1);
    if (std::ranges::find(schema.fields(), word, &Field::path) != schema.fields().end()) keys.emplace_back(word);
    at = std::max(end, at + 1);
  }
  return keys;
}

// A mistake and its hint, told together.
struct Mistake {
  std::string text;
  std::vector<std::string> keys;
  std::string place;  // empty where the user has given none of them
};

std::vector<Mistake> mistakes_across(const RunConfig& config, const Schema& schema) {
  std::vector<Mistake> mistakes;
  const Status status = check(config);
  if (status) return mistakes;
  const std::string text = status.message();
  for (const auto line : split(text, '\n')) {
    if (line.starts_with("  ") && !mistakes.empty()) {
      mistakes.back().text.append("\n").append(line);
      continue;
    }
    Mistake mistake{.text = std::string(line), .keys = keys_in(line, schema), .place = ""};
    const auto given =
        std::ranges::find_if(mistake.keys, [&](const auto& key) { return schema.origin(key) != "default"; });
    if (given != mistake.keys.end()) mistake.place = schema.origin(*given);
    mistakes.push_back(std::move(mistake));
  }
  return mistakes;
}

std::string with_place(const Mistake& mistake) {
  return mistake.place.empty() ? mistake.text : mistake.place + ": " + mistake.text;
}

}  // namespace

Status check_at_places(const RunConfig& config, const Schema& schema) {
  std::vector<std::string> lines;
  for (const Mistake& mistake : mistakes_across(config, schema)) lines.push_back(with_place(mistake));
  return lines.empty() ? Status() : Status::invalid(join(lines, "\n"));
}

Status read_config(const fs::path& file, std::span<const std::string> overrides, Schema& schema,
                   const RunConfig& config, bool changes_another) {
  const Status read = schema.read(file, overrides);
  if (changes_another) return read;
  if (read) return check_at_places(config, schema);
  if (read.code() != Code::kInvalid) return read;
  // A key that could not be read has its default, of which nothing is to be said.
  const auto unread = keys_in(read.message(), schema);
  std::string text = read.message();
  for (const Mistake& mistake : mistakes_across(config, schema)) {
    const bool is_sure = !mistake.place.empty() && std::ranges::none_of(mistake.keys, [&](const auto& key) {
      return std::ranges::find(unread, key) != unread.end();
    });
    if (is_sure) text.append("\n").append(with_place(mistake));
  }
  return Status::invalid(text);
}

}  // namespace tandem::run
