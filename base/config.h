// Strict YAML configuration: one table of fields makes the reader, the resolved dump, the JSON Schema and the reference
// page.
//
// A Schema binds dotted paths to members of a struct. Values come from, later over earlier: defaults, `extends:` files,
// the file, the environment (TANDEM__A__B), the command line (a.b=v). Every mistake is found at once, with file, line,
// column, the path, the nearest valid name and the valid siblings; nothing is silently ignored, doubled or converted.
//
// Thread safety: none. The struct must outlive its Schema.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace tandem {

enum class FieldType : uint8_t { kBool, kInteger, kNumber, kText, kTextList };

struct Field {
  std::string path;  // "trainer.learning_rate"
  FieldType type = FieldType::kText;
  std::string doc;
  double least = 0, most = 0;            // of numbers, where least < most
  std::optional<double> unset;           // of numbers: stands for no value, beside those from least to most
  std::vector<std::string> choices;      // of text, where not empty
  std::string example;                   // a value as a file has it, for errors and editors; empty: none
  std::function<void(const Json&)> set;  // of a value that has been checked
  std::function<Json()> get;
};

struct Origin {
  std::string place;  // "configs/tiny.yaml:12", "command line", "environment"; empty: default
};

class Schema {
 public:
  Schema& add(std::string path, bool& target, std::string doc);
  Schema& add(std::string path, int& target, std::string doc, double least, double most);
  Schema& add(std::string path, uint64_t& target, std::string doc);
  Schema& add(std::string path, double& target, std::string doc, double least, double most);
  // `unset` is how files and resolved configs write that there is no value.
  Schema& add(std::string path, std::optional<double>& target, std::string doc, double least, double most,
              double unset);
  Schema& add(std::string path, std::optional<int>& target, std::string doc, double least, double most, int unset);
  // A null in JSON stands for no value.
  Schema& add(std::string path, std::optional<bool>& target, std::string doc);
  Schema& add(std::string path, std::string& target, std::string doc, std::vector<std::string> choices = {});
  Schema& add(std::string path, std::vector<std::string>& target, std::string doc,
              std::vector<std::string> choices = {});

  // Sets the example of the field that was added last.
  Schema& example(std::string value);

  // Reads `file` (none: defaults), then the environment, then `overrides` ("a.b=v"). kInvalid holds all mistakes, a
  // line each.
  Status read(const fs::path& file, std::span<const std::string> overrides);

  // Reads a file alone, without the environment.
  Status read_alone(const fs::path& file);

  // Names keys of other configs. They are ignored in the environment, which may be set for several commands, and are
  // unknown keys elsewhere.
  Schema& known_elsewhere(std::set<std::string> paths) {
    elsewhere_ = std::move(paths);
    return *this;
  }

  const std::vector<Field>& fields() const { return fields_; }
  Json resolved() const;  // nested objects, every field
  // The inverse of resolved(). Fields missing from an older dump keep their value.
  Status apply_resolved(const Json& resolved);
  Json json_schema() const;
  std::string reference_page() const;  // Markdown table
  std::string origin(const std::string& path) const;

 private:
  struct Reading;
  Field& field(std::string path, FieldType type, std::string doc);
  std::vector<Field> fields_;
  std::map<std::string, Origin> origins_;
  std::set<std::string> elsewhere_;
};

}  // namespace tandem
