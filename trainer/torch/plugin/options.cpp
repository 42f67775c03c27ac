// NAME=VALUE as the values that a function declares.
#include <charconv>
#include <cmath>

#include "trainer/torch/plugin/user_loss.h"

namespace tandem::torch_plugin {

namespace {

template <typename Number>
Number parse(const std::string& name, const std::string& text, const char* what) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    throw std::runtime_error("algorithm.options: " + name + " is \"" + text + "\", not " + what);
  return value;
}

OptionValue value_of(const LossOption& option, const std::string& text) {
  if (std::holds_alternative<double>(option.value)) {
    const auto value = parse<double>(option.name, text, "a number");
    if (!std::isfinite(value))
      throw std::runtime_error("algorithm.options: " + option.name + " is \"" + text + "\", not a finite number");
    return value;
  }
  if (std::holds_alternative<int64_t>(option.value)) return parse<int64_t>(option.name, text, "a whole number");
  if (std::holds_alternative<std::string>(option.value)) return text;
  if (text != "true" && text != "false")
    throw std::runtime_error("algorithm.options: " + option.name + " is \"" + text + "\", neither true nor false");
  return text == "true";
}

}  // namespace

void set_options(std::vector<LossOption>& declared, const std::vector<std::string>& options) {
  for (const std::string& given : options) {
    const size_t sign = given.find('=');
    if (sign == std::string::npos || sign == 0)
      throw std::runtime_error("algorithm.options: \"" + given + "\" is not NAME=VALUE");
    const std::string name = given.substr(0, sign);
    std::string known;
    LossOption* found = nullptr;
    for (LossOption& option : declared) {
      if (option.name == name) found = &option;
      known += (known.empty() ? "" : ", ") + option.name;
    }
    if (found == nullptr) {
      throw std::runtime_error("algorithm.options: the loss has no parameter \"" + name + "\"; it has " +
                               (known.empty() ? "none" : known));
    }
    found->value = value_of(*found, given.substr(sign + 1));
  }
}

}  // namespace tandem::torch_plugin
