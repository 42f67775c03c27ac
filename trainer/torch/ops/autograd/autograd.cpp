// Derivatives of the operators: each backward pass is an operator of ours, with the kernels that our trainer uses.
//
// libtandem_ops_autograd.so is this and the meta functions, by PyTorch's C++ interface, which its stable ABI has no
// part of; libtandem_ops.so loads it. Second derivatives are refused by PyTorch with the operator's name.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

namespace tandem::torch_ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

// An operator below autograd.
template <typename Result, typename... Arguments>
Result call(const char* name, Arguments... arguments) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Result(Arguments...)>().call(
      std::forward<Arguments>(arguments)...);
}

// One that may be recorded, so that a second derivative is an error and not silently none.
template <typename Result, typename... Arguments>
Result call_recorded(const char* name, Arguments... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Result(Arguments...)>().call(
      std::forward<Arguments>(arguments)...);
}

using In = const Tensor&;

struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* context, In x, In weight, const OptionalTensor& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias.has_value();
    return call<Tensor, In, In, const OptionalTensor&>("tandem::linear", x, weight, bias);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    variable_list result(3);
    if (!grads[0].defined()) return result;
    if (context->needs_input_grad(0))
      result[0] = call_recorded<Tensor, In, In>("tandem::linear_grad_x", grads[0], saved[1]);
    if (context->needs_input_grad(1))
      result[1] = call_recorded<Tensor, In, In>("tandem::linear_grad_weight", grads[0], saved[0]);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2))
      result[2] = call_recorded<Tensor, In>("tandem::linear_grad_bias", grads[0]);
    return result;
  }
};

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, In x, In weight, double eps) {
    context->save_for_backward({x, weight});
    context->saved_data["eps"] = eps;
    return call<Tensor, In, In, double>("tandem::rms_norm", x, weight, eps);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    if (!grads[0].defined()) return variable_list(3);
    const auto [x, weight] = call_recorded<std::tuple<Tensor, Tensor>, In, In, In, double>(
        "tandem::rms_norm_backward", grads[0], saved[0], saved[1], context->saved_data["eps"].toDouble());
    return {x, weight, Tensor()};
  }
};

struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(AutogradContext* context, In query, In key, In value, std::optional<double> scale,
                        int64_t window) {
    const auto [out, log_sum] = call<std::tuple<Tensor, Tensor>, In, In, In, std::optional<double>, int64_t>(
        "tandem::attention_forward", query, key, value, scale, window);
    context->save_for_backward({query, key, value, out, log_sum});
    context->saved_data["scale"] = scale;
    context->saved_data["window"] = window;
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    if (!grads[0].defined()) return variable_list(5);
    const auto scale = context->saved_data["scale"].toOptional<double>();
    const auto [query, key, value] =
        call_recorded<std::tuple<Tensor, Tensor, Tensor>, In, In, In, In, In, In, std::optional<double>, int64_t>(
            "tandem::attention_backward", grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], scale,
            context->saved_data["window"].toInt());
    return {query, key, value, Tensor(), Tensor()};
  }
};

struct LmHead : torch::autograd::Function<LmHead> {
  static Tensor forward(AutogradContext* context, In hidden, In weight, In tokens) {
    const auto [logprobs, log_sum] =
        call<std::tuple<Tensor, Tensor>, In, In, In>("tandem::lm_head_forward", hidden, weight, tokens);
    context->save_for_backward({hidden, weight, tokens, log_sum});
    return logprobs;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    if (!grads[0].defined()) return variable_list(3);
    const bool of_weight = context->needs_input_grad(1);
    const auto [hidden, weight] = call_recorded<std::tuple<Tensor, Tensor>, In, In, In, In, In, bool>(
        "tandem::lm_head_backward", grads[0], saved[0], saved[1], saved[2], saved[3], of_weight);
    return {hidden, of_weight ? weight : Tensor(), Tensor()};
  }
};

Tensor linear_with_gradient(In x, In weight, const OptionalTensor& bias) { return Linear::apply(x, weight, bias); }
Tensor rms_norm_with_gradient(In x, In weight, double eps) { return RmsNorm::apply(x, weight, eps); }
Tensor attention_with_gradient(In query, In key, In value, std::optional<double> scale, int64_t window) {
  return Attention::apply(query, key, value, scale, window);
}
Tensor lm_head_with_gradient(In hidden, In weight, In tokens) { return LmHead::apply(hidden, weight, tokens); }

TORCH_LIBRARY_IMPL(tandem, Autograd, m) {
  m.impl("linear", &linear_with_gradient);
  m.impl("rms_norm", &rms_norm_with_gradient);
  m.impl("attention", &attention_with_gradient);
  m.impl("lm_head_logprob", &lm_head_with_gradient);
  for (const char* without :
       {"linear_grad_x", "linear_grad_weight", "linear_grad_bias", "pack_weight", "linear_packed", "rms_norm_backward",
        "attention_forward", "attention_backward", "lm_head_forward", "lm_head_backward", "quantize_fp8",
        "quantize_mxfp8", "quantize_weight_fp8", "dequantize"}) {
    m.impl(without, torch::autograd::autogradNotImplementedFallback());
  }
}

}  // namespace
}  // namespace tandem::torch_ops
