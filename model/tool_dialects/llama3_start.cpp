#include "model/tool_dialects/llama3_start.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/json.h"
#include "model/tool_dialects/parts.h"

namespace tandem::model {

namespace {

constexpr std::array<std::string_view, 6> kLlamaKeys = {"name", "parameters", "arguments", "type", "id", "function"};

// The form of a call's object, once it says its name.
BraceForm form_of_name(const std::string& name, bool has_arguments, const OfferedTools& offered) {
  if (offered.known()) return offered.offers(name) ? BraceForm::kCall : BraceForm::kText;
  return name.empty() ? BraceForm::kText : has_arguments ? BraceForm::kCall : BraceForm::kUndecided;
}

}  // namespace

BraceForm form_of_brace(const ObjectWatch& object, std::string_view text, const OfferedTools& offered, bool whole) {
  // In the order of the text, and no further than to the decision: so it is the same while the text is being written.
  std::optional<std::string> name;
  bool has_arguments = false;
  for (const auto& [key, begin, end] : object.entries(text)) {
    if (std::find(kLlamaKeys.begin(), kLlamaKeys.end(), key) == kLlamaKeys.end()) return BraceForm::kText;
    if (key == "parameters" || key == "arguments") has_arguments |= text[begin] == '{' || text[begin] == '"';
    if (key == "name" || key == "function") {
      if (!end) break;
      const auto value = parse_json(text.substr(begin, *end - begin));
      const bool inside = key == "function" && value && value->is_object();
      const Json said = inside ? value->value("name", Json()) : value ? *value : Json();
      if (!said.is_string()) return BraceForm::kText;
      name = std::string(unquoted(said.get_ref<const std::string&>()));
      has_arguments |= inside && (value->contains("parameters") || value->contains("arguments"));
    }
    if (!name) continue;
    if (const auto form = form_of_name(*name, has_arguments, offered); form != BraceForm::kUndecided) return form;
  }
  return whole || object.end() ? BraceForm::kText : BraceForm::kUndecided;
}

}  // namespace tandem::model
