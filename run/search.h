// Prepares codebase_search for a run: the sentence encoder, and vectors of the tasks' files.
//
// Vectors are computed before the first process starts, so no episode waits for them: those of the files that the tasks
// of a set bring along. What setups write, and the workspace family, is embedded when it is searched. They lie in
// RUN/vectors, and for other runs in the machine's cache, which is written as they are computed: a start that is
// interrupted goes on where it was.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "envs/search/code_searcher.h"
#include "envs/tasks/task.h"
#include "run/config.h"

namespace tandem::run {

inline constexpr const char* kVectorsFile = "vectors";

// The encoder's directory, absolute: env.encoder, else that of the installed package; nothing where the tools of the
// run do not name codebase_search. kUnfit, with the line to run, where there is none; kInvalid where it is no encoder.
Result<std::optional<fs::path>> encoder_of(const RunConfig& config);

// The same for a list of tools and the value of a key, which errors name.
Result<std::optional<fs::path>> encoder_for(std::span<const std::string> tools, const std::string& directory,
                                            const std::string& key);

// Writes RUN/vectors, of the files of the tasks; `run_dir` may be the folder of an evaluation. kInvalid where the
// encoder is another one than when the run began. `progress` is told of pieces that are computed, `all` of them to
// come.
Status prepare_search(const fs::path& encoder, std::span<const envs::Task> tasks, const fs::path& run_dir,
                      const std::function<void(size_t done, size_t all)>& progress);

// For the environment server of a run whose vectors are prepared.
Result<std::unique_ptr<envs::CodeSearcher>> searcher_of_run(const fs::path& encoder, const fs::path& run_dir,
                                                            int threads);

}  // namespace tandem::run
