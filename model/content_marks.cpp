#include "model/content_marks.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/chat_template.h"

namespace tandem::model {

namespace {

constexpr size_t kDigitsOfNumber = 8;

}  // namespace

ContentMarks::ContentMarks(const std::vector<std::string>& special_texts, std::string elsewhere)
    : special_texts_(special_texts), elsewhere_(std::move(elsewhere)) {
  TokenId id = 0;
  for (const auto& text : special_texts_) finder_.add({.id = id++, .content = text}, text);
}

Json ContentMarks::mark(const Json& value) {
  if (nonce_.empty()) {
    elsewhere_ += dump_json(value);
    // Digits alone, which no filter for letters changes.
    uint64_t number = 7'301'946'528'170'395;
    do nonce_ = std::to_string(number++);
    while (elsewhere_.find(nonce_) != std::string::npos);
  }
  return marked(value);
}

Json ContentMarks::marked(const Json& value) {
  if (value.is_string()) return marked_text(value.get_ref<const std::string&>());
  Json out = value;
  for (auto&& [key, member] : out.items())
    if (!value.is_object() || key != "role") member = value.is_structured() ? marked(member) : member;
  return out;
}

std::string ContentMarks::number_of(std::string text) {
  texts_.push_back(std::move(text));
  return fmt::format("{}{:0{}}", nonce_, texts_.size() - 1, kDigitsOfNumber);
}

std::string ContentMarks::marked_text(const std::string& text) {
  std::vector<AddedTokenFinder::Part> parts;
  finder_.split(text, parts);
  // The longest end of the string that begins a special token, and the other way round.
  const auto longest = [&](std::string_view part, bool at_end) {
    size_t best = 0;
    for (const auto& special : special_texts_) {
      for (size_t length = std::min(special.size() - 1, part.size()); length > best; --length) {
        const bool found = at_end ? part.ends_with(std::string_view(special).substr(0, length))
                                  : part.starts_with(std::string_view(special).substr(special.size() - length));
        if (found) best = length;
      }
    }
    return best;
  };
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string_view part = parts[i].text;
    if (parts[i].id >= 0) {
      out += number_of(std::string(part));
      continue;
    }
    const size_t head = i == 0 ? longest(part, false) : 0;
    if (head > 0) out += number_of(std::string(part.substr(0, head)));
    part.remove_prefix(head);
    const size_t tail = i + 1 == parts.size() ? longest(part, true) : 0;
    out += part.substr(0, part.size() - tail);
    if (tail > 0) out += number_of(std::string(part.substr(part.size() - tail)));
  }
  return out;
}

Result<std::vector<std::pair<size_t, size_t>>> ContentMarks::restore(Rendered& rendered) const {
  std::vector<std::pair<size_t, size_t>> places;
  if (texts_.empty()) return places;
  const auto cut = [] {
    return fail(Status::invalid("the chat template cuts a text that holds the text of a special token")
                    .hint("leave such texts out of messages, or let special tokens in them be tokens"));
  };
  std::string text;
  std::vector<std::pair<size_t, ptrdiff_t>> moves;  // bytes behind the first have moved by so many
  size_t from = 0;
  for (size_t at = rendered.text.find(nonce_); at != std::string::npos; at = rendered.text.find(nonce_, from)) {
    const std::string digits = rendered.text.substr(at + nonce_.size(), kDigitsOfNumber);
    const bool whole = digits.size() == kDigitsOfNumber && digits.find_first_not_of("0123456789") == std::string::npos;
    if (!whole || std::stoul(digits) >= texts_.size()) return cut();
    text.append(rendered.text, from, at - from);
    const std::string& original = texts_[std::stoul(digits)];
    places.emplace_back(text.size(), text.size() + original.size());
    text += original;
    from = at + nonce_.size() + kDigitsOfNumber;
    moves.emplace_back(from, static_cast<ptrdiff_t>(text.size()) - static_cast<ptrdiff_t>(from));
  }
  text.append(rendered.text, from);
  // A part of a number that is left says that a template has cut it.
  if (text.find(nonce_.substr(0, nonce_.size() / 2)) != std::string::npos &&
      elsewhere_.find(nonce_.substr(0, nonce_.size() / 2)) == std::string::npos)
    return cut();
  const auto moved = [&](size_t byte) {
    const auto next = std::upper_bound(moves.begin(), moves.end(), byte,
                                       [](size_t value, const auto& move) { return value < move.first; });
    return next == moves.begin() ? byte : static_cast<size_t>(static_cast<ptrdiff_t>(byte) + std::prev(next)->second);
  };
  for (auto* const spans : {&rendered.assistant_spans, &rendered.displaced_spans}) {
    for (auto& [begin, end] : *spans) {
      begin = moved(begin);
      end = moved(end);
    }
  }
  rendered.text = std::move(text);
  return places;
}

}  // namespace tandem::model
