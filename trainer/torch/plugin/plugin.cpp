// libtandem_torch.so: the C interface over LibTorch. Checks what the user's function gives before it is used.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "trainer/torch/interface/tandem_torch.h"
#include "trainer/torch/plugin/crash_notice.h"
#include "trainer/torch/plugin/errors.h"
#include "trainer/torch/plugin/user_loss.h"

struct TandemTorchFunction {
  std::unique_ptr<tandem::torch_plugin::UserFunction> user;
  bool makes_advantages = false;
  std::string file = {};
};

namespace tandem::torch_plugin {

namespace {

template <typename T>
torch::Tensor copy_of(const T* values, std::vector<int64_t> shape, torch::Dtype dtype) {
  return torch::from_blob(const_cast<T*>(values), shape, dtype).clone();
}

std::string shape_of(const torch::Tensor& tensor) {
  std::string text = "[";
  for (const int64_t size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

LossInput input_of(const TandemTorchBatch& batch) {
  const std::vector<int64_t> shape = {batch.rows, batch.length};
  const auto numbers = [&](const double* values) { return copy_of(values, shape, torch::kFloat64); };
  LossInput input;
  input.logprobs = numbers(batch.logprobs);
  input.old_logprobs = numbers(batch.old_logprobs);
  input.rollout_logprobs = numbers(batch.rollout_logprobs);
  if (batch.ref_logprobs != nullptr) input.ref_logprobs = numbers(batch.ref_logprobs);
  if (batch.advantages != nullptr) input.advantages = numbers(batch.advantages);
  input.mask = copy_of(batch.mask, shape, torch::kUInt8).to(torch::kBool);
  if (batch.token_rewards != nullptr) {
    input.token_rewards = numbers(batch.token_rewards);
    input.rewards = (input.token_rewards * input.mask).sum(1);
  }
  input.segments = copy_of(batch.turns, shape, torch::kInt64);
  input.groups = copy_of(batch.groups, {batch.rows}, torch::kInt64);
  for (size_t i = 0; i < batch.metric_count; ++i) {
    const double* const values = batch.metrics + i * static_cast<size_t>(batch.rows);
    input.metrics[batch.metric_names[i]] = copy_of(values, {batch.rows}, torch::kFloat64);
  }
  input.step = batch.step;
  return input;
}

std::vector<std::pair<std::string, torch::Tensor>> tensors_of(const LossInput& input) {
  std::vector<std::pair<std::string, torch::Tensor>> tensors = {{"logprobs", input.logprobs},
                                                                {"old_logprobs", input.old_logprobs},
                                                                {"rollout_logprobs", input.rollout_logprobs},
                                                                {"ref_logprobs", input.ref_logprobs},
                                                                {"advantages", input.advantages},
                                                                {"rewards", input.rewards},
                                                                {"token_rewards", input.token_rewards},
                                                                {"mask", input.mask},
                                                                {"segments", input.segments},
                                                                {"groups", input.groups}};
  for (const auto& [name, tensor] : input.metrics) tensors.emplace_back("metrics " + name, tensor);
  return tensors;
}

void check_numbers(const torch::Tensor& returned) {
  if (!returned.defined()) throw std::runtime_error("returned no tensor");
  if (returned.scalar_type() != torch::kFloat64) {
    throw std::runtime_error(std::string("returned a tensor of ") + c10::toString(returned.scalar_type()) +
                             ", not of float64, as the inputs are");
  }
}

std::string place_of(int64_t i, int64_t length) {
  return "[" + std::to_string(i / length) + "][" + std::to_string(i % length) + "]";
}

// The loss as one number.
torch::Tensor scalar_of(const torch::Tensor& returned, const LossInput& input, const TandemTorchBatch& batch) {
  check_numbers(returned);
  if (!returned.requires_grad()) {
    throw std::runtime_error(
        "returned a tensor without gradient: it does not depend on logprobs, or they were detached");
  }
  const bool per_token = returned.sizes() == input.logprobs.sizes();
  if (!per_token && returned.numel() == 1) return returned.reshape({});
  if (!per_token) {
    throw std::runtime_error("returned a tensor of shape " + shape_of(returned) + ", neither a scalar nor " +
                             shape_of(input.logprobs) + ", a loss a token");
  }
  // What does not count may be anything, but must not touch the sum.
  // The function may have changed its own copy of the mask, by `.data` even unnoticed.
  const auto mask = copy_of(batch.mask, {batch.rows, batch.length}, torch::kUInt8).to(torch::kBool);
  const torch::Tensor kept = torch::where(mask, returned, torch::zeros_like(returned));
  const auto broken = torch::isfinite(kept).logical_not().nonzero();
  if (broken.size(0) > 0) {
    throw std::runtime_error("the loss of token [" + std::to_string(broken[0][0].item<int64_t>()) + "][" +
                             std::to_string(broken[0][1].item<int64_t>()) + "] is not finite");
  }
  const auto counted = kept.sum(1);
  return (counted * copy_of(batch.weights, {batch.rows}, torch::kFloat64)).sum();
}

void take_gradient(const torch::Tensor& loss, const torch::Tensor& logprobs, TandemTorchBatch& batch) {
  const auto found = torch::autograd::grad({loss}, {logprobs}, {}, false, false, true);
  if (found.empty() || !found[0].defined()) throw std::runtime_error("the loss does not depend on logprobs");
  const torch::Tensor gradient = found[0].contiguous();
  const double* values = gradient.data_ptr<double>();
  for (int64_t i = 0; i < batch.rows * batch.length; ++i) {
    const std::string place = place_of(i, batch.length);
    if (!std::isfinite(values[i])) throw std::runtime_error("the gradient of logprobs" + place + " is not finite");
    if (!batch.mask[i] && values[i] != 0) {
      throw std::runtime_error("the loss depends on logprobs" + place +
                               ", which do not count: multiply by mask, or use torch.where(mask, ...)");
    }
    batch.grad_logprobs[i] = values[i];
  }
}

// One for a row stands for each of its tokens.
void take_advantages(const torch::Tensor& returned, const LossInput& input, TandemTorchBatch& batch) {
  check_numbers(returned);
  const bool per_row = returned.dim() == 1 && returned.size(0) == batch.rows;
  if (!per_row && returned.sizes() != input.logprobs.sizes()) {
    throw std::runtime_error("returned a tensor of shape " + shape_of(returned) + ", neither [" +
                             std::to_string(batch.rows) + "], one a row, nor " + shape_of(input.logprobs) +
                             ", one a token");
  }
  const torch::Tensor each = per_row ? returned.unsqueeze(1).expand(input.logprobs.sizes()) : returned;
  const torch::Tensor made = each.detach().to(torch::kFloat64).contiguous();
  const double* values = made.data_ptr<double>();
  for (int64_t i = 0; i < batch.rows * batch.length; ++i) {
    if (batch.mask[i] && !std::isfinite(values[i]))
      throw std::runtime_error("the advantage " + place_of(i, batch.length) + " is not finite");
    batch.made[i] = batch.mask[i] ? values[i] : 0;
  }
}

void compute(const TandemTorchFunction& function, TandemTorchBatch& batch, TandemTorchMetric on_metric, void* context) {
  // One thread, one seed a step, no choice of algorithms: the same input gives the same bits.
  at::set_num_threads(1);
  at::globalContext().setDeterministicAlgorithms(true, false);
  torch::manual_seed(static_cast<uint64_t>(batch.step));
  LossInput input = input_of(batch);
  // The function gets a copy: of the tensor itself LibTorch's own words would say that it was changed in place.
  const torch::Tensor logprobs = input.logprobs.detach().requires_grad_(!function.makes_advantages);
  if (!function.makes_advantages) input.logprobs = logprobs.clone();
  const auto tensors = tensors_of(input);
  std::vector<uint32_t> versions;
  for (const auto& [name, tensor] : tensors) versions.push_back(tensor.defined() ? tensor._version() : 0);
  const UserOutput output = function.user->call(input);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (tensor.defined() && tensor._version() != versions[i])
      throw std::runtime_error("changed its input " + name + " in place; work on a clone");
  }
  if (function.makes_advantages) {
    take_advantages(output.values, input, batch);
  } else {
    const torch::Tensor scalar = scalar_of(output.values, input, batch);
    batch.loss = scalar.item<double>();
    if (!std::isfinite(batch.loss))
      throw std::runtime_error("the loss is " + std::to_string(batch.loss) + ", not finite");
    take_gradient(scalar, logprobs, batch);
  }
  for (const auto& [name, value] : output.metrics) {
    if (!std::isfinite(value)) throw std::runtime_error("the metric " + name + " is not finite");
    on_metric(context, name.c_str(), value);
  }
}

}  // namespace
}  // namespace tandem::torch_plugin

extern "C" {

TANDEM_TORCH_EXPORT int tandem_torch_version() { return TANDEM_TORCH_VERSION; }

TANDEM_TORCH_EXPORT const char* tandem_torch_release() { return TORCH_VERSION; }

TANDEM_TORCH_EXPORT TandemTorchFunction* tandem_torch_load(const char* file, int is_library, const char* name,
                                                           const char* const* options, size_t count, char* error,
                                                           size_t error_size) {
  using namespace tandem::torch_plugin;
  return answer_or(static_cast<TandemTorchFunction*>(nullptr), error, error_size, [&] {
    const std::vector<std::string> texts(options, options + count);
    return new TandemTorchFunction{is_library ? open_library(file, name, texts) : read_script(file, name, texts),
                                   std::string_view(name) == kAdvantages, file};
  });
}

TANDEM_TORCH_EXPORT int tandem_torch_takes_reference(const TandemTorchFunction* function) {
  return function->user->takes_reference();
}

TANDEM_TORCH_EXPORT int tandem_torch_compute(TandemTorchFunction* function, TandemTorchBatch* batch,
                                             TandemTorchMetric on_metric, void* context, char* error,
                                             size_t error_size) {
  using namespace tandem::torch_plugin;
  return answer_or(-1, error, error_size, [&] {
    const CrashNotice notice(function->file.c_str());
    compute(*function, *batch, on_metric, context);
    return 0;
  });
}

TANDEM_TORCH_EXPORT void tandem_torch_free(TandemTorchFunction* function) { delete function; }
}
