#include "trainer/learn/ranks.h"

#include <fmt/format.h>

#include "collectives/slices.h"

namespace tandem::trainer {
namespace {

Status not_summed(const ConstSlice& slice) {
  return Status::invalid(
      fmt::format("{} is {}; only F32 and BF16 are summed", slice.name, model::safetensors_name(slice.dtype)));
}

}  // namespace

Slice part_of_rank(const Slice& whole, int rank, int ranks) {
  const collectives::Slices parts{whole.elements(), ranks};
  return whole.part(parts.begin(rank), parts.size(rank));
}

Status all_reduce(collectives::Group& group, const Slice& slice, std::chrono::milliseconds deadline) {
  if (slice.dtype == model::DType::kF32) return group.all_reduce(slice.host<float>(), deadline).at(slice.name);
  if (slice.dtype == model::DType::kBF16) return group.all_reduce(slice.host<kernels::bf16>(), deadline).at(slice.name);
  return not_summed(slice);
}

Status reduce_scatter(collectives::Group& group, const ConstSlice& whole, const Slice& part,
                      std::chrono::milliseconds deadline) {
  if (part.dtype != whole.dtype) return Status::invalid("part and whole have different formats").at(whole.name);
  if (whole.dtype == model::DType::kF32)
    return group.reduce_scatter(whole.host<float>(), part.host<float>(), deadline).at(whole.name);
  if (whole.dtype == model::DType::kBF16)
    return group.reduce_scatter(whole.host<kernels::bf16>(), part.host<kernels::bf16>(), deadline).at(whole.name);
  return not_summed(whole);
}

Status all_gather(collectives::Group& group, const ConstSlice& part, const Slice& whole,
                  std::chrono::milliseconds deadline) {
  return group.all_gather(part.bytes, whole.bytes, deadline).at(whole.name);
}

Status broadcast(collectives::Group& group, const Slice& slice, int root, std::chrono::milliseconds deadline) {
  return group.broadcast(slice.bytes, root, deadline).at(slice.name);
}

}  // namespace tandem::trainer
