// Attributes, items and slices of values, as jinja2 finds them.
#include <fmt/format.h>

#include <algorithm>

#include "model/jinja/builtins.h"
#include "model/jinja/objects.h"

namespace tandem::model::jinja {
namespace {

// Beyond 63 bits any number is beyond all elements.
int64_t near_enough(const Value& number) {
  if (!number.is_digits()) return number.integer();
  return number.less(Value(0)) ? INT64_MIN / 2 : INT64_MAX / 2;
}

int64_t index_of(const Value& key, size_t length) {
  const int64_t index = near_enough(key);
  return index < 0 ? index + static_cast<int64_t>(length) : index;
}

}  // namespace

Value attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw TemplateError(value.why());
  if (value.is_namespace()) {
    const Namespace& fields = value.fields();
    const auto found = fields.find(name);
    if (found != fields.end()) return found->second;
    const auto ahead = fields.find(kAhead);
    return ahead == fields.end() ? Value::undefined(name) : ahead->second.function()({{Value(name)}, {}});
  }
  if (value.is_function()) throw TemplateError(fmt::format("'{}' of a function is not supported", name));
  if (value.is_group() && (name == "grouper" || name == "list")) return value.list()[name == "list" ? 1 : 0];
  const Value found = method(value, name);
  if (!found.is_undefined()) return found;
  if (value.is_dict()) {
    if (const Value* inside = value.find(name)) return *inside;
  }
  return Value::undefined(fmt::format("{} object' has no attribute '{}", value.type_name(), name));
}

Value item(const Value& value, const Value& key) {
  if (value.is_undefined()) throw TemplateError(value.why());
  if (key.is_string()) {
    if (value.is_dict()) {
      if (const Value* found = value.find(key.text())) return *found;
    }
    return attribute(value, key.text());
  }
  if (value.is_view() || value.is_once())
    throw TemplateError(fmt::format("elements of a {} by number are not supported", value.type_name()));
  if ((value.is_list() || value.is_string()) && (key.is_int() || key.is_bool())) {
    if (value.is_list()) {
      const int64_t index = index_of(key, value.list().size());
      if (index >= 0 && index < static_cast<int64_t>(value.list().size())) return value.list()[index];
    } else {
      const auto all = characters_of(value.text());
      const int64_t index = index_of(key, all.size());
      if (index >= 0 && index < static_cast<int64_t>(all.size()))
        return value.is_markup() ? Value::markup(std::string(all[index])) : Value(all[index]);
    }
  }
  return Value::undefined(fmt::format("{} object' has no element '{}", value.type_name(), key.repr()));
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (value.is_undefined()) throw TemplateError(value.why());
  if ((!value.is_list() || value.is_view() || value.is_once()) && !value.is_string())
    throw TemplateError(fmt::format("'{}' cannot be sliced", value.type_name()));
  const List all = value.elements();
  const auto count = static_cast<int64_t>(all.size());
  const int64_t by = step.is_none() ? 1 : near_enough(step);
  if (by == 0) throw TemplateError("slice step cannot be zero");
  const auto clamp = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    const int64_t at = index_of(bound, all.size());
    return std::clamp<int64_t>(at, by > 0 ? 0 : -1, by > 0 ? count : count - 1);
  };
  const int64_t from = clamp(begin, by > 0 ? 0 : count - 1);
  const int64_t to = clamp(end, by > 0 ? count : -1);
  List result;
  // Steps wider than the list end after one element; that also keeps `i += by` from overflowing.
  const int64_t stride = std::clamp<int64_t>(by, -count - 1, count + 1);
  for (int64_t i = from; stride > 0 ? i < to : i > to; i += stride) result.push_back(all[i]);
  if (value.is_range()) return Value::range(result);
  if (value.is_list()) return value.is_tuple() ? Value::tuple(result) : Value(result);
  std::string text;
  for (const Value& character : result) text += character.text();
  return value.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
}

}  // namespace tandem::model::jinja
