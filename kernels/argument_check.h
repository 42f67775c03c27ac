// Argument checks of kernels: the Status of the first failed check, with operation, argument and value.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "base/status.h"

namespace tandem::kernels {

struct Check {
  const char* operation;
  Status status = {};

  Check& positive(const char* name, int64_t value) {
    if (status.ok() && (value < 0 || value > (int64_t{1} << 31))) {
      status = Status::invalid(fmt::format("{}: {} is {}, expected 0 to 2^31", operation, name, value));
    }
    return *this;
  }
  Check& given(const char* name, const void* pointer) {
    if (status.ok() && pointer == nullptr) status = Status::invalid(fmt::format("{}: {} is null", operation, name));
    return *this;
  }
  Check& that(bool holds, const char* what) {
    if (status.ok() && !holds) status = Status::invalid(fmt::format("{}: {}", operation, what));
    return *this;
  }
};

}  // namespace tandem::kernels
