#include "envs/tasks/yaml_text.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace tandem::envs {

// JSON's texts are scalars of YAML.
std::string yaml_quoted(const std::string& text) { return dump_json(Json(text)); }

std::string yaml_block(const std::string& text) {
  const bool plain = !text.starts_with(' ') && std::none_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127;
  });
  if (!plain) return yaml_quoted(text) + "\n";
  std::string result = "|\n";
  for (const auto line : split(text, '\n')) result.append(line.empty() ? "" : "  ").append(line).append("\n");
  return result;
}

}  // namespace tandem::envs
