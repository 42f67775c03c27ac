#include "envs/foreign/foreign_environments.h"

#include <fmt/format.h>

#include <algorithm>

#include "envs/foreign/environment_answers.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostIdle = 8;  // lines of an environment

Status named(const Status& status, const std::string& name) { return Status(status).at("environment " + name); }

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

// An attempt, over a line that it has for itself.
class ForeignEnvironments::Played final : public Attempt {
 public:
  Played(ForeignEnvironments& all, std::string name, std::unique_ptr<EnvironmentLine> line, const TaskSpec& spec,
         ResetAnswer reset)
      : all_(all), name_(std::move(name)), line_(std::move(line)), reset_(std::move(reset)) {
    task_.spec = spec;
    task_.instruction = reset_.instruction;
    task_.max_turns = reset_.max_turns;
    task_.ends_on_change = false;
  }
  ~Played() override { all_.give_back(name_, std::move(line_), is_scored_); }

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
    grade.terms["unread_calls"] = unread_calls_;
    if (has_rewards_) grade.turns = rewards_;
    is_scored_ = true;
    return grade;
  }

 private:
  Result<Json> ask(const std::string& method, const Json& params) {
    auto answer = line_->ask(method, params, all_.settings_.seconds);
    if (!answer) return fail(named(answer.error(), name_));
    if (const Status status = check_episode(*answer, reset_.episode); !status) return fail(named(status, name_));
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
  std::unique_ptr<EnvironmentLine> line_;
  const ResetAnswer reset_;
  Task task_;
  std::vector<double> rewards_;  // of each message of the model
  bool has_rewards_ = false, done_ = false, is_scored_ = false;
  int unread_calls_ = 0;
};

const EnvironmentSpec* ForeignEnvironments::find(const std::string& kind) const {
  const auto found = std::find_if(settings_.environments.begin(), settings_.environments.end(),
                                  [&](const auto& spec) { return spec.name == kind; });
  return found == settings_.environments.end() ? nullptr : &*found;
}

Result<std::unique_ptr<EnvironmentLine>> ForeignEnvironments::take(const EnvironmentSpec& spec) {
  {
    std::lock_guard lock(mutex_);
    Lines& lines = lines_[spec.name];
    if (lines.open >= settings_.most_lines)
      return fail(Status::exhausted(fmt::format("it has its {} episodes", settings_.most_lines)));
    ++lines.open;
    if (!lines.idle.empty()) {
      auto line = std::move(lines.idle.back());
      lines.idle.pop_back();
      return line;
    }
  }
  auto line = open_line(spec);
  if (!line) give_back(spec.name, nullptr, false);
  return line;
}

void ForeignEnvironments::give_back(const std::string& name, std::unique_ptr<EnvironmentLine> line, bool is_well) {
  std::lock_guard lock(mutex_);
  Lines& lines = lines_[name];
  --lines.open;
  if (is_well && line && lines.idle.size() < kMostIdle) lines.idle.push_back(std::move(line));
}

Result<std::unique_ptr<Attempt>> ForeignEnvironments::open(const TaskSpec& spec) {
  const EnvironmentSpec* environment = find(spec.kind);
  if (environment == nullptr) return fail(Status::not_found("there is no environment " + spec.kind));
  auto line = take(*environment);
  if (!line) return fail(named(line.error(), spec.kind));
  // Seeds of tasks have 64 bits; many languages have whole numbers of 53.
  constexpr uint64_t kLargestSeed = (uint64_t{1} << 53) - 1;
  const Json params = {{"seed", spec.seed & kLargestSeed}, {"split", to_string(spec.split)}};
  auto answer = (*line)->ask("reset", params, settings_.seconds);
  auto reset = answer ? read_reset(*answer) : fail(answer.error());
  if (!reset) {
    give_back(spec.kind, std::move(*line), false);
    return fail(named(reset.error(), spec.kind));
  }
  return std::make_unique<Played>(*this, spec.kind, std::move(*line), spec, std::move(*reset));
}

Status ForeignEnvironments::probe() {
  for (const auto& spec : settings_.environments) {
    auto line = take(spec);
    if (!line) return named(line.error(), spec.name);
    auto answer = (*line)->ask("reset", {{"seed", 0}, {"split", "train"}}, settings_.seconds);
    Status status = answer ? Status() : answer.error();
    if (answer) {
      if (auto reset = read_reset(*answer); !reset) status = reset.error();
    }
    if (status) {
      if (auto state = (*line)->ask("state", Json::object(), settings_.seconds); !state) status = state.error();
    }
    give_back(spec.name, std::move(*line), status.ok());
    if (!status) return named(status, spec.name);
  }
  return {};
}

}  // namespace tandem::envs
