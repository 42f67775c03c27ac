// Losses of the user's own, computed by LibTorch: libtandem_torch.so, loaded while the process runs, so that one binary
// serves machines with and without it.
//
// A call runs on a thread of its own, so that a function that does not return is an error and no silence; nothing can
// end it but the end of the process. A crash of the function ends the process.
//
// Thread safety: functions as in loss_function.h; the rest from any thread.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "trainer/learn/algorithm.h"
#include "trainer/learn/loss_function.h"

namespace tandem::trainer {

// The release of LibTorch that is at hand, and the library's path. kNotFound where there is none; kUnfit where it
// cannot be used.
struct TorchLibrary {
  std::string path, release;
};
Result<TorchLibrary> find_torch();

// The function of a loss of the user's own; null for other algorithms. kUnfit where this machine lacks LibTorch,
// kInvalid where the file, its function or the options are wrong.
Result<std::shared_ptr<const LossFunction>> load_loss(const Algorithm& algorithm);

// The same of a run. Its first start copies the file to RUN/loss/, and later ones take that: what a run computes does
// not change under it. kInvalid where the file has been changed since.
Result<std::shared_ptr<const LossFunction>> loss_of_run(const Algorithm& algorithm, const fs::path& run_dir);

// That copy, for who looks at a run.
Result<std::shared_ptr<const LossFunction>> recorded_loss(const Algorithm& algorithm, const fs::path& run_dir);

}  // namespace tandem::trainer
