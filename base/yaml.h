// A text that is one YAML document.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace tandem {

// Parses the document; null for an empty text. Throws YAML::Exception, with the place, for invalid YAML and for a
// second document: yaml-cpp's own readers pass over that one, or look for documents without end where a text begins
// with a comma.
YAML::Node load_yaml(const std::string& text);

}  // namespace tandem
