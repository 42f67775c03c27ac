#include "collectives/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

namespace tandem::collectives {

namespace {

constexpr int kLeastVersion = 21400;  // the first whose communicators need not block

template <typename Function>
Status find(void* handle, const std::string& library, const char* name, Function& function) {
  void* symbol = ::dlsym(handle, name);
  if (symbol == nullptr) return Status::unfit(fmt::format("{}: has no function {}", library, name));
  std::memcpy(&function, &symbol, sizeof symbol);
  return {};
}

}  // namespace

Result<NcclLibrary> NcclLibrary::load(const std::string& name) {
  NcclLibrary library;
  library.handle_ = {::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* handle) {
                       if (handle != nullptr) ::dlclose(handle);
                     }};
  if (!library.handle_) {
    const char* reason = ::dlerror();
    return fail(
        Status::not_found(fmt::format("{}: cannot be loaded: {}", name, reason ? reason : "no reason given"))
            .hint("NCCL comes with CUDA's packages and, for Python, as nvidia-nccl-cu13; its folder belongs into "
                  "LD_LIBRARY_PATH"));
  }
  NcclFunctions& functions = library.functions_;
#define TANDEM_NCCL_FIND(function) TRY(find(library.handle_.get(), name, #function, functions.function))
  TANDEM_NCCL_FIND(ncclGetVersion);
  TANDEM_NCCL_FIND(ncclGetErrorString);
  TRY(library.status("ncclGetVersion", functions.ncclGetVersion(&library.version_)));
  if (library.version_ < kLeastVersion)
    return fail(
        Status::unfit(fmt::format("{}: is version {} of NCCL, 2.14 or later is needed", name, library.version_)));
  TANDEM_NCCL_FIND(ncclGetUniqueId);
  TANDEM_NCCL_FIND(ncclCommInitRankConfig);
  TANDEM_NCCL_FIND(ncclCommGetAsyncError);
  TANDEM_NCCL_FIND(ncclCommFinalize);
  TANDEM_NCCL_FIND(ncclCommDestroy);
  TANDEM_NCCL_FIND(ncclCommAbort);
  TANDEM_NCCL_FIND(ncclSend);
  TANDEM_NCCL_FIND(ncclRecv);
  TANDEM_NCCL_FIND(ncclGroupStart);
  TANDEM_NCCL_FIND(ncclGroupEnd);
#undef TANDEM_NCCL_FIND
  return library;
}

Status NcclLibrary::status(std::string_view what, int result) const {
  if (result == kNcclSuccess) return {};
  return Status::unavailable(fmt::format("{}: {}", what, functions_.ncclGetErrorString(result)));
}

}  // namespace tandem::collectives
