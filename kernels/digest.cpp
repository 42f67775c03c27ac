#include "kernels/digest.h"

#include <algorithm>
#include <vector>

#include "kernels/argument_check.h"
#include "kernels/threads.h"

namespace tandem::kernels {

Result<Digest> digest(Stream& stream, std::span<const std::byte> bytes) {
  if (!bytes.empty()) TRY(Check{"digest"}.given("bytes", bytes.data()).status);
  std::vector<Digest> pieces((bytes.size() + kDigestPiece - 1) / kDigestPiece);
  stream.threads().run(static_cast<int>(pieces.size()), [&](int piece) {
    const size_t begin = piece * kDigestPiece;
    pieces[piece] = digest_of(bytes.subspan(begin, std::min(kDigestPiece, bytes.size() - begin)));
  });
  return digest_of(std::as_bytes(std::span(pieces)));
}

}  // namespace tandem::kernels
