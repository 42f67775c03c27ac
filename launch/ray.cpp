#include "launch/ray.h"

#include <fmt/format.h>

namespace tandem::launch {

Result<std::vector<RaySubmission>> ray_submissions(const Job& job, const RayOptions& options) {
  for (const std::string& word : options.extra) {
    if (!word.starts_with("--")) {
      return fail(Status::invalid(
          fmt::format("--extra \"{}\" is not an option of ray job submit, such as --metadata-json={{}}", word)));
    }
  }
  std::vector<RaySubmission> submissions;
  for (size_t i = 0; i < job.variants.size(); ++i) {
    const Variant& variant = job.variants[i];
    RaySubmission submission{.id = job.variants.size() > 1 ? fmt::format("{}-{}", job.name, i) : job.name, .words = {}};
    auto& words = submission.words;
    words = {"job", "submit"};
    if (!options.address.empty()) words.insert(words.end(), {"--address", options.address});
    words.insert(words.end(), {"--submission-id", submission.id, "--no-wait"});
    words.insert(words.end(), {"--entrypoint-num-cpus", std::to_string(job.resources.cores)});
    words.insert(words.end(), {"--entrypoint-memory", std::to_string(job.resources.memory_bytes)});
    if (!options.runtime_env.empty()) words.insert(words.end(), {"--runtime-env", options.runtime_env});
    words.insert(words.end(), options.extra.begin(), options.extra.end());
    words.push_back("--");
    std::vector<std::string> entrypoint = {job.program,
                                           "launch",
                                           job.config,
                                           "--on",
                                           "local",
                                           "--run-dir",
                                           job.run_dir_of(variant).string(),
                                           "--restarts",
                                           std::to_string(job.most_restarts)};
    entrypoint.insert(entrypoint.end(), job.overrides.begin(), job.overrides.end());
    entrypoint.insert(entrypoint.end(), variant.overrides.begin(), variant.overrides.end());
    words.insert(words.end(), {"sh", "-c",
                               fmt::format("cd {} && exec {}", quoted_for_shell(job.working_dir.string()),
                                           joined_for_shell(entrypoint))});
    submissions.push_back(std::move(submission));
  }
  return submissions;
}

Result<std::string> render_ray(const Job& job, const RayOptions& options) {
  std::string text =
      "#!/bin/sh\n"
      "# Made by `tandem launch --on ray`. It submits the job; what is here of RAY_ADDRESS says where.\n"
      "set -e\n";
  for (const auto& submission : TRY(ray_submissions(job, options)))
    text += fmt::format("ray {}\n", joined_for_shell(submission.words));
  return text;
}

}  // namespace tandem::launch
