// The fields of a request's JSON body: one table checks requests and describes them in the OpenAPI document.
//
// A field takes effect, is accepted without effect, or is refused by name unless it asks for nothing; a field that no
// table has is an error. Null counts as missing.
//
// Thread safety: a FieldTable is immutable; a Fields belongs to one request.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tandem::serve {

enum class Effect : uint8_t { kTakes, kIgnored, kRefused };

struct FieldRow {
  std::string_view name;
  Effect effect = Effect::kTakes;
  // JSON Schema: type (one or a list), minimum, maximum, enum, minItems, maxItems, minLength, maxLength are checked.
  // What a refused field accepts since it asks for nothing.
  std::string_view schema;
  std::string_view about;
};

class FieldTable {
 public:
  // `rows` are constants of the program.
  explicit FieldTable(std::vector<std::span<const FieldRow>> parts);

  struct Row {
    FieldRow row;
    Json schema;
  };
  const std::vector<Row>& rows() const { return rows_; }
  const Row* find(std::string_view name) const;
  // An object's schema, in the order of the rows.
  Json json_schema(std::span<const std::string_view> required) const;

 private:
  std::vector<Row> rows_;
};

// A body that was checked against its table. Values are of the types that the table says.
class Fields {
 public:
  // kInvalid, see param(), for what is no object, unknown, of another type or beyond its limits, or refused.
  Status read(const FieldTable& table, std::string_view body);

  const Json* get(std::string_view name) const;  // null where missing
  bool has(std::string_view name) const { return get(name) != nullptr; }
  int integer(std::string_view name, int otherwise) const;
  double number(std::string_view name, double otherwise) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::string text(std::string_view name, std::string otherwise = "") const;

  // Reports a mistake in a field, and keeps its name for the answer.
  Status wrong(std::string_view param, std::string message);
  // The same for an error that somebody else found.
  Status wrong(std::string_view param, Status status);
  const std::string& param() const { return param_; }

 private:
  Json body_;
  std::string param_;
};

// Whether a value is as a schema of these keywords says; else what is wrong: "must be an integer from 0 to 20, not -1".
Status check_schema(const Json& schema, const Json& value);

}  // namespace tandem::serve
