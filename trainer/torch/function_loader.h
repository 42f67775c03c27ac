// Losses and advantages of the user's own, computed by LibTorch: libtandem_torch.so, loaded while the process runs, so
// that one binary serves machines with and without it.
//
// A call runs on a thread of its own, so that a function that does not return is an error and no silence; nothing can
// end it but the end of the process. A crash of the function ends the process.
//
// Thread safety: functions as in trainer/learn/own_functions.h; the rest from any thread.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "trainer/learn/algorithm.h"
#include "trainer/learn/own_functions.h"

namespace tandem::trainer {

// The release of LibTorch that is at hand, and the library's path. kNotFound where there is none; kUnfit where it
// cannot be used.
struct TorchLibrary {
  std::string path, release;
};
Result<TorchLibrary> find_torch();

// The functions that the algorithm has; null where it has none. kUnfit where this machine lacks LibTorch, kInvalid
// where a file, its function or the options are wrong.
Result<OwnFunctions> load_functions(const Algorithm& algorithm);

// The same of a run. Its first start copies the files to RUN/loss/ and RUN/advantages/, and later ones take those: what
// a run computes does not change under it. kInvalid where a file has been changed since.
Result<OwnFunctions> functions_of_run(const Algorithm& algorithm, const fs::path& run_dir);

// Loads those copies, to inspect a run.
Result<OwnFunctions> recorded_functions(const Algorithm& algorithm, const fs::path& run_dir);

}  // namespace tandem::trainer
