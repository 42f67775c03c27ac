// Whether a plan keeps the rules of executor.h: what a mistake would let kernels read or write beyond their memory.
#pragma once

#include <map>
#include <memory>

#include "model/executor.h"

namespace tandem::model {

using AdapterTable = std::map<AdapterId, std::shared_ptr<const LiveAdapter>>;

// `pages`, `max_positions` and `adapters` are those of the executor. kInvalid says what is wrong.
Status check_plan(const Plan& plan, int vocabulary, int pages, int max_positions, const AdapterTable& adapters = {});

// Whether there are such pages, and `bytes` of host memory for them.
Status check_pages(std::span<const int> wanted, int pages);
Status check_host_pages(std::span<const int> wanted, int pages, size_t bytes, size_t page_bytes);

}  // namespace tandem::model
