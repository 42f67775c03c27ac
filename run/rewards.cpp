#include "run/rewards.h"

#include <fmt/format.h>

#include "base/text.h"
#include "wire/json_request.h"

namespace tandem::run {
namespace {

constexpr double kOnTheWay = 5;  // for a busy server to read a question and write the answer

constexpr uint64_t kMostBytes = uint64_t{16} << 20;  // of a file

std::vector<std::string> files_of(const envs::RewardSettings& own) {
  std::vector<std::string> files = own.files;
  if (!own.judge.url.empty() && !own.judge.rubric.empty()) files.push_back(own.judge.rubric);
  return files;
}

Result<std::string> content_of(const std::string& file) {
  auto content = read_file(file, kMostBytes);
  if (content) return content;
  return fail(Status::invalid(content.error().message()).at("reward"));
}

std::set<std::string> names_of(const std::map<std::string, double>& weights) {
  std::set<std::string> names;
  for (const auto& [name, weight] : weights) names.insert(name);
  return names;
}

}  // namespace

std::vector<std::string> reward_mistakes(const RunConfig& config) {
  const auto weights = envs::parse_reward_weights(config.reward.weights);
  if (!weights) return {"reward.weights: " + weights.error().message()};
  return envs::mistakes_of(config.reward.own, *weights, config.reward.turns);
}

Status check_rewards(const RunConfig& config) {
  const auto& own = config.reward.own;
  for (const auto& file : files_of(own)) TRY(content_of(file));
  if (!own.http.empty()) {
    if (const auto key = wire::read_server_key(own.key_env, own.key_file); !key)
      return Status(key.error()).at("reward.http");
  }
  if (!own.judge.url.empty()) {
    if (const auto key = wire::read_server_key(own.judge.key_env, own.judge.key_file); !key)
      return Status(key.error()).at("reward.judge");
  }
  return {};
}

Status record_rewards(const RunConfig& config, const fs::path& run_dir) {
  if (!config.reward.own.any()) return {};
  const fs::path folder = run_dir / kRewardFolder;
  TRY(make_directories(folder));
  for (const auto& file : files_of(config.reward.own)) {
    const fs::path copy = folder / fs::path(file).filename();
    std::error_code error;
    if (!fs::exists(copy, error)) {
      TRY(write_file(copy, TRY(content_of(file))));
      fs::permissions(copy, fs::status(file, error).permissions(), error);
    } else if (fs::exists(file, error) && TRY(content_of(file)) != TRY(read_file(copy, kMostBytes))) {
      return Status::invalid("is not what the run began with")
          .at(file)
          .hint(fmt::format("put back {}, or begin a new run", copy.string()));
    }
  }
  return {};
}

Result<std::shared_ptr<envs::Rewards>> rewards_of_run(const RunConfig& config, const fs::path& run_dir,
                                                      const Clock& clock) {
  return envs::rewards_of(config.reward.own, names_of(TRY(envs::parse_reward_weights(config.reward.weights))),
                          fs::absolute(run_dir / kRewardFolder), clock);
}

Result<std::shared_ptr<envs::Judge>> group_judge_of_run(const RunConfig& config, const fs::path& run_dir) {
  const auto& own = config.reward.own;
  if (own.judge.url.empty() || !own.judge.pairwise) return std::shared_ptr<envs::Judge>();
  return envs::judge_of(own, run_dir / kRewardFolder);
}

Result<std::shared_ptr<envs::ForeignEnvironments>> foreign_environments_of(const RunConfig& config) {
  if (config.env.external.empty()) return std::shared_ptr<envs::ForeignEnvironments>();
  auto environments = TRY(envs::parse_environments(config.env.external));
  const auto profile = TRY(profile_of(config));
  return std::make_shared<envs::ForeignEnvironments>(
      envs::ForeignSettings{.environments = std::move(environments),
                            .seconds = config.env.external_seconds,
                            .programs = static_cast<size_t>(config.env.external_programs),
                            .output_limit = static_cast<size_t>(profile.output_bytes)});
}

double grade_seconds_of(const RunConfig& config) {
  const double seconds = config.rollout.episode_seconds;
  return config.tasks.path.empty() ? 0 : std::max(seconds - kOnTheWay, seconds / 2);
}

Result<EnvDeadlines> env_deadlines_of(const RunConfig& config) {
  EnvDeadlines deadlines;
  deadlines.request = std::max(deadlines.request, TRY(profile_of(config)).call_seconds + kOnTheWay);
  // The coordinator takes an episode back that is too slow.
  if (config.reward.own.any() || !config.tasks.path.empty()) deadlines.grade = config.rollout.episode_seconds;
  for (const auto& spec : TRY(envs::parse_environments(config.env.external))) {
    // A program is asked one question after the other: as long as an answer may take, a question waits its turn.
    const double turns = spec.url.empty() ? 2 : 1;
    deadlines.of_kind[spec.name] = turns * config.env.external_seconds + kOnTheWay;
  }
  return deadlines;
}

std::string describe_rewards(const RunConfig& config) {
  const auto& own = config.reward.own;
  std::vector<std::string> parts;
  if (!own.command.empty())
    parts.push_back(fmt::format("reward.command {} `{}`", own.place == "server" ? "beside the server" : "in a sandbox",
                                own.command));
  if (!own.http.empty()) parts.push_back("reward.http " + own.http);
  if (!own.judge.url.empty())
    parts.push_back(
        fmt::format("reward.judge {} at {}{}", own.judge.model, own.judge.url, own.judge.pairwise ? ", pairwise" : ""));
  parts.push_back(fmt::format("task x {}", config.reward.task));
  if (config.reward.turns != 0) parts.push_back(fmt::format("turns x {}", config.reward.turns));
  for (const auto& weight : config.reward.weights) {
    const size_t equals = weight.find('=');
    parts.push_back(fmt::format("{} x {}", weight.substr(0, equals), weight.substr(equals + 1)));
  }
  return join(parts, ", ");
}

}  // namespace tandem::run
