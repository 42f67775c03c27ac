#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace tandem {

namespace {

template <typename Value>
Result<Value> parse(std::string_view text) {
  constexpr int kMaxDepth = 64;
  std::vector<std::set<std::string>> open_keys;
  std::string trouble;
  const auto watch = [&](int depth, typename Value::parse_event_t event, Value& parsed) {
    if (depth > kMaxDepth && trouble.empty()) trouble = fmt::format("nested deeper than {}", kMaxDepth);
    if (event == Value::parse_event_t::object_start) open_keys.emplace_back();
    if (event == Value::parse_event_t::object_end) open_keys.pop_back();
    if (event == Value::parse_event_t::key && !open_keys.back().insert(parsed.template get<std::string>()).second &&
        trouble.empty()) {
      trouble = fmt::format("key \"{}\" stands twice in one object", parsed.template get<std::string>());
    }
    return true;
  };
  try {
    Value value = Value::parse(text, watch);
    if (!trouble.empty()) return fail(Status::invalid("JSON: " + trouble));
    return value;
  } catch (const typename Value::out_of_range& error) {  // a number beyond what a double holds
    const std::string_view what = error.what();
    return fail(Status::invalid(fmt::format("JSON: {}", what.substr(what.find("] ") + 2))));
  } catch (const typename Value::parse_error& error) {
    const auto before = text.substr(0, std::min(error.byte > 0 ? error.byte - 1 : 0, text.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto line_start = before.rfind('\n');
    const auto column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
    std::string_view reason = error.what();
    if (const auto colon = reason.find(": "); colon != std::string_view::npos) reason = reason.substr(colon + 2);
    return fail(Status::invalid(fmt::format("not JSON at line {} column {}: {}", line, column, reason)));
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text) { return parse<Json>(text); }
Result<WideJson> parse_wide_json(std::string_view text) { return parse<WideJson>(text); }

std::string dump_json(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string dump_json(const WideJson& value) { return value.dump(-1, ' ', false, WideJson::error_handler_t::replace); }

Result<int> format_of(const Json& object, int newest) {
  const auto found = object.find("format");
  const Json format = found == object.end() ? Json(1) : *found;
  if (format.is_number_integer() && format >= std::max(1, newest - 1) && format <= newest) return format.get<int>();
  return fail(Status::invalid(fmt::format("is of format {}; this program reads formats {} to {}", dump_json(format),
                                          std::max(1, newest - 1), newest)));
}

Status check_keys(const Json& object, std::initializer_list<std::string_view> allowed) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    return Status::invalid(fmt::format("unknown key \"{}\"{}", key, did_you_mean(key, allowed)));
  }
  return {};
}

}  // namespace tandem
