#include "trainer/torch/function_loader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
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
  Rows advantages;              // empty: they are to be made
  std::vector<double> weights;  // of a loss
  FunctionOutput output = {};
  Rows made = {};
  std::array<char, kTorchErrorBytes> error{};

  bool run(int64_t step) {
    TandemTorchBatch arguments{};
    arguments.rows = static_cast<int64_t>(batch.rows);
    arguments.length = static_cast<int64_t>(batch.length);
    arguments.step = step;
    arguments.logprobs = batch.logprobs.data();
    arguments.old_logprobs = batch.old_logprobs.data();
    arguments.rollout_logprobs = batch.rollout_logprobs.data();
    arguments.advantages = advantages.empty() ? nullptr : advantages.data();
    arguments.ref_logprobs = batch.ref_logprobs.empty() ? nullptr : batch.ref_logprobs.data();
    arguments.token_rewards = batch.rewards.empty() ? nullptr : batch.rewards.data();
    arguments.mask = batch.mask.data();
    arguments.turns = batch.turns.data();
    arguments.groups = batch.groups.data();
    arguments.weights = weights.empty() ? nullptr : weights.data();
    std::vector<const char*> names;
    Rows metrics;
    for (const auto& [name, values] : batch.metrics) {
      names.push_back(name.c_str());
      metrics.insert(metrics.end(), values.begin(), values.end());
    }
    arguments.metric_names = names.data();
    arguments.metrics = metrics.data();
    arguments.metric_count = names.size();
    (advantages.empty() ? made : output.grad_logprobs).assign(batch.logprobs.size(), 0);
    arguments.grad_logprobs = output.grad_logprobs.data();
    arguments.made = made.data();
    const auto on_metric = [](void* context, const char* name, double value) {
      (*static_cast<std::map<std::string, double>*>(context))[name] = value;
    };
    const int code = loaded_torch()->functions.compute(function.get(), &arguments, on_metric, &output.metrics,
                                                       error.data(), error.size());
    output.loss = arguments.loss;
    return code == 0;
  }
};

// A function that has been read, and how it is called.
struct Loaded {
  std::shared_ptr<TandemTorchFunction> handle;
  std::string file;
  double seconds = 0;

  // kInvalid where the call fails or does not come back in time.
  Status run(const std::shared_ptr<Call>& call, int64_t step) const {
    std::promise<bool> promise;
    auto answer = promise.get_future();
    std::thread([call, step, promise = std::move(promise)]() mutable { promise.set_value(call->run(step)); }).detach();
    if (answer.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
      end_without_destructors();
      return Status::invalid(fmt::format("did not return within {} s at step {}", seconds, step))
          .at(file)
          .hint("algorithm.seconds is the time that a call has");
    }
    return answer.get() ? Status() : Status::invalid(call->error.data()).at(file);
  }
};

class TorchLoss final : public LossFunction {
 public:
  explicit TorchLoss(Loaded loaded) : loaded_(std::move(loaded)) {}

  Result<FunctionOutput> compute(const FunctionInput& input) const override {
    const auto call = std::make_shared<Call>(Call{
        .function = loaded_.handle, .batch = input.batch, .advantages = input.advantages, .weights = input.weights});
    TRY(loaded_.run(call, input.step));
    return std::move(call->output);
  }

 private:
  const Loaded loaded_;
};

class TorchAdvantages final : public AdvantageFunction {
 public:
  explicit TorchAdvantages(Loaded loaded) : loaded_(std::move(loaded)) {}

  Result<AdvantageOutput> compute(const LossBatch& batch, int64_t step) const override {
    const auto call =
        std::make_shared<Call>(Call{.function = loaded_.handle, .batch = batch, .advantages = {}, .weights = {}});
    TRY(loaded_.run(call, step));
    return AdvantageOutput{std::move(call->made), std::move(call->output.metrics)};
  }

 private:
  const Loaded loaded_;
};

// One of the two, by its name in files and in the run's directory.
struct Wanted {
  const TorchSource& source;
  const char *name, *needs;  // loss or advantages; the value that asks for it

  fs::path file() const { return source.library.empty() ? source.script : source.library; }
  fs::path copy(const fs::path& run_dir) const { return run_dir / name / file().filename(); }
};

Result<Loaded> load(const Wanted& wanted, const fs::path& file) {
  const LoadedTorch* library = TRY(torch_for(wanted.needs));
  std::vector<const char*> options;
  for (const auto& option : wanted.source.options) options.push_back(option.c_str());
  std::array<char, kTorchErrorBytes> error{};
  FunctionHandle handle(library->functions.load(fs::absolute(file).c_str(), !wanted.source.library.empty(), wanted.name,
                                                options.data(), options.size(), error.data(), error.size()));
  if (!handle) return fail(Status::invalid(error.data()).at(file.string()));
  if (library->functions.takes_reference(handle.get()) && !wanted.source.reference) {
    return fail(Status::invalid(fmt::format("{} takes ref_logprobs, and nobody computes them", wanted.name))
                    .at(file.string())
                    .hint("algorithm.reference: true keeps the starting model for it"));
  }
  return Loaded{std::move(handle), file.string(), wanted.source.seconds};
}

// Puts the file of a run into its directory, where it is not there yet.
Status record(const Wanted& wanted, const fs::path& run_dir) {
  const fs::path source = wanted.file(), copy = wanted.copy(run_dir);
  std::error_code ignored;
  if (!fs::exists(copy, ignored)) {
    TRY(make_folder(copy.parent_path()));
    return write_file(copy, TRY(read_file(source, kMostBytes)));
  }
  if (fs::exists(source, ignored) && TRY(read_file(source, kMostBytes)) != TRY(read_file(copy, kMostBytes))) {
    return Status::invalid("is not what the run began with")
        .at(source.string())
        .hint(fmt::format("put back {}, or begin a new run", copy.string()));
  }
  return {};
}

// The functions of the algorithm, each from the file that `place` gives for it.
Result<OwnFunctions> functions_of(const Algorithm& algorithm,
                                  const std::function<Result<fs::path>(const Wanted&)>& place) {
  OwnFunctions functions;
  if (is_function(algorithm)) {
    const Wanted wanted{algorithm.torch, "loss", "algorithm.name: torch"};
    functions.loss = std::make_shared<const TorchLoss>(TRY(load(wanted, TRY(place(wanted)))));
  }
  if (algorithm.advantage == AdvantageKind::kTorch) {
    const Wanted wanted{algorithm.own_advantages, "advantages", "algorithm.advantage: torch"};
    functions.advantages = std::make_shared<const TorchAdvantages>(TRY(load(wanted, TRY(place(wanted)))));
  }
  return functions;
}

}  // namespace

Result<TorchLibrary> find_torch() {
  const auto& library = loaded_torch();
  if (!library) return fail(library.error());
  return TorchLibrary{.path = library->path, .release = library->functions.release()};
}

Result<OwnFunctions> load_functions(const Algorithm& algorithm) {
  return functions_of(algorithm, [](const Wanted& wanted) -> Result<fs::path> { return wanted.file(); });
}

Result<OwnFunctions> recorded_functions(const Algorithm& algorithm, const fs::path& run_dir) {
  return functions_of(algorithm, [&](const Wanted& wanted) -> Result<fs::path> { return wanted.copy(run_dir); });
}

Result<OwnFunctions> functions_of_run(const Algorithm& algorithm, const fs::path& run_dir) {
  return functions_of(algorithm, [&](const Wanted& wanted) -> Result<fs::path> {
    TRY(record(wanted, run_dir));
    return wanted.copy(run_dir);
  });
}

}  // namespace tandem::trainer
