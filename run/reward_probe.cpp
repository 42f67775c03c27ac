#include "run/reward_probe.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "envs/backends/backends.h"
#include "envs/episodes/episode.h"
#include "envs/tasks/workspace/kinds.h"
#include "run/env_hosts.h"
#include "run/rewards.h"

namespace tandem::run {
namespace {

// Where the files of reward.files are copied to, gone afterwards.
class ProbeFolder {
 public:
  static Result<ProbeFolder> make() {
    std::string name = (fs::temp_directory_path() / "tandem-probe-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) return fail(Status::from_errno(name, errno));
    return ProbeFolder(name);
  }
  ProbeFolder(ProbeFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ProbeFolder& operator=(ProbeFolder&&) = delete;
  ~ProbeFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit ProbeFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// An attempt with a call that came to nothing, as most episodes have calls.
Result<envs::PlayedEpisode> sample_episode(const envs::Task& task) {
  envs::PlayedEpisode episode{.task = task.spec.id(),
                              .kind = task.spec.kind,
                              .split = "train",
                              .instruction = task.instruction,
                              .before = task.files,
                              .after = task.files};
  episode.messages.push_back({{"role", "system"}, {"content", "You work in a folder by calling tools."}});
  episode.messages.push_back({{"role", "user"}, {"content", task.instruction}});
  const Json arguments = {{"file_path", "README"}};
  const std::string output = "Error: there is no file README";
  const Json called = {{"name", "read"}, {"arguments", dump_json(arguments)}};
  episode.messages.push_back(
      {{"role", "assistant"},
       {"content", ""},
       {"tool_calls", Json::array({{{"id", "call_0_0"}, {"type", "function"}, {"function", called}}})}});
  episode.messages.push_back({{"role", "tool"}, {"tool_call_id", "call_0_0"}, {"content", output}});
  episode.messages.push_back({{"role", "assistant"}, {"content", "I do not know how."}});
  episode.calls.push_back(
      {{"turn", 0}, {"name", "read"}, {"arguments", arguments}, {"error", ""}, {"output", output}, {"exit_code", 1}});
  episode.answer = "I do not know how.";
  episode.terms = {{"files", 0}, {"unread_calls", 0}};
  episode.why = "nothing was done";
  return episode;
}

}  // namespace

Result<Json> probe_rewards(const RunConfig& config) {
  if (!config.reward.own.any() || !has_local_env(config)) return Json();
  const SystemClock clock;
  const auto folder = TRY(ProbeFolder::make());
  TRY(record_rewards(config, folder.path()));
  RunConfig once = config;
  once.reward.own.retries = 0;
  once.reward.own.cache = 0;
  const auto task = TRY(envs::make_task({.kind = "echo", .split = envs::Split::kTrain, .seed = 17}));
  const auto episode = TRY(sample_episode(task));
  const Time start = clock.now();
  const auto ask = [&]() -> Result<Json> {
    Json terms = Json::object();
    const auto rewards = TRY(rewards_of_run(once, folder.path(), clock));
    const bool needs_sandbox = !config.reward.own.command.empty() && config.reward.own.place != "server";
    std::unique_ptr<envs::SandboxBackend> backend;
    envs::RewardPlace where;
    if (needs_sandbox) {
      backend = TRY(envs::start_sandboxes("", config.env.sandbox, config.env.engine));
      where.runner = envs::sandbox_runner(*backend, config.reward.own.seconds);
      where.place.files = task.files;
    }
    const auto said = TRY(rewards->score(episode, where));
    for (const auto& [name, value] : said.terms) terms[name] = value;
    if (config.reward.turns != 0 && said.turns.empty() && config.env.external.empty()) {
      return fail(
          Status::invalid(fmt::format("reward.turns is {}, and nobody said rewards of the single messages of an "
                                      "episode that has two",
                                      config.reward.turns))
              .hint("let the program give `turns`, a number for each message, or leave reward.turns at 0"));
    }
    if (const auto judge = TRY(group_judge_of_run(once, folder.path()))) {
      const auto shown = envs::shown_to_judge(episode, static_cast<size_t>(config.reward.own.judge.bytes));
      if (const auto winner = judge->compare(shown, shown + "\nNothing else was done.\n"); !winner)
        return fail(Status(winner.error()).at("reward.judge"));
    }
    return terms;
  };
  auto terms = ask();
  if (!terms) {
    return fail(Status::unfit(fmt::format("asked about a sample episode: {}", terms.error().message()))
                    .hint(terms.error().hint().empty()
                              ? "every episode of a run would end as this one; examples/rewards/episode.json is one to "
                                "try a program with by hand"
                              : terms.error().hint()));
  }
  return Json{{"terms", std::move(*terms)}, {"seconds", to_seconds(clock.now() - start)}};
}

}  // namespace tandem::run
