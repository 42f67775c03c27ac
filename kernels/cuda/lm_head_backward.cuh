// The gradient of log-probabilities and the entropy: dlogit[v] = scale x sum over the row's picks of g ([v == token] -
// p_v), formed again by slabs of 32 panels of the vocabulary so that no more than rows x 2048 of them exist at once;
// each slab is then two products, added to the gradients of hidden states and head. Order: kernels/cpu/lm_head.inl.
#pragma once

#include "kernels/cuda/lm_head.cuh"

namespace tandem::kernels::cuda {

constexpr int kGradientPanels = 32;  // of a slab
constexpr int kGradientColumns = kGradientPanels * kPanel;

struct LogitGradients {
  TandemCudaLmHeadBackward h;
  uint16_t* grads;  // [rows][kGradientColumns]
  float* terms;     // [rows][panels]: what a panel adds to the entropy
  TANDEM_HD void operator()(int64_t row, int panel, float* logits) const {
    const float log_sum = h.log_sum[row];
    const int64_t begin = first_pick(row), end = first_pick(row + 1);
    const float weight = weight_of(begin, end);
    float entropy[kPanel];
    for (int column = 0; column < kPanel; ++column) {
      const float logprob = logits[column] - log_sum;
      const float probability = exponential(logprob);
      entropy[column] = probability > 0 ? probability * logprob : 0.0f;
      logits[column] = probability * -weight;
    }
    if (h.entropy) terms[row * panels_of(h.vocabulary) + panel] = sum_of_block(entropy);
    for (int64_t i = begin; i < end; ++i) {
      const int column = h.picks[i].token - panel * kPanel;
      if (column >= 0 && column < kPanel) logits[column] = logits[column] + h.grad_logprobs[i];
    }
    uint16_t* target = grads + row * kGradientColumns + panel % kGradientPanels * kPanel;
    const float scale = scale_of(h.logit_scales, row, h.rows);
    for (int column = 0; column < kPanel; ++column) target[column] = to_bf16_bits(logits[column] * scale);
  }

  TANDEM_HD float weight_of(int64_t begin, int64_t end) const {
    float weight = 0;
    for (int64_t i = begin; i < end; ++i) weight = weight + h.grad_logprobs[i];
    return weight;
  }
  // The first pick whose row is not below `row`.
  TANDEM_HD int64_t first_pick(int64_t row) const {
    int64_t begin = 0, end = h.pick_count;
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (h.picks[middle].row < row) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};

// The same of a row whose logits lie in registers.
struct TensorLogitGradients {
  LogitGradients of;
  TANDEM_HD void operator()(const Registers<int, 1>& of_row, int rows, int panel, Registers<float, 16>& logits) const {
    const TandemCudaLmHeadBackward& h = of.h;
    Registers<float, 2> parts;
    each_lane([&](int lane) {
      const int row = of_row.at(lane, 0);
      const bool there = row < rows;
      const float log_sum = there ? h.log_sum[row] : 0.0f;
      const int64_t begin = there ? of.first_pick(row) : 0, end = there ? of.first_pick(row + 1) : 0;
      const float weight = of.weight_of(begin, end);
      float entropy[16];
      TANDEM_UNROLL
      for (int i = 0; i < 16; ++i) {
        const float logprob = logits.at(lane, i) - log_sum;
        const float probability = exponential(logprob);
        entropy[i] = probability > 0 ? probability * logprob : 0.0f;
        logits.at(lane, i) = probability * -weight;
      }
      const auto term = [&](int across, int second) { return entropy[across * 2 + second]; };
      parts.at(lane, 0) = own_part_of_block(term, 0);
      parts.at(lane, 1) = own_part_of_block(term, 1);
      for (int64_t pick = begin; pick < end; ++pick) {
        const int column = h.picks[pick].token - panel * kPanel;
        TANDEM_UNROLL
        for (int i = 0; i < 16; ++i) {
          if (column == column_of_logit(lane, i)) logits.at(lane, i) = logits.at(lane, i) + h.grad_logprobs[pick];
        }
      }
      if (!there) return;
      uint16_t* const target = of.grads + row * kGradientColumns + panel % kGradientPanels * kPanel;
      const float scale = scale_of(h.logit_scales, row, rows);
      TANDEM_UNROLL
      for (int i = 0; i < 16; ++i) target[column_of_logit(lane, i)] = to_bf16_bits(logits.at(lane, i) * scale);
    });
    join_quads(parts, 0, [](float a, float b) { return a + b; });
    join_quads(parts, 1, [](float a, float b) { return a + b; });
    each_lane([&](int lane) {
      const int row = of_row.at(lane, 0);
      if (h.entropy && row < rows && lane % 4 == 0)
        of.terms[row * panels_of(h.vocabulary) + panel] = joined_sum(parts, lane, 0);
    });
  }
};

struct EntropyOfRow {
  TandemCudaLmHeadBackward h;
  const float* terms;
  TANDEM_HD void operator()(int64_t row) const {
    double sum = 0;
    for (int64_t panel = 0; panel < panels_of(h.vocabulary); ++panel) {
      sum = sum + terms[row * panels_of(h.vocabulary) + panel];
    }
    h.entropy[row] = static_cast<float>(-sum);
  }
};

inline size_t lm_head_backward_workspace(int rows, int vocabulary) {
  return static_cast<size_t>(rows) * (kGradientColumns * sizeof(uint16_t) + panels_of(vocabulary) * sizeof(float));
}

template <typename Execution>
int lm_head_backward_slab(Execution& execution, const TandemCudaLmHeadBackward& h, const LogitGradients& row,
                          int first_panel) {
  const int panels = smaller(kGradientPanels, static_cast<int>(panels_of(h.vocabulary)) - first_panel);
  const int64_t first = static_cast<int64_t>(first_panel) * kPanel;
  const int columns = smaller(panels * kPanel, h.vocabulary - static_cast<int>(first));
  const LogitTiles<LogitGradients, uint16_t> tiles{row,          h.hidden,    h.head, h.rows,         h.width,
                                                   h.vocabulary, first_panel, panels, h.logit_scales, h.kept};
  TandemCudaGemm to_hidden{}, to_head{};
  to_hidden.a = row.grads;
  to_hidden.a_row_stride = kGradientColumns;
  to_hidden.a_k_stride = 1;
  to_hidden.b = h.head + first * h.width;
  to_hidden.b_row_stride = 1;
  to_hidden.b_k_stride = h.width;
  to_hidden.out_float = h.grad_hidden;
  to_hidden.m = h.rows;
  to_hidden.k = columns;
  to_head.a = row.grads;
  to_head.a_row_stride = 1;
  to_head.a_k_stride = kGradientColumns;
  to_head.b = h.hidden;
  to_head.b_row_stride = 1;
  to_head.b_k_stride = h.width;
  if (h.grad_head) to_head.out_float = h.grad_head + first * h.width;
  to_head.m = columns;
  to_head.k = h.rows;
  to_hidden.accumulate = to_head.accumulate = 1;
  to_hidden.n = to_head.n = h.width;
  to_hidden.out_stride = to_head.out_stride = h.width;
  return in_order(
      [&] {
        return execution.tensor() ? run_tensor_logits(execution, TensorLogitGradients{row}, h, first_panel, panels)
                                  : start(execution, tiles, tiles.blocks());
      },
      [&] { return operate(execution, to_hidden); },
      [&] { return h.grad_head ? operate(execution, to_head) : kTandemCudaOk; });
}

template <typename Execution>
int operate(Execution& execution, const TandemCudaLmHeadBackward& h) {
  if (!h.hidden || !h.head || !h.log_sum || !h.grad_hidden || !h.workspace) return kTandemCudaNull;
  if (h.pick_count > 0 && (!h.picks || !h.grad_logprobs)) return kTandemCudaNull;
  if (h.rows < 0 || h.width <= 0 || h.vocabulary <= 0 || h.pick_count < 0) return kTandemCudaSize;
  if (h.workspace_bytes < lm_head_backward_workspace(h.rows, h.vocabulary)) return kTandemCudaWorkspace;
  float* terms = static_cast<float*>(h.workspace);
  uint16_t* grads = reinterpret_cast<uint16_t*>(terms + h.rows * panels_of(h.vocabulary));
  for (int panel = 0; panel < panels_of(h.vocabulary); panel += kGradientPanels) {
    if (const int code = lm_head_backward_slab(execution, h, LogitGradients{h, grads, terms}, panel)) return code;
  }
  return h.entropy ? each_element(execution, h.rows, EntropyOfRow{h, terms}) : kTandemCudaOk;
}

}  // namespace tandem::kernels::cuda
