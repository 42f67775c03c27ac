// A token's number in a vocabulary.
#pragma once

#include <cstdint>

namespace tandem::model {

using TokenId = int32_t;

}  // namespace tandem::model
