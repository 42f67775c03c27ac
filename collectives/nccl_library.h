// NVIDIA's NCCL (libnccl.so.2), found and loaded while the process runs: no header of it is needed to build, and a
// machine without it is told so. What is declared here is what NCCL 2.14 and all later versions take.
//
// Thread safety: immutable once loaded.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::collectives {

struct NcclUniqueId {
  char bytes[128];
};
using NcclCommunicator = struct NcclOpaque*;

// The beginning of NCCL's own, by whose size and version NCCL knows that the rest is left as it is.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

constexpr int kNcclSuccess = 0, kNcclRemoteError = 6, kNcclInProgress = 7;
constexpr int kNcclBytes = 1;  // of its types the one that nothing is added in

struct NcclFunctions {
  int (*ncclGetVersion)(int*) = nullptr;
  int (*ncclGetUniqueId)(NcclUniqueId*) = nullptr;
  int (*ncclCommInitRankConfig)(NcclCommunicator*, int ranks, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*ncclCommGetAsyncError)(NcclCommunicator, int* state) = nullptr;
  int (*ncclCommFinalize)(NcclCommunicator) = nullptr;
  int (*ncclCommDestroy)(NcclCommunicator) = nullptr;
  int (*ncclCommAbort)(NcclCommunicator) = nullptr;
  int (*ncclSend)(const void*, size_t count, int type, int peer, NcclCommunicator, void* stream) = nullptr;
  int (*ncclRecv)(void*, size_t count, int type, int peer, NcclCommunicator, void* stream) = nullptr;
  int (*ncclGroupStart)() = nullptr;
  int (*ncclGroupEnd)() = nullptr;
  const char* (*ncclGetErrorString)(int) = nullptr;
};

class NcclLibrary {
 public:
  // `name` as the dynamic linker takes it. kNotFound where there is none, kUnfit where it lacks a function or is older
  // than 2.14.
  static Result<NcclLibrary> load(const std::string& name = "libnccl.so.2");

  const NcclFunctions& functions() const { return functions_; }
  int version() const { return version_; }  // 10000 * major + 100 * minor + patch
  // A result of NCCL's as a status.
  Status status(std::string_view what, int result) const;

 private:
  std::shared_ptr<void> handle_;
  NcclFunctions functions_;
  int version_ = 0;
};

}  // namespace tandem::collectives
