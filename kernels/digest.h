// A multi-threaded digest of a large array, at memory bandwidth.
//
// It is base/digest's (XXH3, 128 bits) over the digests of pieces of 1 MiB in order, so it does not depend on the
// number of threads; it is not digest_of the array. Of nothing it is digest_of nothing. Detects damage; not for
// adversaries.
//
// Thread safety: as gemm.h.
#pragma once

#include <cstddef>
#include <span>

#include "base/digest.h"
#include "base/status.h"
#include "kernels/stream.h"

namespace tandem::kernels {

constexpr size_t kDigestPiece = size_t{1} << 20;

// kInvalid: bytes is null and not empty.
Result<Digest> digest(Stream& stream, std::span<const std::byte> bytes);

}  // namespace tandem::kernels
