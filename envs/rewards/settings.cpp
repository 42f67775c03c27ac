#include "envs/rewards/settings.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <set>

#include "base/text.h"
#include "envs/rewards/reward_answer.h"
#include "wire/http_client.h"

namespace tandem::envs {
namespace {

constexpr double kLargestWeight = 1e6;

}  // namespace

Result<std::map<std::string, double>> parse_reward_weights(const std::vector<std::string>& entries) {
  std::map<std::string, double> weights;
  for (const auto& entry : entries) {
    const size_t equals = entry.find('=');
    const auto name = entry.substr(0, equals);
    const auto text = equals == std::string::npos ? std::string() : entry.substr(equals + 1);
    double weight = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
    if (!is_term_name(name) || text.empty() || error != std::errc() || end != text.data() + text.size() ||
        !(std::abs(weight) <= kLargestWeight)) {
      return fail(Status::invalid(fmt::format("\"{}\" is not NAME=WEIGHT, such as style=0.5", entry)));
    }
    if (!weights.emplace(name, weight).second)
      return fail(Status::invalid(fmt::format("the term {} stands twice", name)));
  }
  return weights;
}

std::vector<std::string> mistakes_of(const RewardSettings& s, const std::map<std::string, double>& terms,
                                     double turns) {
  std::vector<std::string> mistakes;
  const auto check_url = [&](const char* key, const std::string& url) {
    if (url.empty()) return;
    if (const Status status = wire::check_url(url); !status)
      mistakes.push_back(fmt::format("{}: {}", key, status.message()));
  };
  check_url("reward.http", s.http);
  check_url("reward.judge", s.judge.url);
  const bool has_terms = !s.command.empty() || !s.http.empty();
  if (has_terms && terms.empty() && turns == 0 && s.judge.url.empty()) {
    mistakes.push_back(
        "reward.weights names no term: nothing of what the reward program answers would be learned from; "
        "name one, as in reward.weights=[style=0.5], or give the numbers of single messages a weight, as in "
        "reward.turns=1");
  }
  if (!s.any() && !terms.empty())
    mistakes.push_back("reward.weights needs reward.command, reward.http or reward.judge, whose terms it weighs");
  if (s.command.empty() && !s.files.empty())
    mistakes.push_back("reward.files are of reward.command, and there is none");
  std::set<std::string> names;
  for (const auto& file : s.files) {
    if (!names.insert(fs::path(file).filename()).second)
      mistakes.push_back(fmt::format("reward.files: two have the name {}", fs::path(file).filename().string()));
  }
  const char* const of_judge = s.judge.pairwise ? "preferred" : "judge";
  if (!s.judge.url.empty() && !terms.contains(of_judge)) {
    mistakes.push_back(fmt::format(
        "reward.weights has no weight for the term {} of reward.judge; name it, as in reward.weights=[{}=1]", of_judge,
        of_judge));
  }
  if (!s.judge.url.empty() && s.judge.model.empty())
    mistakes.push_back("reward.judge_model: which model of the endpoint judges?");
  if (!s.judge.url.empty() && s.judge.rubric.empty())
    mistakes.push_back("reward.judge_rubric: which file says what is judged?");
  return mistakes;
}

}  // namespace tandem::envs
