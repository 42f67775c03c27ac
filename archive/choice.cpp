#include "archive/choice.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>

#include "dashboard/run_files.h"

namespace tandem::archive {
namespace {

bool lies_within(const Json& number, const StepRange& range) {
  return number.is_number_integer() && number.get<uint64_t>() >= range.first && number.get<uint64_t>() <= range.last;
}

bool read_number(std::string_view text, uint64_t& number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<StepRange> step_range(std::string_view text) {
  StepRange range{.first = 0, .last = std::numeric_limits<uint64_t>::max()};
  const size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : text.substr(dash + 1);
  const bool read =
      (first.empty() || read_number(first, range.first)) && (last.empty() || read_number(last, range.last));
  if (!read || (first.empty() && last.empty()) || range.first > range.last)
    return fail(Status::invalid(fmt::format("\"{}\" is no range of steps", text)).hint("write 4-9, 4-, -9 or 4"));
  return range;
}

bool matches(const EpisodeChoice& choice, const Json& episode) {
  if (choice.least_reward) {
    const auto reward = dashboard::maybe_number_at(episode, "reward");
    if (!reward || *reward < *choice.least_reward) return false;
  }
  if (choice.trained && !lies_within(episode["trained_step"], *choice.trained)) return false;
  if (choice.sampled) {
    const Json& versions = episode["versions"];
    if (!versions.is_array() || versions.empty() || !lies_within(versions[0], *choice.sampled)) return false;
  }
  return choice.split.empty() || (episode["split"] == "train") == (choice.split == "train");
}

Result<std::set<uint64_t>> choose_episodes(const fs::path& run_dir, const rollout::PlanOfConfig& plan_of_config,
                                           const EpisodeChoice& choice) {
  std::set<uint64_t> chosen;
  std::map<uint64_t, std::pair<double, uint64_t>> best;  // by group: reward, episode
  const auto visit = [&](const Json& episode) -> Status {
    if (!matches(choice, episode)) return {};
    const auto number = episode["episode"].get<uint64_t>();
    if (!choice.best_of_group) {
      chosen.insert(number);
      return {};
    }
    const auto reward = dashboard::maybe_number_at(episode, "reward");
    if (!reward) return {};
    const auto [at, is_new] = best.try_emplace(episode["group"].get<uint64_t>(), *reward, number);
    if (!is_new && *reward > at->second.first) at->second = {*reward, number};
    return {};
  };
  TRY(dashboard::visit_episodes(run_dir, plan_of_config, dashboard::WithTokens::kNo, visit));
  for (const auto& [group, one] : best) chosen.insert(one.second);
  return chosen;
}

}  // namespace tandem::archive
