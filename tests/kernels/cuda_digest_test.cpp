#include "base/random.h"
#include "kernels/digest.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

std::vector<uint8_t> random_bytes(size_t count) {
  Random random(count);
  std::vector<uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random.below(256));
  return bytes;
}

TandemCudaDigest digest_arguments(Machine& machine, const std::vector<uint8_t>& bytes) {
  const size_t workspace = (bytes.size() + kDigestPiece - 1) / kDigestPiece * sizeof(Digest);
  return {.bytes = machine.place(bytes),
          .count = static_cast<int64_t>(bytes.size()),
          .result = machine.room<uint64_t>(2),
          .workspace = machine.room<char>(workspace),
          .workspace_bytes = workspace};
}

// Every length that XXH3 treats in its own way and those beside it, and pieces: their digests are as many bytes.
std::vector<size_t> lengths() {
  std::vector<size_t> all;
  for (size_t length = 0; length <= 260; ++length) all.push_back(length);
  for (const size_t length : {511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 4096, 100'000}) all.push_back(length);
  for (const size_t more : {0, 1, 300}) all.push_back(kDigestPiece + more);
  all.push_back(16 * kDigestPiece + 1);  // whose digests are more than 240 bytes
  return all;
}

Bytes digest_case(Machine& machine) {
  Bytes bytes;
  for (const size_t length : lengths()) {
    const TandemCudaDigest d = digest_arguments(machine, random_bytes(length));
    EXPECT_EQ(machine.run(d), 0);
    append(bytes, machine.fetch(d.result, 2));
  }
  return bytes;
}
Bytes digest_on_cpu(Stream& cpu) {
  Bytes bytes;
  for (const size_t length : lengths()) {
    const auto all = random_bytes(length);
    const auto digest = kernels::digest(cpu, std::as_bytes(std::span(all)));
    EXPECT_TRUE(digest);
    append(bytes, std::vector<uint64_t>{digest->low, digest->high});
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(digest)

TEST(CudaHost, a_digest_wants_its_bytes_a_result_and_a_workspace) {
  HostMachine machine;
  TandemCudaDigest d = digest_arguments(machine, random_bytes(10));
  --d.workspace_bytes;
  EXPECT_EQ(machine.run(d), kTandemCudaWorkspace);
  ++d.workspace_bytes;
  d.result = nullptr;
  EXPECT_EQ(machine.run(d), kTandemCudaNull);
}

}  // namespace
}  // namespace tandem::kernels::cuda
