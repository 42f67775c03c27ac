#include "rollout/books/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json_file.h"

namespace tandem::rollout {
namespace {

constexpr size_t kLongestReason = 800;
constexpr int kFormat = 2;
constexpr uint64_t kMostBytes = 1 << 20;
constexpr const char* kOthers = "other reasons";

// "took 12 s" and "took 7 s" have this in common.
std::string common_part(std::string_view reason) {
  std::string common;
  for (const char c : reason) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit)
      common += c;
    else if (!common.ends_with('#'))
      common += '#';
  }
  return common;
}

}  // namespace

Failures Failures::of(const Json& report) {
  Failures failures;
  if (!report.is_array()) return failures;
  for (const Json& entry : report) {
    const bool is_whole = entry.is_object() && entry.contains("reason") && entry.at("reason").is_string() &&
                          entry.contains("count") && entry.at("count").is_number_unsigned() &&
                          entry.contains("episode") && entry.at("episode").is_number_unsigned();
    if (!is_whole || failures.kinds_.size() > kMostKinds) continue;
    const auto reason = entry.at("reason").get<std::string>();
    failures.kinds_[common_part(reason)] = {reason, entry.at("count").get<uint64_t>(),
                                            entry.at("episode").get<uint64_t>()};
  }
  return failures;
}

Result<Failures> Failures::read(const fs::path& path) {
  const auto text = read_file(path, kMostBytes);
  const Json json = text ? parse_json(*text).value_or(Json()) : Json();
  if (!json.is_object()) return of(json);
  if (auto format = format_of(json, kFormat); !format) return fail(std::move(format).error().at(path.string()));
  return of(json.value("failures", Json()));
}

void Failures::failed(std::string_view reason, uint64_t episode) {
  const std::string text(reason.empty() ? "no reason was given" : reason.substr(0, kLongestReason));
  std::string key = common_part(text);
  const bool has_room = kinds_.contains(key) || kinds_.size() < kMostKinds;
  if (!has_room) key = kOthers;
  Kind& kind = kinds_[key];
  if (kind.count == 0) kind.reason = has_room ? text : kOthers;
  ++kind.count;
  kind.last_episode = episode;
}

Json Failures::report() const {
  std::vector<const Kind*> kinds;
  for (const auto& [key, kind] : kinds_) kinds.push_back(&kind);
  std::ranges::stable_sort(kinds, std::greater<>(), &Kind::count);
  Json list = Json::array();
  for (const Kind* kind : kinds)
    list.push_back({{"reason", kind->reason}, {"count", kind->count}, {"episode", kind->last_episode}});
  return list;
}

Json Failures::to_file() const { return with_format({{"failures", report()}}, kFormat); }

uint64_t Failures::count() const {
  uint64_t sum = 0;
  for (const auto& [key, kind] : kinds_) sum += kind.count;
  return sum;
}

std::optional<std::string> Failures::verdict(uint64_t most) const {
  if (most == 0 || again_ <= most || kinds_.empty()) return std::nullopt;
  const Json kinds = report();
  return fmt::format(
      "{} attempts in a row at episodes that had failed before got no reward, which is more than run.unscored_steps "
      "has: {} ({} times). Mend it, try it with `tandem run --dry-run`, and go on by --resume: nothing was learned "
      "from "
      "these episodes",
      again_, kinds[0]["reason"].get<std::string>(), kinds[0]["count"].get<uint64_t>());
}

}  // namespace tandem::rollout
