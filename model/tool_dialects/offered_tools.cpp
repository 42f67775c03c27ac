#include "model/tool_dialects/offered_tools.h"

namespace tandem::model {

OfferedTools::OfferedTools(const Json& tools) : known_(tools.is_array()) {
  if (!known_) return;
  for (const Json& tool : tools) {
    const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    const auto name = function.is_object() ? function.find("name") : function.end();
    if (!function.is_object() || name == function.end() || !name->is_string()) continue;
    auto& parameters = parameters_[name->get<std::string>()];
    const auto schema = function.find("parameters");
    if (schema == function.end() || !schema->is_object() || !schema->contains("properties")) continue;
    const Json& properties = (*schema)["properties"];
    if (!properties.is_object()) continue;
    for (const auto& [key, unused] : properties.items()) parameters.insert(key);
  }
}

bool OfferedTools::may_take(std::string_view tool, std::string_view parameter) const {
  const auto found = parameters_.find(tool);
  return found == parameters_.end() || found->second.empty() || found->second.contains(parameter);
}

bool OfferedTools::any_takes(std::string_view parameter) const {
  for (const auto& [tool, parameters] : parameters_)
    if (parameters.contains(parameter)) return true;
  return false;
}

std::string OfferedTools::names() const {
  constexpr size_t kMost = 400;
  std::string all;
  for (const auto& [name, unused] : parameters_) {
    if (all.size() > kMost) return all + ", ..";
    all += (all.empty() ? "" : ", ") + name;
  }
  return all;
}

}  // namespace tandem::model
