#include "envs/tasks/terminal_bench_folder.h"

namespace tandem::envs {
namespace {

// What the model must not find in its workspace.
constexpr std::string_view kHidden[] = {"task.yaml", "solution.sh",         "solution.yaml",     "run-tests.sh",
                                        "tests",     "docker-compose.yaml", "docker-compose.yml"};

}  // namespace

std::span<const std::string_view> hidden_of_terminal_bench() { return kHidden; }

bool is_terminal_bench_task(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "task.yaml", error) &&
         (fs::exists(folder / "Dockerfile", error) || fs::exists(folder / "run-tests.sh", error));
}

}  // namespace tandem::envs
