#include "base/book.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/yaml.h"

namespace tandem {

bool is_entry_name(std::string_view name) {
  constexpr size_t kLongest = 64;
  return !name.empty() && name.size() <= kLongest && name != "extends" && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

Result<std::vector<std::string>> entry_names_in(const fs::path& path, std::string_view of, size_t most,
                                                uint64_t most_bytes) {
  std::vector<std::string> names;
  YAML::Node root;
  try {
    root = load_yaml(TRY(read_file(path, most_bytes)));
  } catch (const YAML::Exception&) {
    return names;
  }
  if (!root.IsMap()) {
    return fail(
        Status::invalid(fmt::format("must have a name for each {}, and below it what it is", of)).at(path.string()));
  }
  for (const auto& entry : root) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (!is_entry_name(name)) {
      return fail(
          Status::invalid(fmt::format("names of {}s are 1 to 64 letters, digits, - and _, and not \"extends\"", of))
              .at(path.string(), entry.first.Mark().line + 1));
    }
    names.push_back(name);
  }
  if (names.size() > most)
    return fail(Status::invalid(fmt::format("holds more than {} {}s", most, of)).at(path.string()));
  return names;
}

}  // namespace tandem
