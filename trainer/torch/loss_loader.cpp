#include "trainer/torch/loss_loader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include "trainer/torch/library.h"

namespace tandem::trainer {

namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of a script or a library

struct FreeFunction {
  void operator()(TandemTorchFunction* function) const { loaded_torch()->functions.free(function); }
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
  std::array<char, kTorchErrorBytes> error{};

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
    const int code = loaded_torch()->functions.compute(function.get(), &arguments, on_metric, &output.metrics,
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
  const LoadedTorch* library = TRY(torch_for("algorithm.name: torch"));
  std::vector<const char*> options;
  for (const auto& option : algorithm.torch.options) options.push_back(option.c_str());
  std::array<char, kTorchErrorBytes> error{};
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
  const auto& library = loaded_torch();
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
