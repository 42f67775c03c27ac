#include "kernels/digest.h"

#include <vector>

#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class DigestTest : public EachIsa {};
FOR_EACH_ISA(DigestTest);

TEST_P(DigestTest, is_that_of_the_digests_of_pieces_with_any_threads) {
  Stream one = stream(1), three = stream(3);
  std::vector<std::byte> bytes(2 * kDigestPiece + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 1000);
  const std::span<const std::byte> all = bytes;
  const std::vector<Digest> pieces = {digest_of(all.first(kDigestPiece)),
                                      digest_of(all.subspan(kDigestPiece, kDigestPiece)), digest_of(all.last(5))};
  const Digest whole = *digest(one, bytes);
  EXPECT_EQ(whole, digest_of(std::as_bytes(std::span(pieces))));
  EXPECT_EQ(whole, *digest(three, bytes));
  EXPECT_EQ(*digest(one, {}), digest_of(std::string_view()));
  for (const size_t place : {size_t{0}, kDigestPiece - 1, kDigestPiece, bytes.size() - 1}) {
    bytes[place] ^= std::byte{4};
    EXPECT_NE(*digest(three, bytes), whole) << place;
    bytes[place] ^= std::byte{4};
  }
  EXPECT_EQ(digest(one, {static_cast<const std::byte*>(nullptr), 1}).error().to_string(), "digest: bytes is null");
}

}  // namespace
}  // namespace tandem::kernels
