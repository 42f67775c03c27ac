#include "cli/run/run_inputs.h"

#include <fmt/format.h>

#include <thread>

#include "base/json_file.h"
#include "base/text.h"
#include "cli/run/teacher_probe.h"
#include "run/checks.h"
#include "run/run_step.h"
#include "trainer/learn/low_rank.h"
#include "trainer/learn/teacher.h"

namespace tandem::cli {

Result<trainer::TinyModelSettings> tiny_settings(const run::RunConfig& config) {
  trainer::TinyModelSettings settings{.seed = config.run.seed,
                                      .threads = static_cast<int>(std::thread::hardware_concurrency())};
  if (config.model.path == run::kTinyModel) return settings;
  settings.chat_template = config.model.path.substr(config.model.path.find(':') + 1);
  if (trainer::find_tiny_template(settings.chat_template) != nullptr) return settings;
  return fail(Status::invalid(fmt::format("model.path: there is no tiny model of {}", settings.chat_template))
                  .hint("there are tiny:" + join(trainer::tiny_template_names(), ", tiny:")));
}

Status check_tiny_adapter(const run::RunConfig& config) {
  return config.lora.rank > 0 ? trainer::LowRank::check(TRY(trainer::tiny_layout()), config.lora) : Status();
}

Status provide_model(const run::RunConfig& config, const fs::path& run_dir) {
  const fs::path model = run_dir / "model";
  if (fs::exists(model)) return {};
  if (run::is_tiny(config.model.path)) {
    return trainer::make_tiny_model(model, TRY(tiny_settings(config)),
                                    [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  }
  if (const auto step = TRY(run::run_step_named(config.model.path))) {
    fmt::print(stderr, "model: step {} of {}\n", step->step, step->run.string());
    TRY(run::write_model(*step, model));
    constexpr int kOriginFormat = 1;
    const Json origin = {{"run", fs::absolute(step->run).lexically_normal().string()}, {"step", step->step}};
    return write_file(run_dir / "origin.json", with_format(origin, kOriginFormat).dump(2) + "\n");
  }
  std::error_code error;
  fs::create_directory_symlink(fs::absolute(config.model.path), model, error);
  return error ? Status::from_errno(model.string(), error.value()) : Status();
}

Status provide_teacher(const run::RunConfig& config, const fs::path& run_dir) {
  if (config.algorithm.teacher.is_remote()) {
    const Json tried = TRY(probe_teacher(config, run_dir / "model"));
    fmt::print(stderr, "teacher: {}\n", describe_teacher(config, tried));
    return {};
  }
  const std::string& path = config.algorithm.teacher.path;
  const fs::path teacher = run_dir / "teacher";
  std::error_code error;
  if (path.empty()) return {};
  if (!fs::exists(teacher)) {
    if (const auto step = TRY(run::run_step_named(path))) {
      fmt::print(stderr, "teacher: step {} of {}\n", step->step, step->run.string());
      TRY(run::write_model(*step, teacher));
    } else if (fs::create_directory_symlink(fs::absolute(path), teacher, error); error) {
      return Status::from_errno(teacher.string(), error.value());
    }
  }
  return trainer::check_teacher(teacher, run_dir / "model", config.rollout.max_tokens);
}

Status record_profile(const fs::path& run_dir, const envs::Profile& profile) {
  const auto recorded = TRY(envs::profile_of_model(run_dir, profile));
  const auto changes = envs::differences(recorded, profile);
  if (!changes.empty()) {
    return Status::invalid("the harness is another than when the run began: " + join(changes, "; "))
        .hint("begin a new run, or put back what was changed");
  }
  return write_file(run_dir / envs::kProfileFile, to_yaml(profile));
}

}  // namespace tandem::cli
