// libtandem_torch.so, loaded once for a process. Private to trainer/torch/.
//
// Thread safety: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "trainer/torch/interface/tandem_torch.h"
#include "trainer/torch/interface/tandem_torch_model.h"

namespace tandem::trainer {

constexpr size_t kTorchErrorBytes = 4096;

struct TorchFunctions {
  decltype(&tandem_torch_version) version = nullptr;
  decltype(&tandem_torch_release) release = nullptr;
  decltype(&tandem_torch_load) load = nullptr;
  decltype(&tandem_torch_takes_reference) takes_reference = nullptr;
  decltype(&tandem_torch_compute) compute = nullptr;
  decltype(&tandem_torch_free) free = nullptr;
  decltype(&tandem_torch_model) model = nullptr;
  decltype(&tandem_torch_score) score = nullptr;
  decltype(&tandem_torch_free_model) free_model = nullptr;
};

struct LoadedTorch {
  std::string path;
  TorchFunctions functions;
};

// kNotFound where there is no such file beside the binary; kUnfit where it cannot be used. Loaded by the first call,
// never closed: LibTorch does not survive it, nor does a thread that is still in it.
const Result<LoadedTorch>& loaded_torch();

// The same for `who`, such as "--path torch", which cannot do without it: kUnfit, with the line to run.
Result<const LoadedTorch*> torch_for(std::string_view who);

}  // namespace tandem::trainer
