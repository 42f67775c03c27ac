// Products of groups of rows with a weight each, made of the same blocks as gemm.inl's, and with them the same bits.
//
// Blocking: all groups' blocks are one list of tasks, so that threads share groups of any size. A block is some rows of
// one group and one panel of its weight; a thread asks for the panel that it takes next, of whichever group, while it
// works. Groups without rows cost nothing.
#pragma once

#include <vector>

#include "kernels/cpu/gemm.inl"
#include "kernels/experts.h"

namespace tandem::kernels::TANDEM_ISA {

// Rows [begin, end) of a group's output.
struct GroupChunk {
  int group, begin, end;
};

// of_group(g) is the product of one group, `active(g)` whether there is anything to do.
template <typename OfGroup, typename Active>
void multiply_groups(ThreadPool& threads, int groups, const OfGroup& of_group, const Active& active) {
  std::vector<GroupChunk> chunks;
  int panels = 0;
  for (int group = 0; group < groups; ++group) {
    if (!active(group)) continue;
    const auto g = of_group(group);
    panels = (g.n + kPanelColumns - 1) / kPanelColumns;
    for (int begin = 0; begin < g.m; begin += chunk_rows(g)) {
      chunks.push_back({group, begin, std::min(g.m, begin + chunk_rows(g))});
    }
  }
  const int tasks = static_cast<int>(chunks.size()) * panels;
  threads.run(tasks, [&](int task) {
    const GroupChunk& chunk = chunks[task / panels];
    const int later = task + threads.threads();
    decltype(of_group(0).b) next;
    if (later < tasks) next = panel_of(of_group(chunks[later / panels].group), later % panels);
    multiply_panel(of_group(chunk.group), task % panels, chunk.begin, chunk.end, next);
  });
}

template <typename T>
void grouped_gemm(ThreadPool& threads, const BasicGroupedGemm<T>& g) {
  const auto weight = [&](int group) -> RightSide<T> {
    const size_t panels = static_cast<size_t>(group) * ((g.n + kPanelColumns - 1) / kPanelColumns);
    if (g.b.codes != nullptr) return RightSide<T>(g.b.codes + panels * coded_panel_bytes(g.k));
    return g.b.panels + panels * panel_elements(g.k);
  };
  const auto of_group = [&](int group) {
    const size_t first = g.offsets[group];
    return BasicGemm<T>{.a = g.a + first * g.a_stride,
                        .a_stride = g.a_stride,
                        .b = weight(group),
                        .out = g.out + first * g.out_stride,
                        .out_stride = g.out_stride,
                        .m = g.offsets[group + 1] - g.offsets[group],
                        .n = g.n,
                        .k = g.k};
  };
  multiply_groups(threads, g.groups, of_group, [&](int group) { return g.offsets[group + 1] > g.offsets[group]; });
}

template <typename T>
void batched_gemm(ThreadPool& threads, const BasicBatchedGemm<T>& g) {
  const auto of_group = [&](int group) {
    return BasicGemm<T>{.a = g.a + group * g.a_group,
                        .a_stride = g.a_stride,
                        .b = g.b + group * g.b_group,
                        .out = g.out + group * g.out_group,
                        .out_stride = g.out_stride,
                        .m = g.m,
                        .n = g.n,
                        .k = g.k};
  };
  multiply_groups(threads, g.groups, of_group, [&](int) { return g.m > 0; });
}

inline size_t group_start(const int32_t* offsets, int group, int columns) {
  const size_t padded = (columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  return padded * (offsets[group] + group);
}

inline void pack_groups(ThreadPool& threads, const PackGroups& g) {
  const int panels = (g.columns + kPanelColumns - 1) / kPanelColumns;
  threads.run(g.groups * panels, [&](int task) {
    const int group = task / panels;
    const size_t first = g.offsets[group];
    pack_transposed_panel(g.x + first * g.columns, g.offsets[group + 1] - g.offsets[group], g.columns, task % panels,
                          g.packed + group_start(g.offsets, group, g.columns));
  });
}

inline void k_grouped_gemm(ThreadPool& threads, const KGroupedGemm& g) {
  const auto of_group = [&](int group) {
    const int rows = g.offsets[group + 1] - g.offsets[group];
    return Gemm{.a = g.a + group_start(g.offsets, group, g.m),
                .a_packed = true,
                .b = g.b + group_start(g.offsets, group, g.n),
                .out_float = g.out + static_cast<size_t>(group) * g.m * g.n,
                .out_stride = static_cast<size_t>(g.n),
                .accumulate = true,
                .m = g.m,
                .n = g.n,
                .k = (rows + 1) / 2 * 2};
  };
  multiply_groups(threads, g.groups, of_group, [&](int group) { return g.offsets[group + 1] > g.offsets[group]; });
}

}  // namespace tandem::kernels::TANDEM_ISA
