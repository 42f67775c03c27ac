#include "trainer/torch/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "base/file.h"

namespace tandem::trainer {

namespace {

constexpr const char* kFile = "libtandem_torch.so";

template <typename Function>
Status find_function(void* handle, const std::string& path, const char* name, Function& function) {
  void* symbol = ::dlsym(handle, name);
  if (symbol == nullptr) return Status::unfit(fmt::format("{}: has no function {}", path, name));
  std::memcpy(&function, &symbol, sizeof symbol);
  return {};
}

Result<LoadedTorch> open_torch() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  LoadedTorch library{.path = (folder / kFile).string(), .functions = {}};
  const std::string mend = "scripts/with-torch installs LibTorch and builds it; then run the same command again";
  if (!fs::exists(library.path, error))
    return fail(Status::not_found(fmt::format("{}, which is not in {}", kFile, folder.string())).hint(mend));
  void* handle = ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return fail(
        Status::unfit(fmt::format("{}: cannot be loaded: {}", library.path, reason ? reason : "no reason")).hint(mend));
  }
  TorchFunctions& f = library.functions;
  TRY(find_function(handle, library.path, "tandem_torch_version", f.version));
  if (const int version = f.version(); version != TANDEM_TORCH_VERSION) {
    return fail(Status::unfit(fmt::format("{}: has version {} of the interface, expected {}", library.path, version,
                                          TANDEM_TORCH_VERSION))
                    .hint("build it from the sources of this binary: scripts/with-torch"));
  }
  TRY(find_function(handle, library.path, "tandem_torch_release", f.release));
  TRY(find_function(handle, library.path, "tandem_torch_load", f.load));
  TRY(find_function(handle, library.path, "tandem_torch_takes_reference", f.takes_reference));
  TRY(find_function(handle, library.path, "tandem_torch_compute", f.compute));
  TRY(find_function(handle, library.path, "tandem_torch_free", f.free));
  TRY(find_function(handle, library.path, "tandem_torch_model", f.model));
  TRY(find_function(handle, library.path, "tandem_torch_score", f.score));
  TRY(find_function(handle, library.path, "tandem_torch_free_model", f.free_model));
  return library;
}

}  // namespace

const Result<LoadedTorch>& loaded_torch() {
  static const Result<LoadedTorch> library = open_torch();
  return library;
}

Result<const LoadedTorch*> torch_for(std::string_view who) {
  const auto& library = loaded_torch();
  if (library) return &*library;
  const Status& status = library.error();
  if (status.code() != Code::kNotFound) return fail(Status(status));
  // A named thing that is not there is a lack of this machine, where somebody asks for it.
  return fail(Status::unfit(fmt::format("{} needs {}", who, status.message())).hint(status.hint()));
}

}  // namespace tandem::trainer
