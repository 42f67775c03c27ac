#include "trainer/learn/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

namespace tandem::trainer {

Status check_slots(int slots) {
  if (slots >= 1 && slots <= 1024 && std::has_single_bit(static_cast<unsigned>(slots))) return {};
  return Status::invalid(fmt::format("slots must be a power of two from 1 to 1024, not {}", slots));
}

std::vector<std::vector<size_t>> deal(std::span<const SlotGroup> groups, int slots) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return groups[a].tokens > groups[b].tokens; });
  std::vector<std::vector<size_t>> dealt(static_cast<size_t>(slots));
  std::vector<uint64_t> tokens(dealt.size(), 0);
  for (const size_t group : order) {
    const auto slot = static_cast<size_t>(std::ranges::min_element(tokens) - tokens.begin());
    dealt[slot].push_back(group);
    tokens[slot] += groups[group].tokens;
  }
  for (auto& slot : dealt) std::ranges::sort(slot);
  return dealt;
}

namespace {

class HostSlotMemory final : public SlotMemory {
 public:
  Result<Slice> begin_sum(const Slice& into) override { return into; }
  Status end_sum(const Slice&, std::span<const Piece>) override { return {}; }
  Result<Slice> level(const SliceSpec& spec) override {
    return levels_.contains(spec.name) ? levels_.at(spec.name) : levels_.add(spec);
  }
  // Levels hold zeros between uses.
  Status add(const Slice& into, const Slice& terms, std::span<const Piece> ranges) override {
    const auto sum = into.host<float>(), added = terms.host<float>();
    for (const Piece& range : ranges) {
      for (size_t i = range.begin; i < range.begin + range.count; ++i) {
        sum[i] += added[i];
        added[i] = 0;
      }
    }
    return {};
  }
  void forget() override { levels_.clear(); }
  size_t bytes() const override { return levels_.bytes(); }

 private:
  Buffers levels_;
};

}  // namespace

std::unique_ptr<SlotMemory> slot_memory_of_host() { return std::make_unique<HostSlotMemory>(); }

SlotSum::SlotSum(const model::ParameterLayout& layout, std::span<const uint8_t> learned,
                 std::unique_ptr<SlotMemory> memory)
    : elements_(layout.elements), memory_(std::move(memory)) {
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    if (!learned.empty() && learned[i] == 0) continue;
    const auto& parameter = layout.parameters[i];
    if (!ranges_.empty() && ranges_.back().begin + ranges_.back().count == parameter.offset)
      ranges_.back().count += parameter.elements();
    else
      ranges_.push_back({.begin = parameter.offset, .count = parameter.elements()});
  }
}

SliceSpec SlotSum::spec_of(int level) const {
  size_t learned = 0;
  for (const Piece& range : ranges_) learned += range.count;
  return {.name = fmt::format("slots.{}", level), .elements = elements_, .touched = learned};
}

size_t SlotSum::bytes_of(const model::ParameterLayout& layout, std::span<const uint8_t> learned, int slots,
                         bool on_device) {
  const size_t levels = std::bit_width(static_cast<unsigned>(slots)) - 1;
  if (on_device) return (levels + 1) * layout.elements * sizeof(float);
  return levels * SlotSum(layout, learned).spec_of(0).bytes();
}

Result<bool> SlotSum::add(const Slice& into, const std::vector<bool>& used, const AddSlot& add_slot) {
  const auto added = [&]() -> Result<bool> {
    const Slice sum = TRY(memory_->begin_sum(into));
    const bool any = TRY(add_tree(sum, 0, used.size(), used, add_slot));
    if (any) TRY(memory_->end_sum(into, ranges_));
    return any;
  }();
  if (!added) memory_->forget();
  return added;
}

Result<bool> SlotSum::add_tree(const Slice& into, size_t first, size_t count, const std::vector<bool>& used,
                               const AddSlot& add_slot) {
  const auto any_used = [&](size_t from, size_t many) {
    return std::any_of(used.begin() + static_cast<ptrdiff_t>(from), used.begin() + static_cast<ptrdiff_t>(from + many),
                       [](bool slot) { return slot; });
  };
  if (count == 1) return used[first] ? add_slot(first, into) : Result<bool>(false);
  const size_t half = count / 2;
  if (!any_used(first + half, half)) return add_tree(into, first, half, used, add_slot);
  const bool left = TRY(add_tree(into, first, half, used, add_slot));
  if (!left) return add_tree(into, first + half, half, used, add_slot);
  const Slice other = TRY(memory_->level(spec_of(std::bit_width(half) - 1)));
  if (TRY(add_tree(other, first + half, half, used, add_slot))) TRY(memory_->add(into, other, ranges_));
  return true;
}

}  // namespace tandem::trainer
