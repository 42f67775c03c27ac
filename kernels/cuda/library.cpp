#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

namespace tandem::kernels::cuda {

namespace {

namespace fs = std::filesystem;

template <typename Function>
Status look_up(void* handle, const std::string& path, const char* name, Function& function) {
  void* symbol = ::dlsym(handle, name);
  if (symbol == nullptr) return Status::unfit(fmt::format("{}: has no function {}", path, name));
  std::memcpy(&function, &symbol, sizeof symbol);
  return {};
}

}  // namespace

Result<Library> Library::open(const std::string& name) {
  Library library;
  library.path_ = name;
  library.handle_ = {::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* handle) {
                       if (handle != nullptr) ::dlclose(handle);
                     }};
  if (!library.handle_) {
    const char* reason = ::dlerror();
    return fail(Status::unfit(fmt::format("{}: cannot be loaded: {}", name, reason ? reason : "no reason given")));
  }
  void* handle = library.handle_.get();
  // The version first: a library of another one may lack functions, and the version is what to say then.
  TRY(look_up(handle, name, "tandem_cuda_version", library.functions_.version));
  if (const int version = library.functions_.version(); version != TANDEM_CUDA_VERSION) {
    return fail(Status::unfit(
                    fmt::format("{}: has version {} of the interface, expected {}", name, version, TANDEM_CUDA_VERSION))
                    .hint("build it from the sources of this binary"));
  }
#define TANDEM_CUDA_FIND(function) TRY(look_up(handle, name, "tandem_cuda_" #function, library.functions_.function));
#define TANDEM_CUDA_FIND_OPERATION(function, Arguments) TANDEM_CUDA_FIND(function)
  TANDEM_CUDA_SERVICES(TANDEM_CUDA_FIND)
  TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_FIND_OPERATION)
#define TANDEM_CUDA_FIND_WORKSPACE(function) TANDEM_CUDA_FIND(function##_workspace)
  TANDEM_CUDA_WORKSPACES(TANDEM_CUDA_FIND_WORKSPACE)
#undef TANDEM_CUDA_FIND_WORKSPACE
#undef TANDEM_CUDA_FIND_OPERATION
#undef TANDEM_CUDA_FIND
  return library;
}

Result<Library> Library::load(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return fail(Status::not_found(fmt::format("{}: no such file", file.string())));
  return open(fs::absolute(file).string());
}

Result<Library> Library::load() {
  return find("libtandem_cuda.so",
              "build it with `cmake --preset cuda && cmake --build --preset cuda --target tandem_cuda`");
}
Result<Library> Library::load_emulated() {
  return find("libtandem_emulated.so", "build it with `cmake --build --preset release --target tandem_emulated`");
}

Result<Library> Library::find(const char* file, const char* hint) {
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / file;
  if (!error && fs::exists(beside, error)) return load(beside);
  if (void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    ::dlclose(handle);
    return open(file);
  }
  // The linker's own words do not tell an absent file from a broken one; a file that it found is named in them.
  const char* reason = ::dlerror();
  const std::string words = reason ? reason : "";
  if (words.find("No such file") == std::string::npos) return open(file);
  return fail(
      Status::not_found(fmt::format("{} is neither in {} nor on the library path", file, beside.parent_path().string()))
          .hint(hint));
}

Status Library::status(std::string_view function, int code) const {
  if (code == kTandemCudaOk) return {};
  std::string words = fmt::format("{}: {}", function, functions_.error_text(code));
  return code < kTandemCudaRuntime ? Status::invalid(std::move(words)) : Status::unavailable(std::move(words));
}

Result<std::vector<Device>> Library::devices() const {
  int count = 0;
  TRY(status("tandem_cuda_device_count", functions_.device_count(&count)));
  std::vector<Device> devices;
  for (int index = 0; index < count; ++index) {
    TandemCudaDevice device{};
    TRY(status("tandem_cuda_device", functions_.device(index, &device)));
    devices.push_back({device.name, device.major, device.minor, device.memory_bytes});
  }
  return devices;
}

}  // namespace tandem::kernels::cuda
