// The experts of the positions that pages of keys and values hold, of a mixture of experts: beside each page the rows
// of its positions, so that a shared page has them too.
//
// Written when the answer of a pass is collected, in the order of passes; pages that were reassigned meanwhile are
// overwritten by later passes.
//
// Thread safety: none; one engine's. Memory: bytes_of(), taken as it is written.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/expert_routes.h"
#include "kernels/attention.h"

namespace tandem::rollout {

class RoutePages {
 public:
  RoutePages(const RouteShape& shape, int pages) : shape_(shape), memory_(bytes_of(shape, pages)) {}
  static size_t bytes_of(const RouteShape& shape, int pages) {
    return static_cast<size_t>(pages) * kernels::kPageTokens * shape.row_bytes();
  }

  const RouteShape& shape() const { return shape_; }
  void write(int page, int place, std::span<const uint8_t> row) {
    std::memcpy(at(page, place), row.data(), row.size());
  }
  std::span<const uint8_t> row(int page, int place) { return {at(page, place), shape_.row_bytes()}; }
  void copy(int from, int to) { std::memcpy(at(to, 0), at(from, 0), kernels::kPageTokens * shape_.row_bytes()); }

 private:
  uint8_t* at(int page, int place) {
    return memory_.data() + (static_cast<size_t>(page) * kernels::kPageTokens + place) * shape_.row_bytes();
  }
  RouteShape shape_;
  Buffer<uint8_t> memory_;
};

}  // namespace tandem::rollout
