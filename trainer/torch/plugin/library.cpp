// A loss in C++: a shared library that exports what TANDEM_LOSS writes.
#include <dlfcn.h>

#include "trainer/torch/plugin/user_loss.h"

namespace tandem::torch_plugin {

namespace {

constexpr const char* kBuiltWith = TANDEM_LOSS_INTERFACE "/" TORCH_VERSION;

class Library final : public UserLoss {
 public:
  Library(const LossLibrary& library, const std::vector<std::string>& options) : function_(library.function) {
    std::vector<LossOption> values = library.options;
    set_options(values, options);
    for (const LossOption& option : values) options_[option.name] = option.value;
  }

  bool takes_reference() const override { return false; }  // that it does not say

  LossOutput call(const LossInput& input) const override {
    LossInput with_options = input;
    with_options.options = options_;
    return function_(with_options);
  }

 private:
  LossOutput (*const function_)(const LossInput&);
  std::map<std::string, OptionValue> options_;
};

}  // namespace

std::unique_ptr<UserLoss> open_library(const std::string& file, const std::vector<std::string>& options) {
  // Never closed: what it has registered with LibTorch would be left behind.
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    throw std::runtime_error(std::string("cannot be loaded: ") + (reason ? reason : "no reason given"));
  }
  const auto built_with = reinterpret_cast<const char* (*)()>(::dlsym(handle, "tandem_loss_built_with"));
  const auto loss = reinterpret_cast<const LossLibrary* (*)()>(::dlsym(handle, "tandem_loss"));
  if (built_with == nullptr || loss == nullptr)
    throw std::runtime_error("exports no loss; TANDEM_LOSS(function) of trainer/torch/tandem_loss.h does it");
  if (std::string(built_with()) != kBuiltWith) {
    throw std::runtime_error(std::string("was built for ") + built_with() + " (interface/LibTorch), and here is " +
                             kBuiltWith + "; build it again");
  }
  return std::make_unique<Library>(*loss(), options);
}

}  // namespace tandem::torch_plugin
