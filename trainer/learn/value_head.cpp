#include "trainer/learn/value_head.h"

#include <algorithm>

#include "model/reward_head.h"
#include "model/safetensors.h"

namespace tandem::trainer {

namespace {

constexpr const char *kHead = "value_head", *kHeadGradient = "value_gradient", *kHeadRounded = "value_rounded";

const char* name_of(HeadKind kind) { return kind == HeadKind::kCritic ? "value_" : "reward_"; }

}  // namespace

ValueHead::ValueHead(size_t width, double learning_rate, HeadKind kind, Optimizer optimizer)
    : kind_(kind), width_(width), learning_rate_(learning_rate), optimizer_(std::move(optimizer)) {
  buffers_.add({.name = kHead, .elements = elements()});
  buffers_.add({.name = kHeadGradient, .elements = elements()});
  buffers_.add({.name = kHeadRounded, .elements = elements(), .dtype = model::DType::kBF16});  // unused
}

Result<ValueHead> ValueHead::create(int width, double learning_rate, HeadKind kind) {
  const auto count = static_cast<size_t>(width);
  return ValueHead(count, learning_rate, kind, TRY(Optimizer::create(count + 1, OptimizerSettings{})));
}

std::span<const float> ValueHead::numbers() const { return buffers_.at(kHead).host<float>(); }

void ValueHead::set(std::span<const float> numbers) {
  std::ranges::copy(numbers, buffers_.at(kHead).host<float>().begin());
}

double ValueHead::value(std::span<const float> state) const { return model::linear_value(numbers(), state); }

void ValueHead::add_gradient(std::span<const float> state, double gradient, std::span<double> sum) const {
  for (size_t i = 0; i < width_; ++i) sum[i] += gradient * state[i];
  sum[width_] += gradient;
}

void ValueHead::add_to_state(double gradient, std::span<float> sum) const {
  const auto head = buffers_.at(kHead).host<float>();
  for (size_t i = 0; i < width_; ++i) sum[i] += static_cast<float>(gradient * head[i]);
}

Status ValueHead::step(kernels::Stream& stream, std::span<const double> gradient, int64_t number, double schedule) {
  const Slice gradients = buffers_.at(kHeadGradient);
  std::ranges::transform(gradient, gradients.host<float>().begin(), [](double g) { return static_cast<float>(g); });
  return optimizer_.step(stream, {.gradients = gradients,
                                  .masters = buffers_.at(kHead),
                                  .weights = buffers_.at(kHeadRounded),
                                  .learning_rate = static_cast<float>(learning_rate_ * schedule),
                                  .number = number});
}

std::vector<Slice> ValueHead::state() {
  std::vector<Slice> slices = {buffers_.at(kHead)};
  slices.front().name = name_of(kind_) + std::string("head");
  for (Slice slice : optimizer_.state()) {
    slice.name = name_of(kind_) + slice.name;
    slices.push_back(std::move(slice));
  }
  return slices;
}

Status ValueHead::write(const fs::path& model) const {
  const ConstSlice head = buffers_.at(kHead);
  const auto width = static_cast<int64_t>(width_);
  const std::vector<model::NamedTensor> tensors = {
      {"weight", {.dtype = head.dtype, .shape = {1, width}, .bytes = head.part(0, width_).bytes}},
      {"bias", {.dtype = head.dtype, .shape = {1}, .bytes = head.part(width_, 1).bytes}}};
  return model::write_safetensors(model / "value_head.safetensors", tensors);
}

ValueLoss value_loss(std::span<const uint8_t> mask, const Rows& values, const Rows& returns, double coefficient) {
  ValueLoss result{.gradients = Rows(returns.size(), 0)};
  double count = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < returns.size(); ++i) {
    if (!mask[i]) continue;
    ++count;
    sum += returns[i];
    squares += returns[i] * returns[i];
    const double error = values[i] - returns[i];
    result.loss += error * error;
    result.gradients[i] = 2 * coefficient * error;
  }
  if (count == 0) return result;
  const double variance = squares / count - (sum / count) * (sum / count);
  result.loss /= count;
  for (double& gradient : result.gradients) gradient /= count;
  if (variance > 0) result.explained_variance = 1 - result.loss / variance;
  return result;
}

}  // namespace tandem::trainer
