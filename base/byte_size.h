// Bytes with a unit, as people write them: "20GB", "512 MiB", "1.5T", "4096".
//
// k, M, G, T are powers of 1000 and Ki, Mi, Gi, Ti of 1024, each with or without B, in any case of letters.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tandem {

// kInvalid, with an example, for anything but a number with such a unit, a negative number, or one beyond 2^62.
Result<uint64_t> bytes_from(std::string_view text);

}  // namespace tandem
