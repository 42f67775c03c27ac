#include "model/tool_dialects/kimi_id.h"

#include <algorithm>

#include "model/tool_dialects/parts.h"

namespace tandem::model {

namespace {

constexpr std::string_view kKimiSpaces[] = {"functions.", "functions_", "functions:", "function.", "tools."};

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view without_space(std::string_view id) {
  for (const auto space : kKimiSpaces)
    if (id.starts_with(space)) return id.substr(space.size());
  return id;
}

std::string_view without_number(std::string_view id) {
  const size_t last = id.find_last_not_of("0123456789");
  const bool numbered = last != std::string_view::npos && last + 1 < id.size() &&
                        std::string_view(":_-.#").find(id[last]) != std::string_view::npos;
  return numbered ? id.substr(0, last) : id;
}

}  // namespace

std::optional<std::string> name_of_kimi_id(std::string_view id, const OfferedTools& offered) {
  id = unquoted(id);
  const auto told = [](std::string_view name) {
    name = unquoted(name);
    return name.empty() ? std::nullopt : std::optional(std::string(name));
  };
  // The least is taken off that leaves a tool's name.
  for (const auto name : {id, without_number(id), without_space(id), without_number(without_space(id))})
    if (offered.offers(unquoted(name))) return told(name);
  const size_t colon = id.rfind(':');
  const auto number = colon == std::string_view::npos ? std::string_view() : id.substr(colon + 1);
  const bool numbered = all_digits(number.substr(number.starts_with('-') ? 1 : 0));
  if (numbered) return told(without_space(id.substr(0, colon)));
  if (offered.known()) return std::nullopt;
  const auto inner = without_space(id);
  return told(inner.size() < id.size() ? without_number(inner) : id);
}

}  // namespace tandem::model
