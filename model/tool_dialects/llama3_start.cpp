#include "model/tool_dialects/llama3_start.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace tandem::model {

namespace {

constexpr std::array<std::string_view, 6> kLlamaKeys = {"name", "parameters", "arguments", "type", "id", "function"};

// Of the object of a call, once it says it.
BraceForm form_of_name(const std::string& name, bool has_arguments, const OfferedTools& offered) {
  if (offered.known()) return offered.offers(name) ? BraceForm::kCall : BraceForm::kText;
  return name.empty() ? BraceForm::kText : has_arguments ? BraceForm::kCall : BraceForm::kUndecided;
}

}  // namespace

BraceForm form_of_brace(const ObjectWatch& object, std::string_view text, const OfferedTools& offered, bool whole) {
  const BraceForm later = whole || object.end() ? BraceForm::kText : BraceForm::kUndecided;
  for (const auto key : object.keys(text))
    if (std::find(kLlamaKeys.begin(), kLlamaKeys.end(), key) == kLlamaKeys.end()) return BraceForm::kText;
  BraceForm form = BraceForm::kUndecided;
  if (const auto function = object.value_of(text, "function")) {
    const auto inner = parse_json(*function);
    const Json name = inner && inner->is_object() ? inner->value("name", Json()) : Json();
    if (!name.is_string()) return BraceForm::kText;
    const bool has_arguments = inner->contains("parameters") || inner->contains("arguments");
    form = form_of_name(name.get<std::string>(), has_arguments, offered);
  } else if (const auto value = object.value_of(text, "name")) {
    const auto name = parse_json(*value);
    if (!name || !name->is_string()) return BraceForm::kText;
    bool has_arguments = false;
    for (const std::string_view key : {"parameters", "arguments"})
      has_arguments = has_arguments || object.begins(text, key, "{\"");
    form = form_of_name(name->get<std::string>(), has_arguments, offered);
  }
  return form == BraceForm::kUndecided ? later : form;
}

}  // namespace tandem::model
