#include "model/config_reader.h"

#include <fmt/format.h>

namespace tandem::model {

bool has(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && !found->is_null();
}

Result<int> ConfigReader::size(std::string_view key, std::optional<int> otherwise) const {
  if (!has(json_, key)) {
    if (otherwise) return *otherwise;
    return fail(Status::invalid(fmt::format("lacks {}", key)));
  }
  constexpr int kMost = 1 << 27;
  const Json& value = json_[std::string(key)];
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost) {
    return fail(Status::invalid(fmt::format("{} is {}, not a whole number from 1 to {}", key, value.dump(), kMost)));
  }
  return static_cast<int>(value.get<int64_t>());
}

Result<int> ConfigReader::count(std::string_view key, int otherwise) const {
  if (has(json_, key) && json_[std::string(key)] == 0) return 0;
  if (!has(json_, key)) return otherwise;
  return size(key);
}

Result<double> ConfigReader::number(std::string_view key, std::optional<double> otherwise) const {
  if (!has(json_, key)) {
    if (otherwise) return *otherwise;
    return fail(Status::invalid(fmt::format("lacks {}", key)));
  }
  const Json& value = json_[std::string(key)];
  if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > 1e15) {
    return fail(Status::invalid(fmt::format("{} is {}, not a positive number", key, value.dump())));
  }
  return value.get<double>();
}

Result<bool> ConfigReader::flag(std::string_view key, bool otherwise) const { return bool_at(json_, key, otherwise); }

Result<std::string> ConfigReader::text(std::string_view key, std::string otherwise) const {
  if (!has(json_, key)) return otherwise;
  const Json& value = json_[std::string(key)];
  if (!value.is_string()) return fail(Status::invalid(fmt::format("{} is {}, not a string", key, value.dump())));
  return value.get<std::string>();
}

Result<std::vector<int32_t>> ConfigReader::numbers(std::string_view key, std::string_view what) const {
  std::vector<int32_t> ids;
  if (!has(json_, key)) return ids;
  const Json& value = json_[std::string(key)];
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return fail(Status::invalid(fmt::format("{} is {}, not a {} or a list of them", key, value.dump(), what)));
    }
    ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
  }
  return ids;
}

}  // namespace tandem::model
