// From hidden states to log-probabilities of tokens, forward and backward.
#include "kernels/lm_head.h"
#include "trainer/torch/ops/arguments.h"
#include "trainer/torch/ops/operators.h"
#include "trainer/torch/ops/streams.h"

namespace tandem::torch_ops {

using kernels::bf16;

namespace {

struct HeadArguments {
  Tensor hidden, weight, tokens;
  int rows = 0, width = 0, vocabulary = 0;
  std::vector<kernels::TokenPick> picks;
};

HeadArguments head_arguments(const Arguments& check, const Tensor& hidden, const Tensor& weight, const Tensor& tokens) {
  HeadArguments all{check.bf16(hidden, "hidden"), check.bf16(weight, "weight"),
                    check.dense(tokens, ScalarType::Long, "tokens")};
  all.rows = check.rows(all.hidden);
  all.width = check.columns(all.hidden, "hidden");
  check.require(all.weight.dim() == 2 && all.weight.size(1) == all.width, "weight is not [vocabulary, ", all.width,
                "]");
  check.require(all.width % 2 == 0, "hidden has ", all.width, " columns: an odd number is not supported");
  all.vocabulary = check.size(all.weight.size(0), "the vocabulary");
  std::vector<int64_t> expected = sizes_of(all.hidden);
  expected.pop_back();
  check.require(sizes_of(all.tokens) == expected, "tokens has not the shape of hidden without its last extent");
  const auto* ids = in<int64_t>(all.tokens);
  for (int row = 0; row < all.rows; ++row) {
    check.require(ids[row] >= 0 && ids[row] < all.vocabulary, "token ", ids[row], " of row ", row,
                  " is not one of the ", all.vocabulary, " of weight");
    all.picks.push_back({row, static_cast<int32_t>(ids[row])});
  }
  return all;
}

std::vector<bf16> packed_head(const Arguments& check, kernels::Stream& stream, const HeadArguments& all) {
  std::vector<bf16> packed(kernels::packed_size(all.vocabulary, all.width));
  check.check(kernels::pack(stream, in<bf16>(all.weight), all.vocabulary, all.width, packed.data()));
  return packed;
}

}  // namespace

std::tuple<Tensor, Tensor> lm_head_forward(const Tensor& hidden, const Tensor& weight, const Tensor& tokens) {
  const Arguments check("lm_head_logprob");
  const HeadArguments all = head_arguments(check, hidden, weight, tokens);
  const std::vector<int64_t> sizes = sizes_of(all.tokens);
  const Tensor logprobs = made_like(all.hidden, sizes, ScalarType::Float);
  const Tensor log_sum = made_like(all.hidden, sizes, ScalarType::Float);
  if (all.rows == 0) return {logprobs, log_sum};
  BorrowedStream stream;
  const std::vector<bf16> packed = packed_head(check, *stream, all);
  check.check(kernels::lm_head(*stream,
                               kernels::LmHead{.hidden = in<bf16>(all.hidden),
                                               .head = packed.data(),
                                               .rows = all.rows,
                                               .width = all.width,
                                               .vocabulary = all.vocabulary,
                                               .log_sum = out<float>(log_sum)},
                               all.picks, std::span(out<float>(logprobs), all.picks.size())));
  return {logprobs, log_sum};
}

Tensor lm_head_logprob(const Tensor& hidden, const Tensor& weight, const Tensor& tokens) {
  return std::get<0>(lm_head_forward(hidden, weight, tokens));
}

std::tuple<Tensor, Tensor> lm_head_backward(const Tensor& grad, const Tensor& hidden, const Tensor& weight,
                                            const Tensor& tokens, const Tensor& log_sum, bool of_weight) {
  const Arguments check("lm_head_backward");
  const HeadArguments all = head_arguments(check, hidden, weight, tokens);
  const Tensor of_logprobs = check.dense(grad, ScalarType::Float, "grad");
  const Tensor sums = check.dense(log_sum, ScalarType::Float, "log_sum");
  check.require(of_logprobs.numel() == all.rows && sums.numel() == all.rows, "grad and log_sum are not of ", all.rows,
                " rows");
  std::vector<float> grad_hidden(static_cast<size_t>(all.rows) * all.width, 0);
  std::vector<float> grad_weight(of_weight ? static_cast<size_t>(all.vocabulary) * all.width : 0, 0);
  if (all.rows > 0) {
    BorrowedStream stream;
    const std::vector<bf16> packed = packed_head(check, *stream, all);
    std::vector<bf16> transposed(kernels::packed_size(all.width, (all.vocabulary + 1) / 2 * 2));
    check.check(kernels::pack_transposed(*stream, in<bf16>(all.weight), all.vocabulary, all.width, transposed.data()));
    check.check(kernels::lm_head_backward(*stream,
                                          {.hidden = in<bf16>(all.hidden),
                                           .head = packed.data(),
                                           .head_transposed = transposed.data(),
                                           .log_sum = in<float>(sums),
                                           .rows = all.rows,
                                           .width = all.width,
                                           .vocabulary = all.vocabulary,
                                           .grad_hidden = grad_hidden.data(),
                                           .grad_head = of_weight ? grad_weight.data() : nullptr},
                                          all.picks, std::span(in<float>(of_logprobs), all.picks.size()), {}));
  }
  return {rounded(all.hidden, sizes_of(all.hidden), grad_hidden),
          rounded(all.weight, of_weight ? sizes_of(all.weight) : std::vector<int64_t>{0}, grad_weight)};
}

}  // namespace tandem::torch_ops
