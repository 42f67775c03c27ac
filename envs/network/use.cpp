#include "envs/network/use.h"

#include <fmt/format.h>

namespace tandem::envs {

std::string to_string(const NetworkUse& use) {
  const auto request = use.method.empty()     ? "a request"
                       : !use.package.empty() ? fmt::format("{} {}", use.method, use.package)
                                              : fmt::format("{} {}:{}", use.method, use.host, use.port);
  if (!use.refused.empty()) return fmt::format("{} refused: {}", request, use.refused);
  if (!use.broken.empty()) return fmt::format("{} failed: {}", request, use.broken);
  const auto cut = use.cut.empty() ? "" : ", cut: " + use.cut;
  return fmt::format("{}, {} bytes out, {} in, {:.1f} s{}", request, use.sent, use.received, use.seconds, cut);
}

}  // namespace tandem::envs
