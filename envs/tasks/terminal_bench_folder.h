// Recognises a task folder of Terminal-Bench's first version, and names its files that are hidden from the model.
#pragma once

#include <span>
#include <string_view>

#include "base/file.h"

namespace tandem::envs {

// Whether `folder` has a task of this form, be it whole or not: a task.yaml beside a recipe or tests.
bool is_terminal_bench_task(const fs::path& folder);

// The names in such a folder that a model must not find in its workspace.
std::span<const std::string_view> hidden_of_terminal_bench();

}  // namespace tandem::envs
