// The function of a script or a library, as libtandem_torch.so calls it. Private to trainer/torch/plugin/.
//
// Thread safety: one call at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/torch/tandem_loss.h"

namespace tandem::torch_plugin {

// Names of functions; the export of a library is tandem_NAME.
constexpr std::string_view kLoss = "loss", kAdvantages = "advantages";

struct UserOutput {
  torch::Tensor values;  // the loss, or the advantages
  std::map<std::string, double> metrics;
};

class UserFunction {
 public:
  virtual ~UserFunction() = default;
  virtual bool takes_reference() const = 0;
  // Exceptions of the user's code pass through.
  virtual UserOutput call(const LossInput& input) const = 0;
};

// `options` are NAME=VALUE. Both throw std::runtime_error in the user's terms.
std::unique_ptr<UserFunction> read_script(const std::string& file, const std::string& name,
                                          const std::vector<std::string>& options);
std::unique_ptr<UserFunction> open_library(const std::string& file, const std::string& name,
                                           const std::vector<std::string>& options);

// Sets each option to its text; throws where a name is unknown or a text is no value of the type.
void set_options(std::vector<LossOption>& declared, const std::vector<std::string>& options);

}  // namespace tandem::torch_plugin
