// A text that is one YAML document.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace tandem {

// Null where there is nothing. Throws YAML::Exception with the place where it is not YAML, or where a second document
// begins: yaml-cpp's own readers pass over that one, or look for documents without end where a text begins with a
// comma.
YAML::Node load_yaml(const std::string& text);

}  // namespace tandem
