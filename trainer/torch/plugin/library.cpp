// A loss, or advantages, in C++: a shared library that exports what TANDEM_LOSS or TANDEM_ADVANTAGES writes.
#include <dlfcn.h>

#include "trainer/torch/plugin/user_loss.h"

namespace tandem::torch_plugin {

namespace {

constexpr const char* kBuiltWith = TANDEM_LOSS_INTERFACE "/" TORCH_VERSION;

UserOutput output_of(LossOutput output) { return {std::move(output.loss), std::move(output.metrics)}; }
UserOutput output_of(AdvantageOutput output) { return {std::move(output.advantages), std::move(output.metrics)}; }

// Of LossLibrary or AdvantageLibrary.
template <typename Exported>
class Library final : public UserFunction {
 public:
  Library(const Exported& library, const std::vector<std::string>& options) : function_(library.function) {
    std::vector<LossOption> values = library.options;
    set_options(values, options);
    for (const LossOption& option : values) options_[option.name] = option.value;
  }

  bool takes_reference() const override { return false; }  // that it does not say

  UserOutput call(const LossInput& input) const override {
    LossInput with_options = input;
    with_options.options = options_;
    return output_of(function_(with_options));
  }

 private:
  const decltype(Exported::function) function_;
  std::map<std::string, OptionValue> options_;
};

template <typename Exported>
std::unique_ptr<UserFunction> read_export(void* symbol, const std::vector<std::string>& options) {
  return std::make_unique<Library<Exported>>(*reinterpret_cast<const Exported* (*)()>(symbol)(), options);
}

}  // namespace

std::unique_ptr<UserFunction> open_library(const std::string& file, const std::string& name,
                                           const std::vector<std::string>& options) {
  // Never closed: what it has registered with LibTorch would be left behind.
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    throw std::runtime_error(std::string("cannot be loaded: ") + (reason ? reason : "no reason given"));
  }
  const bool is_loss = name == kLoss;
  const std::string symbol = "tandem_" + name;
  const auto built_with = reinterpret_cast<const char* (*)()>(::dlsym(handle, (symbol + "_built_with").c_str()));
  void* const exported = ::dlsym(handle, symbol.c_str());
  if (built_with == nullptr || exported == nullptr) {
    throw std::runtime_error(std::string("exports no ") + name + "; " +
                             (is_loss ? "TANDEM_LOSS" : "TANDEM_ADVANTAGES") +
                             "(function) of trainer/torch/tandem_loss.h does it");
  }
  if (std::string(built_with()) != kBuiltWith) {
    throw std::runtime_error(std::string("was built for ") + built_with() + " (interface/LibTorch), and here is " +
                             kBuiltWith + "; build it again");
  }
  return is_loss ? read_export<LossLibrary>(exported, options) : read_export<AdvantageLibrary>(exported, options);
}

}  // namespace tandem::torch_plugin
