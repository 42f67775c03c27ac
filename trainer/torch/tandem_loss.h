// The header of a loss, or of advantages, in C++: a shared library that has this one function and no other tie to
// Tandem.
//
//   #include "tandem_loss.h"
//   tandem::LossOutput my_loss(const tandem::LossInput& in) { return {.loss = -in.advantages * in.logprobs}; }
//   TANDEM_LOSS(my_loss, {"beta", 0.1})
//
//   tandem::AdvantageOutput my_advantages(const tandem::LossInput& in) { return {.advantages = in.rewards}; }
//   TANDEM_ADVANTAGES(my_advantages)
//
// docs/custom-loss.md has the whole of it: how it is built, and what makes one wrong. Tensors are float64 on the CPU
// unless said otherwise; they are the function's own copies and must not be changed in place.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace tandem {

using OptionValue = std::variant<double, int64_t, bool, std::string>;

// A parameter of the function, which `algorithm.options` may set. Its type is that of the default.
struct LossOption {
  LossOption(const char* its_name, double value) : name(its_name), value(value) {}
  LossOption(const char* its_name, int value) : name(its_name), value(int64_t{value}) {}
  LossOption(const char* its_name, bool value) : name(its_name), value(value) {}
  LossOption(const char* its_name, const char* value) : name(its_name), value(std::string(value)) {}
  std::string name;
  OptionValue value;
};

struct LossInput {
  torch::Tensor logprobs;                        // [rows, length], requires grad; of advantages: no grad
  torch::Tensor old_logprobs, rollout_logprobs;  // [rows, length]: before the step, and of the sampler
  torch::Tensor ref_logprobs;                    // [rows, length]; undefined unless algorithm.reference is true
  torch::Tensor advantages, token_rewards;       // [rows, length]; advantages are undefined where they are to be made
  torch::Tensor rewards;                         // [rows]: the sum of token_rewards; undefined where they are not given
  torch::Tensor mask;                            // [rows, length], bool: which tokens count; padding is on the right
  torch::Tensor segments;                        // [rows, length], int64: the turn of a token, from 0; -1: counts not
  torch::Tensor groups;                          // [rows], int64: rows of one number are samples of one prompt
  std::map<std::string, torch::Tensor> metrics;  // [rows] each: of the episode, by name; NaN: it has none
  int64_t step = 0;                              // of the run, from 1
  std::map<std::string, OptionValue> options;    // all that were declared

  double number(const std::string& name) const { return get<double>(name); }
  int64_t integer(const std::string& name) const { return get<int64_t>(name); }
  bool flag(const std::string& name) const { return get<bool>(name); }
  std::string text(const std::string& name) const { return get<std::string>(name); }

 private:
  template <typename T>
  T get(const std::string& name) const {
    const auto found = options.find(name);
    if (found == options.end() || !std::holds_alternative<T>(found->second))
      throw std::invalid_argument("no option " + name + " of this type was declared");
    return std::get<T>(found->second);
  }
};

struct LossOutput {
  torch::Tensor loss;  // a scalar, or [rows, length], which algorithm.aggregation makes a scalar
  std::map<std::string, double> metrics;
};

struct AdvantageOutput {
  torch::Tensor advantages;  // [rows], or [rows, length]
  std::map<std::string, double> metrics;
};

// The exports of a library. The texts name its build, and are read before anything else.
struct LossLibrary {
  LossOutput (*function)(const LossInput&);
  std::vector<LossOption> options;
};
struct AdvantageLibrary {
  AdvantageOutput (*function)(const LossInput&);
  std::vector<LossOption> options;
};

}  // namespace tandem

// A change of anything above.
#define TANDEM_LOSS_INTERFACE "2"

#define TANDEM_LOSS(function, ...)                                                                    \
  extern "C" __attribute__((visibility("default"))) const char* tandem_loss_built_with() {            \
    return TANDEM_LOSS_INTERFACE "/" TORCH_VERSION;                                                   \
  }                                                                                                   \
  extern "C" __attribute__((visibility("default"))) const tandem::LossLibrary* tandem_loss() {        \
    static const tandem::LossLibrary library{function, std::vector<tandem::LossOption>{__VA_ARGS__}}; \
    return &library;                                                                                  \
  }

#define TANDEM_ADVANTAGES(function, ...)                                                                   \
  extern "C" __attribute__((visibility("default"))) const char* tandem_advantages_built_with() {           \
    return TANDEM_LOSS_INTERFACE "/" TORCH_VERSION;                                                        \
  }                                                                                                        \
  extern "C" __attribute__((visibility("default"))) const tandem::AdvantageLibrary* tandem_advantages() {  \
    static const tandem::AdvantageLibrary library{function, std::vector<tandem::LossOption>{__VA_ARGS__}}; \
    return &library;                                                                                       \
  }
