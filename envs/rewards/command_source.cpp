// reward.command: a program reads the episode from its standard input and prints its terms.
#include <fmt/format.h>

#include <cstdlib>

#include "base/text.h"
#include "base/utf8.h"
#include "envs/rewards/source.h"
#include "envs/sandbox/keeper.h"
#include "envs/tasks/verifier.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr const char* kFolder = "/reward";  // in a sandbox
constexpr const char* kInput = "/reward/episode.json";
constexpr const char* kErrors = "/tmp/reward.stderr";
constexpr size_t kMostErrorBytes = 2000;
// Most bytes of a file of reward.files.
constexpr uint64_t kMostProgramBytes = uint64_t{16} << 20;

// The end of what a program said about its failure, on one line.
std::string last_words(std::string_view text) {
  const auto lines = split_lines(trim(text));
  if (lines.empty()) return "nothing on standard error";
  constexpr size_t kLongest = 300;
  auto last = trim(lines.back());
  if (last.size() > kLongest) last = last.substr(last.size() - kLongest);
  return replace_invalid_utf8(last);
}

Status ended_badly(int exit_code, std::string_view errors) {
  return Status::unavailable(fmt::format("ended with exit code {}: {}", exit_code, last_words(errors)));
}

Status too_slow(double seconds) { return Status::deadline(fmt::format("did not answer within {} s", seconds)); }

Status too_long(int bytes) {
  return Status::corrupt(fmt::format("answered more than {} bytes (reward.output_bytes)", bytes));
}

class CommandOnServer final : public RewardSource {
 public:
  CommandOnServer(const RewardSettings& settings, fs::path folder) : settings_(settings), folder_(std::move(folder)) {}
  std::string name() const override { return "reward.command"; }
  std::string identity() const override { return "command " + settings_.command; }

  Result<RewardAnswer> ask(const Question& question) override {
    ProcessSpec spec{.argv = kept({"/bin/sh", "-c", settings_.command}),
                     .directory = folder_,
                     .environment = {"LANG=C.UTF-8"},
                     .time_limit_s = question.seconds,
                     .output_limit = static_cast<size_t>(settings_.output_bytes),
                     .input = question.text,
                     .errors_apart = true};
    for (const char* name : {"PATH", "HOME"}) {
      if (const char* value = std::getenv(name)) spec.environment.push_back(fmt::format("{}={}", name, value));
    }
    const auto result = TRY(run_process(spec));
    if (result.timed_out) return fail(too_slow(question.seconds));
    if (result.exit_code != 0) return fail(ended_badly(result.exit_code, result.errors));
    if (result.output.size() >= spec.output_limit) return fail(too_long(settings_.output_bytes));
    return read_reward_answer(result.output, question.episode.turns());
  }

 private:
  const RewardSettings settings_;
  const fs::path folder_;
};

class CommandInSandbox final : public RewardSource {
 public:
  CommandInSandbox(const RewardSettings& settings, Files files, std::set<std::string> programs)
      : settings_(settings), files_(std::move(files)), programs_(std::move(programs)) {}
  std::string name() const override { return "reward.command"; }
  std::string identity() const override { return "command in a sandbox " + settings_.command; }

  Result<RewardAnswer> ask(const Question& question) override {
    Place place = question.where.place;
    place.links[kFolder] = std::string(kOutside) + kFolder;
    for (const auto& [path, content] : files_) place.files[path] = content;
    place.files[kInput] = question.text;
    place.programs.insert(programs_.begin(), programs_.end());
    // The output of a call is both streams: errors are kept apart, and shown where it fails.
    const CheckCommand command{
        .command = fmt::format("cd {} && ( {}\n) < {} 2> {} || {{ code=$?; tail -c {} {}; exit $code; }}", kFolder,
                               settings_.command, kInput, kErrors, kMostErrorBytes, kErrors),
        .seconds = question.seconds,
        .any_exit = true};
    const auto outcome = TRY(question.where.runner(place, {&command, 1})).at(0);
    if (is_out_of_time(outcome)) return fail(too_slow(question.seconds));
    if (outcome.exit_code != 0) return fail(ended_badly(outcome.exit_code, outcome.output));
    if (outcome.output.size() > static_cast<size_t>(settings_.output_bytes) || outcome.truncated)
      return fail(too_long(settings_.output_bytes));
    return read_reward_answer(outcome.output, question.episode.turns());
  }

 private:
  const RewardSettings settings_;
  const Files files_;
  const std::set<std::string> programs_;
};

}  // namespace

Result<std::unique_ptr<RewardSource>> command_source(const RewardSettings& settings, const fs::path& folder) {
  if (settings.place == "server") return std::make_unique<CommandOnServer>(settings, folder);
  Files files;
  std::set<std::string> programs;
  for (const auto& file : settings.files) {
    const auto name = fs::path(file).filename();
    const auto path = std::string(kFolder) + "/" + name.string();
    files[path] = TRY(read_file(folder / name, kMostProgramBytes));
    std::error_code error;
    const auto mode = fs::status(folder / name, error).permissions();
    if ((mode & fs::perms::owner_exec) != fs::perms::none) programs.insert(path);
  }
  return std::make_unique<CommandInSandbox>(settings, std::move(files), std::move(programs));
}

}  // namespace tandem::envs
