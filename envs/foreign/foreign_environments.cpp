#include "envs/foreign/foreign_environments.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/unique_number.h"
#include "envs/foreign/environment_answers.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr int kMostBeginnings = 8;  // of an attempt, whose program others break before it is asked

Status named(const Status& status, const std::string& name) { return quotable(status).at("environment " + name); }

std::string system_message_of(const ResetAnswer& reset, ToolListing listing) {
  std::string text = reset.system;
  if (listing == ToolListing::kByTemplate || reset.tools.empty()) return text;
  text += std::string(text.empty() ? "" : "\n") + "You can call these tools:\n";
  for (const auto& tool : reset.tools)
    text += fmt::format("{}: {} {}\n", tool.name, tool.description, dump_json(tool.parameters));
  return text + "Call a tool like this:\n<tool_call>{\"name\": \"" + reset.tools.front().name +
         "\", \"arguments\": {...}}</tool_call>";
}

}  // namespace

// An attempt, under a name that no other has.
class ForeignEnvironments::Played final : public Attempt {
 public:
  Played(ForeignEnvironments& all, std::string name, std::shared_ptr<EnvironmentLine> line, std::string episode,
         const TaskSpec& spec, ResetAnswer reset)
      : all_(all),
        name_(std::move(name)),
        line_(std::move(line)),
        episode_(std::move(episode)),
        reset_(std::move(reset)) {
    task_.spec = spec;
    task_.instruction = reset_.instruction;
    task_.max_turns = reset_.max_turns;
    task_.ends_on_change = false;
  }
  ~Played() override {
    // It may forget the episode; one that knows nothing of this method says so, and is none the worse for it.
    if (!line_->is_broken()) line_->tell("close", {{"episode", episode_}});
    all_.give_back(name_, line_);
  }

  const Task& task() const override { return task_; }

  Opening opening(ToolListing listing) const override {
    Opening opening;
    if (auto system = system_message_of(reset_, listing); !system.empty())
      opening.messages.push_back({"system", std::move(system)});
    opening.messages.push_back({"user", reset_.instruction});
    opening.tools = tool_schemas(reset_.tools);
    return opening;
  }

  Result<std::vector<ToolOutcome>> turn(std::span<const ParsedCall> calls, std::string_view text) override {
    std::vector<ToolOutcome> outcomes(calls.size());
    Json sent = Json::array();
    std::vector<size_t> places;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i].error.empty()) {
        ++unread_calls_;
        outcomes[i] = ToolOutcome::refused(calls[i].error);
        continue;
      }
      sent.push_back({{"id", calls[i].id}, {"name", calls[i].call.name}, {"arguments", calls[i].call.arguments}});
      places.push_back(i);
    }
    // A message of which no call could be read is none to the environment.
    if (places.empty()) {
      rewards_.push_back(0);
      return outcomes;
    }
    const auto answer = TRY(step(text, std::move(sent), places.size()));
    for (size_t i = 0; i < places.size(); ++i) outcomes[places[i]] = ToolOutcome::done(shown(answer.results[i]));
    return outcomes;
  }

  bool over() const override { return done_; }

  Result<std::optional<std::string>> next_step(std::string_view answer) override {
    if (done_) return std::nullopt;
    auto said = TRY(step(answer, Json::array(), 0));
    if (done_) return std::nullopt;
    return shown(said.observation);
  }

  Result<Grade> score(std::string_view final_answer) override {
    Grade grade;
    if (reset_.sums_steps) {
      for (const double reward : rewards_) grade.reward += reward;
    } else {
      const Json json = TRY(ask("score", {{"answer", final_answer}}));
      auto answer = read_score(json);
      if (!answer) return fail(named(answer.error(), name_));
      grade.reward = answer->reward;
      grade.terms = std::move(answer->terms);
    }
    if (!grade.terms.emplace("unread_calls", unread_calls_).second)
      return fail(named(Status::corrupt("score answered the term unread_calls, which is counted here"), name_));
    if (has_rewards_) grade.turns = rewards_;
    return grade;
  }

 private:
  friend class ForeignEnvironments;
  Result<Json> ask(const std::string& method, Json params) {
    params["episode"] = episode_;
    auto answer = line_->ask(method, params, all_.settings_.seconds);
    if (!answer) return fail(named(answer.error(), name_));
    if (const Status status = check_episode(*answer, episode_); !status) return fail(named(status, name_));
    return answer;
  }

  Result<StepAnswer> step(std::string_view text, Json calls, size_t count) {
    const Json json = TRY(ask("step", {{"message", text}, {"calls", std::move(calls)}}));
    auto answer = read_step(json, count);
    if (!answer) return fail(named(answer.error(), name_));
    done_ = answer->done;
    has_rewards_ = has_rewards_ || answer->reward.has_value();
    rewards_.push_back(answer->reward.value_or(0));
    return answer;
  }

  std::string shown(const std::string& text) const {
    bool truncated = false;
    return bound_output(make_printable(text), all_.settings_.output_limit, truncated);
  }

  ForeignEnvironments& all_;
  const std::string name_;
  const std::shared_ptr<EnvironmentLine> line_;
  const std::string episode_;
  const ResetAnswer reset_;
  Task task_;
  std::vector<double> rewards_;  // of each message of the model
  bool has_rewards_ = false, done_ = false;
  int unread_calls_ = 0;
};

const EnvironmentSpec* ForeignEnvironments::find(const std::string& kind) const {
  const auto found = std::find_if(settings_.environments.begin(), settings_.environments.end(),
                                  [&](const auto& spec) { return spec.name == kind; });
  return found == settings_.environments.end() ? nullptr : &*found;
}

// A new program where there may be more of them and all have something to do, else that with the fewest episodes.
Result<std::shared_ptr<EnvironmentLine>> ForeignEnvironments::take(const EnvironmentSpec& spec) {
  std::lock_guard lock(mutex_);
  auto& programs = programs_[spec.name];
  std::erase_if(programs, [](const Program& program) { return program.line->is_broken(); });
  size_t episodes = 0;
  for (const Program& program : programs) episodes += program.episodes;
  if (episodes >= settings_.most_episodes)
    return fail(Status::exhausted(fmt::format("it has its {} episodes", settings_.most_episodes)));
  auto least = std::min_element(programs.begin(), programs.end(),
                                [](const Program& a, const Program& b) { return a.episodes < b.episodes; });
  const size_t most = spec.url.empty() ? settings_.programs : 1;
  if (least == programs.end() || (least->episodes > 0 && programs.size() < most)) {
    programs.push_back({.line = TRY(open_line(spec)), .episodes = 0});
    least = std::prev(programs.end());
  }
  ++least->episodes;
  return least->line;
}

void ForeignEnvironments::give_back(const std::string& name, const std::shared_ptr<EnvironmentLine>& line) {
  std::lock_guard lock(mutex_);
  for (Program& program : programs_[name]) {
    if (program.line == line) --program.episodes;
  }
}

Result<std::unique_ptr<Attempt>> ForeignEnvironments::open(const TaskSpec& spec) {
  const EnvironmentSpec* environment = find(spec.kind);
  if (environment == nullptr) return fail(Status::not_found("there is no environment " + spec.kind));
  for (int beginnings = 1;; ++beginnings) {
    auto attempt = begin(*environment, spec);
    if (attempt || attempt.error().code() != Code::kCancelled || beginnings == kMostBeginnings) return attempt;
  }
}

Result<std::unique_ptr<Attempt>> ForeignEnvironments::begin(const EnvironmentSpec& environment, const TaskSpec& spec) {
  auto line = take(environment);
  if (!line) return fail(named(line.error(), spec.kind));
  // Seeds of tasks have 64 bits; many languages have whole numbers of 53.
  constexpr uint64_t kLargestSeed = (uint64_t{1} << 53) - 1;
  const auto episode = fmt::format("{:016x}", unique_number());
  const Json params = {{"episode", episode}, {"seed", spec.seed & kLargestSeed}, {"split", to_string(spec.split)}};
  const auto read = [&]() -> Result<ResetAnswer> {
    const Json json = TRY((*line)->ask("reset", params, settings_.seconds));
    TRY(check_episode(json, episode));
    return read_reset(json);
  };
  auto reset = read();
  if (!reset) {
    give_back(spec.kind, *line);
    return fail(named(reset.error(), spec.kind));
  }
  return std::make_unique<Played>(*this, spec.kind, *line, episode, spec, std::move(*reset));
}

Status ForeignEnvironments::probe() {
  for (const auto& spec : settings_.environments) {
    const auto attempt = TRY(open({.kind = spec.name}));
    if (const auto state = static_cast<Played&>(*attempt).ask("state", Json::object()); !state) return state.error();
  }
  return {};
}

}  // namespace tandem::envs
