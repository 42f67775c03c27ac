#include "rollout/agent/content_parts.h"

#include <algorithm>
#include <utility>

namespace tandem::rollout {
namespace {

std::string text_of_part(const Json& part, const char* key) {
  const auto found = part.find(key);
  return found != part.end() && found->is_string() ? found->get<std::string>() : "";
}

// "thinking" is a text, or a list of parts as a content is one.
std::string thinking_of_part(const Json& part) {
  const auto found = part.find("thinking");
  return found == part.end() ? text_of_part(part, "text") : said_parts(*found).text;
}

bool is_thinking(const Json& part) {
  const auto type = text_of_part(part, "type");
  return type == "thinking" || type == "reasoning";
}

bool is_bare_text(const Json& part) {
  return part.is_object() && part.size() == 2 && text_of_part(part, "type") == "text" && part.contains("text") &&
         part["text"].is_string();
}

void add_part(const Json& part, Json& parts) {
  const char* const growing = is_bare_text(part) ? "text" : "thinking";
  // A part that has more than its type and what grows, such as a signature, is at its end.
  const bool goes_on = !parts.empty() && part.is_object() && part.contains(growing) && parts.back().is_object() &&
                       parts.back().size() == 2 && parts.back().contains(growing) &&
                       text_of_part(part, "type") == text_of_part(parts.back(), "type") &&
                       part[growing].type() == parts.back()[growing].type() &&
                       (part[growing].is_string() || part[growing].is_array());
  if (!goes_on) {
    parts.push_back(part);
    return;
  }
  Json& last = parts.back();
  if (part[growing].is_string()) {
    last[growing] = last[growing].get<std::string>() + part[growing].get<std::string>();
  } else {
    for (const auto& inner : part[growing]) add_part(inner, last[growing]);
  }
  for (const auto& [key, value] : part.items()) {
    if (key != growing) last[key] = value;
  }
}

}  // namespace

SaidParts said_parts(const Json& content) {
  SaidParts said;
  if (content.is_string()) said.text = content.get<std::string>();
  if (!content.is_array()) return said;
  for (const auto& part : content) {
    if (part.is_string()) said.text += part.get<std::string>();
    if (part.is_object() && is_thinking(part)) {
      said.thinking += thinking_of_part(part);
    } else if (part.is_object()) {
      said.text += text_of_part(part, "text");
    }
  }
  return said;
}

void ContentParts::add(const Json& piece) {
  if (piece.is_string()) text_ += piece.get_ref<const std::string&>();
  if (!piece.is_array()) return;
  for (const auto& part : piece) {
    if (is_bare_text(part)) {
      text_ += part["text"].get_ref<const std::string&>();
    } else {
      end_text();
      add_part(part, parts_);
    }
  }
}

void ContentParts::end_text() {
  if (!text_.empty()) parts_.push_back({{"type", "text"}, {"text", std::exchange(text_, "")}});
}

Json ContentParts::finish() && {
  end_text();
  return std::move(parts_);
}

bool are_plain_text(const Json& parts) { return std::ranges::all_of(parts, is_bare_text); }

void replace_text(const std::string& text, Json& parts) {
  Json kept = Json::array();
  for (const auto& part : parts) {
    if (!is_bare_text(part)) kept.push_back(part);
  }
  if (!text.empty()) kept.push_back({{"type", "text"}, {"text", text}});
  parts = std::move(kept);
}

}  // namespace tandem::rollout
