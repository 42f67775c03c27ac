#include "trainer/torch/loss_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "trainer/torch/interface/tandem_torch.h"

namespace tandem::trainer {

namespace {

constexpr const char* kFile = "libtandem_torch.so";
constexpr size_t kErrorBytes = 4096;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of a script or a library

struct Functions {
  decltype(&tandem_torch_version) version = nullptr;
  decltype(&tandem_torch_release) release = nullptr;
  decltype(&tandem_torch_load) load = nullptr;
  decltype(&tandem_torch_takes_reference) takes_reference = nullptr;
  decltype(&tandem_torch_compute) compute = nullptr;
  decltype(&tandem_torch_free) free = nullptr;
};

struct Library {
  std::string path;
  Functions functions;
};

template <typename Function>
Status find_function(void* handle, const std::string& path, const char* name, Function& function) {
  void* symbol = ::dlsym(handle, name);
  if (symbol == nullptr) return Status::unfit(fmt::format("{}: has no function {}", path, name));
  std::memcpy(&function, &symbol, sizeof symbol);
  return {};
}

Result<Library> open_library() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  Library library{.path = (folder / kFile).string(), .functions = {}};
  const std::string mend = "scripts/with-torch installs LibTorch and builds it; then run the same command again";
  if (!fs::exists(library.path, error)) {
    return fail(
        Status::not_found(fmt::format("algorithm.name: torch needs {}, which is not in {}", kFile, folder.string()))
            .hint(mend));
  }
  // Never closed: LibTorch does not survive it, nor does a thread that is still in it.
  void* handle = ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return fail(
        Status::unfit(fmt::format("{}: cannot be loaded: {}", library.path, reason ? reason : "no reason")).hint(mend));
  }
  Functions& f = library.functions;
  TRY(find_function(handle, library.path, "tandem_torch_version", f.version));
  if (const int version = f.version(); version != TANDEM_TORCH_VERSION) {
    return fail(Status::unfit(fmt::format("{}: has version {} of the interface, expected {}", library.path, version,
                                          TANDEM_TORCH_VERSION))
                    .hint("build it from the sources of this binary: scripts/with-torch"));
  }
  TRY(find_function(handle, library.path, "tandem_torch_release", f.release));
  TRY(find_function(handle, library.path, "tandem_torch_load", f.load));
  TRY(find_function(handle, library.path, "tandem_torch_takes_reference", f.takes_reference));
  TRY(find_function(handle, library.path, "tandem_torch_compute", f.compute));
  TRY(find_function(handle, library.path, "tandem_torch_free", f.free));
  return library;
}

const Result<Library>& torch_library() {
  static const Result<Library> library = open_library();
  return library;
}

struct FreeFunction {
  void operator()(TandemTorchFunction* function) const { torch_library()->functions.free(function); }
};
using FunctionHandle = std::unique_ptr<TandemTorchFunction, FreeFunction>;

// Destructors of statics would run under a call that nobody waits for any more, and LibTorch does not survive that:
// from the first such call on, the process ends without them. Handlers run in reverse order, so this one comes before
// the destructors of all that LibTorch has made by now.
void end_without_destructors() {
  [[maybe_unused]] static const int registered = ::on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
}

// All that a call touches: it stays for as long as the call runs, also where nobody waits for it any more.
struct Call {
  std::shared_ptr<TandemTorchFunction> function;
  LossBatch batch;
  Rows advantages;
  std::vector<double> weights;
  FunctionOutput output;
  std::array<char, kErrorBytes> error{};

  bool run(int64_t step) {
    TandemTorchBatch arguments{};
    arguments.rows = static_cast<int64_t>(batch.rows);
    arguments.length = static_cast<int64_t>(batch.length);
    arguments.step = step;
    arguments.logprobs = batch.logprobs.data();
    arguments.old_logprobs = batch.old_logprobs.data();
    arguments.rollout_logprobs = batch.rollout_logprobs.data();
    arguments.advantages = advantages.data();
    arguments.ref_logprobs = batch.ref_logprobs.empty() ? nullptr : batch.ref_logprobs.data();
    arguments.token_rewards = batch.rewards.empty() ? nullptr : batch.rewards.data();
    arguments.mask = batch.mask.data();
    arguments.turns = batch.turns.data();
    arguments.groups = batch.groups.data();
    arguments.weights = weights.data();
    output.grad_logprobs.assign(batch.logprobs.size(), 0);
    arguments.grad_logprobs = output.grad_logprobs.data();
    const auto on_metric = [](void* context, const char* name, double value) {
      (*static_cast<std::map<std::string, double>*>(context))[name] = value;
    };
    const int code = torch_library()->functions.compute(function.get(), &arguments, on_metric, &output.metrics,
                                                        error.data(), error.size());
    output.loss = arguments.loss;
    return code == 0;
  }
};

class TorchFunction final : public LossFunction {
 public:
  TorchFunction(FunctionHandle handle, std::string file, double seconds)
      : handle_(std::move(handle)), file_(std::move(file)), seconds_(seconds) {}

  Result<FunctionOutput> compute(const FunctionInput& input) const override {
    auto call = std::make_shared<Call>(Call{.function = handle_,
                                            .batch = input.batch,
                                            .advantages = input.advantages,
                                            .weights = input.weights,
                                            .output = {}});
    std::promise<bool> promise;
    auto answer = promise.get_future();
    std::thread([call, step = input.step, promise = std::move(promise)]() mutable {
      promise.set_value(call->run(step));
    }).detach();
    if (answer.wait_for(std::chrono::duration<double>(seconds_)) != std::future_status::ready) {
      end_without_destructors();
      return fail(Status::invalid(fmt::format("did not return within {} s at step {}", seconds_, input.step))
                      .at(file_)
                      .hint("algorithm.seconds is the time that a call has"));
    }
    if (!answer.get()) return fail(Status::invalid(call->error.data()).at(file_));
    return std::move(call->output);
  }

 private:
  const std::shared_ptr<TandemTorchFunction> handle_;
  const std::string file_;
  const double seconds_;
};

Result<std::shared_ptr<const LossFunction>> load_file(const Algorithm& algorithm, const fs::path& file) {
  const auto& library = torch_library();
  if (!library) {
    Status status = library.error();
    // A named thing that is not there is a lack of this machine, where a config asks for it.
    if (status.code() == Code::kNotFound) status = Status::unfit(status.message()).hint(status.hint());
    return fail(std::move(status));
  }
  std::vector<const char*> options;
  for (const auto& option : algorithm.torch.options) options.push_back(option.c_str());
  std::array<char, kErrorBytes> error{};
  FunctionHandle handle(library->functions.load(fs::absolute(file).c_str(), !algorithm.torch.library.empty(),
                                                options.data(), options.size(), error.data(), error.size()));
  if (!handle) return fail(Status::invalid(error.data()).at(file.string()));
  if (library->functions.takes_reference(handle.get()) && !algorithm.torch.reference) {
    return fail(Status::invalid("the loss takes ref_logprobs, and nobody computes them")
                    .at(file.string())
                    .hint("algorithm.reference: true keeps the starting model for it"));
  }
  return std::make_shared<const TorchFunction>(std::move(handle), file.string(), algorithm.torch.seconds);
}

fs::path file_of(const Algorithm& algorithm) {
  return algorithm.torch.library.empty() ? algorithm.torch.script : algorithm.torch.library;
}

fs::path copy_of(const Algorithm& algorithm, const fs::path& run_dir) {
  return run_dir / "loss" / file_of(algorithm).filename();
}

}  // namespace

Result<TorchLibrary> find_torch() {
  const auto& library = torch_library();
  if (!library) return fail(library.error());
  return TorchLibrary{.path = library->path, .release = library->functions.release()};
}

Result<std::shared_ptr<const LossFunction>> load_loss(const Algorithm& algorithm) {
  if (!is_function(algorithm)) return std::shared_ptr<const LossFunction>();
  return load_file(algorithm, file_of(algorithm));
}

Result<std::shared_ptr<const LossFunction>> recorded_loss(const Algorithm& algorithm, const fs::path& run_dir) {
  if (!is_function(algorithm)) return std::shared_ptr<const LossFunction>();
  return load_file(algorithm, copy_of(algorithm, run_dir));
}

Result<std::shared_ptr<const LossFunction>> loss_of_run(const Algorithm& algorithm, const fs::path& run_dir) {
  if (!is_function(algorithm)) return std::shared_ptr<const LossFunction>();
  const fs::path source = file_of(algorithm), copy = copy_of(algorithm, run_dir);
  std::error_code ignored;
  if (!fs::exists(copy, ignored)) {
    TRY(make_folder(copy.parent_path()));
    TRY(write_file(copy, TRY(read_file(source, kMostBytes))));
  } else if (fs::exists(source, ignored) && TRY(read_file(source, kMostBytes)) != TRY(read_file(copy, kMostBytes))) {
    return fail(Status::invalid("is not what the run began with")
                    .at(source.string())
                    .hint(fmt::format("put back {}, or begin a new run", copy.string())));
  }
  return load_file(algorithm, copy);
}

}  // namespace tandem::trainer
