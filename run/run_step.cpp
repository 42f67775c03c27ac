#include "run/run_step.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/text.h"
#include "envs/episodes/profile.h"
#include "trainer/learn/checkpoints.h"
#include "trainer/learn/learner.h"

namespace tandem::run {
namespace {

bool is_run_directory(const fs::path& dir) {
  std::error_code error;
  return fs::is_regular_file(dir / "config.resolved.json", error);
}

std::string kept_steps(const std::vector<std::pair<uint64_t, fs::path>>& checkpoints) {
  std::vector<std::string> steps;
  for (const auto& [step, path] : checkpoints) steps.push_back(std::to_string(step));
  return steps.empty() ? "it has no checkpoint" : "it has " + join(steps, ", ");
}

// Names a checkpoint that cannot be read, and what else there is.
Status named(Status status, const RunStep& step) {
  if (status.message().find(step.checkpoint.string()) == std::string::npos)
    status = Status::corrupt(status.message()).at(step.checkpoint.string());
  std::vector<std::string> others;
  for (const auto& [number, path] : trainer::checkpoints_of(step.run)) {
    if (number != step.step) others.push_back(fmt::format("{}@{}", step.run.string(), number));
  }
  if (!status.hint().empty() || others.empty()) return status;
  return std::move(status).hint("the run has others: " + join(others, ", "));
}

}  // namespace

Result<std::optional<RunStep>> run_step_named(std::string_view text) {
  std::error_code error;
  const fs::path whole(text);
  if (is_run_directory(whole) && !fs::exists(whole / "config.json", error)) {
    const std::string hint = fs::exists(whole / "export" / "config.json", error)
                                 ? fmt::format("{} is its trained model; {}@last or {}@12 is a step of it",
                                               (whole / "export").string(), text, text)
                                 : fmt::format("{}@last is its newest checkpoint, {}@12 that of a step", text, text);
    return fail(Status::invalid("is a run, and no model directory").at(std::string(text)).hint(hint));
  }
  const size_t at = text.rfind('@');
  if (at == std::string_view::npos || !is_run_directory(text.substr(0, at)) || fs::is_directory(whole, error))
    return std::optional<RunStep>();
  const fs::path run(text.substr(0, at));
  const std::string_view word = text.substr(at + 1);
  const auto checkpoints = trainer::checkpoints_of(run);
  const auto none = [&](std::string what, std::string hint) {
    return fail(Status::invalid(std::move(what)).at(std::string(text)).hint(std::move(hint)));
  };
  if (word == "last") {
    if (checkpoints.empty()) return none("the run has no checkpoint yet", "see trainer.checkpoint_every");
    return std::optional(
        RunStep{.run = run, .checkpoint = checkpoints.back().second, .step = checkpoints.back().first});
  }
  uint64_t step = 0;
  if (word == "best") {
    const fs::path target = fs::read_symlink(run / "checkpoints" / "best", error);
    for (const auto& [number, path] : checkpoints) {
      if (!error && path.filename() == target)
        return std::optional(RunStep{.run = run, .checkpoint = path, .step = number});
    }
    return none("no checkpoint of the run is called the best",
                "tasks.heldout_every measures while training goes on and names one; " + kept_steps(checkpoints));
  }
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), step);
  if (failed != std::errc() || end != word.data() + word.size()) {
    return none(fmt::format("\"{}\" is neither a step nor last nor best{}", word, did_you_mean(word, {"last", "best"})),
                kept_steps(checkpoints));
  }
  for (const auto& [number, path] : checkpoints) {
    if (number == step) return std::optional(RunStep{.run = run, .checkpoint = path, .step = step});
  }
  return none(fmt::format("the run has no checkpoint of step {}", step),
              kept_steps(checkpoints) + "; trainer.keep_checkpoints says which are kept");
}

Result<fs::path> model_to_check(std::string_view text) {
  const auto step = TRY(run_step_named(text));
  return step ? step->run / "model" : fs::path(text);
}

Status write_model(const RunStep& step, const fs::path& out) {
  const fs::path aside = out.parent_path() / fmt::format(".{}.{}.tmp", out.filename().string(), ::getpid());
  std::error_code ignored;
  const auto write = [&]() -> Status {
    auto weights = trainer::checkpoint_weights(step.checkpoint);
    if (!weights) return named(std::move(weights).error(), step);
    TRY(model::save_weights(*weights, aside, step.run / "model"));
    if (fs::exists(step.run / envs::kProfileFile, ignored))
      TRY(write_file(aside / envs::kProfileFile, TRY(read_file(step.run / envs::kProfileFile, 1 << 20))));
    if (::rename(aside.c_str(), out.c_str()) == 0) return {};
    // Another process was faster, and made the same.
    if ((errno == EEXIST || errno == ENOTEMPTY) && fs::exists(out / "config.json", ignored)) return {};
    return Status::from_errno(out.string(), errno);
  };
  fs::remove_all(aside, ignored);
  const Status status = write();
  fs::remove_all(aside, ignored);  // gone where it has become `out`
  return status;
}

Result<fs::path> model_directory(std::string_view text) {
  const auto step = TRY(run_step_named(text));
  if (!step) return fs::path(text);
  const fs::path model = step->checkpoint / "model";
  std::error_code error;
  if (fs::exists(model / "config.json", error)) return model;
  if (::access(step->checkpoint.c_str(), W_OK) != 0) {
    return fail(
        Status::unfit(fmt::format("{} cannot be written", step->checkpoint.string()))
            .at(std::string(text))
            .hint(fmt::format("`tandem export {} DIR` makes a model directory of it", step->checkpoint.string())));
  }
  TRY(write_model(*step, model));
  return model;
}

}  // namespace tandem::run
