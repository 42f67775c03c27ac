// What stands behind `is`: jinja2's tests.
#include <fmt/format.h>

#include <algorithm>

#include "model/jinja/builtins.h"
#include "model/jinja/casing.h"

namespace tandem::model::jinja {
namespace {

using Test = bool (*)(const Value& value, const Arguments& arguments);

const Value& other(const Arguments& arguments) {
  if (arguments.positional.size() != 1) throw TemplateError("a test needs one argument");
  return arguments.positional[0];
}

const std::pair<std::string_view, Test> kTests[] = {
    {"boolean", [](const Value& v, const Arguments&) { return v.is_bool(); }},
    {"callable", [](const Value& v, const Arguments&) { return v.is_function(); }},
    {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"divisibleby", [](const Value& v, const Arguments& a) { return !binary("%", v, other(a)).truth(); }},
    {"escaped", [](const Value& v, const Arguments&) { return v.is_markup(); }},
    {"eq", [](const Value& v, const Arguments& a) { return v.equals(other(a)); }},
    {"equalto", [](const Value& v, const Arguments& a) { return v.equals(other(a)); }},
    {"==", [](const Value& v, const Arguments& a) { return v.equals(other(a)); }},
    {"!=", [](const Value& v, const Arguments& a) { return !v.equals(other(a)); }},
    {"<", [](const Value& v, const Arguments& a) { return v.less(other(a)); }},
    {"<=", [](const Value& v, const Arguments& a) { return !other(a).less(v); }},
    {">", [](const Value& v, const Arguments& a) { return other(a).less(v); }},
    {">=", [](const Value& v, const Arguments& a) { return !v.less(other(a)); }},
    {"even", [](const Value& v, const Arguments&) { return !binary("%", v, Value(2)).truth(); }},
    {"false", [](const Value& v, const Arguments&) { return v.is_bool() && !v.truth(); }},
    {"filter", [](const Value& v, const Arguments&) { return v.is_string() && is_filter(v.text()); }},
    {"float", [](const Value& v, const Arguments&) { return v.is_float(); }},
    {"ge", [](const Value& v, const Arguments& a) { return !v.less(other(a)); }},
    {"gt", [](const Value& v, const Arguments& a) { return other(a).less(v); }},
    {"greaterthan", [](const Value& v, const Arguments& a) { return other(a).less(v); }},
    {"in", [](const Value& v, const Arguments& a) { return other(a).contains(v); }},
    {"integer", [](const Value& v, const Arguments&) { return v.is_int(); }},
    {"iterable",
     [](const Value& v, const Arguments&) { return v.is_undefined() || v.is_string() || v.is_list() || v.is_dict(); }},
    {"le", [](const Value& v, const Arguments& a) { return !other(a).less(v); }},
    {"lessthan", [](const Value& v, const Arguments& a) { return v.less(other(a)); }},
    {"lower", [](const Value& v, const Arguments&) { return is_all_lower(v.str()); }},
    {"lt", [](const Value& v, const Arguments& a) { return v.less(other(a)); }},
    {"mapping", [](const Value& v, const Arguments&) { return v.is_dict(); }},
    {"ne", [](const Value& v, const Arguments& a) { return !v.equals(other(a)); }},
    {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
    {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
    {"odd", [](const Value& v, const Arguments&) { return binary("%", v, Value(2)).equals(Value(1)); }},
    {"sameas",
     [](const Value& v, const Arguments& a) {
       const Value& o = other(a);
       if (v.is_bool() || o.is_bool() || v.is_none() || o.is_none())
         return v.type_name() == o.type_name() && v.equals(o);
       throw TemplateError("'sameas' of anything but true, false and none is not supported");
     }},
    {"sequence",
     [](const Value& v, const Arguments&) {
       return v.is_undefined() || v.is_string() || v.is_dict() || (v.is_list() && !v.is_view() && !v.is_once());
     }},
    {"string", [](const Value& v, const Arguments&) { return v.is_string(); }},
    {"test", [](const Value& v, const Arguments&) { return v.is_string() && is_test(v.text()); }},
    {"true", [](const Value& v, const Arguments&) { return v.is_bool() && v.truth(); }},
    {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
    {"upper", [](const Value& v, const Arguments&) { return is_all_upper(v.str()); }},
};

const std::pair<std::string_view, Test>* test_named(std::string_view name) {
  const auto* const found = std::ranges::find(kTests, name, &std::pair<std::string_view, Test>::first);
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool is_test(std::string_view name) { return test_named(name) != nullptr; }

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  const auto* const found = test_named(name);
  if (found == nullptr) throw TemplateError(fmt::format("test '{}' is not supported", name));
  return found->second(value, arguments);
}

}  // namespace tandem::model::jinja
