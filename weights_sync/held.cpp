#include "weights_sync/held.h"

#include <fmt/format.h>

#include <cstring>

namespace tandem::weights_sync {

void Held::hold(uint64_t version, std::span<const std::byte> wire, kernels::ThreadPool& threads) {
  std::memcpy(bytes_.data(), wire.data(), bytes_.size());
  parts_ = blocks_.digests(bytes(), threads);
  holds_ = {.holds = true, .version = version, .digest = digest_of_parts(parts_)};
}

Result<Receiver> Held::begin(Manifest manifest) {
  const auto refuse = [&](const std::string& why) {
    return fail(Status::invalid(fmt::format("weights {}: {}", manifest.version, why)));
  };
  if (manifest.parts.size() != blocks_.parts().size())
    return refuse(fmt::format("{} parts, this model has {}", manifest.parts.size(), blocks_.parts().size()));
  if (manifest.whole()) {
    if (manifest.bytes != blocks_.bytes())
      return refuse(fmt::format("{} bytes, this model has {}", manifest.bytes, blocks_.bytes()));
    auto receiver = TRY(Receiver::begin(std::move(manifest), {bytes_.data(), bytes_.size()}, format_));
    let_go();
    return receiver;
  }
  if (!holds_.holds || manifest.base != holds_.version || manifest.base_digest != holds_.digest)
    return refuse(fmt::format("a delta on version {}, which is not held", manifest.base));
  if (manifest.version < manifest.base) return refuse(fmt::format("a delta on version {} after it", manifest.base));
  if (manifest.bytes >= blocks_.bytes())
    return refuse(fmt::format("a delta of {} bytes, all weights have {}", manifest.bytes, blocks_.bytes()));
  delta_.resize(manifest.bytes);
  return Receiver::begin(std::move(manifest), delta_, format_);
}

Status Held::complete(const Manifest& manifest, kernels::ThreadPool& threads) {
  if (!manifest.whole()) {
    // A delta of many megabytes is rare; its memory is not kept.
    const auto bytes = std::exchange(delta_, {});
    const Delta delta = TRY(Delta::read(blocks_, bytes));
    if (delta.base() != manifest.base || delta.version() != manifest.version)
      return Status::corrupt(fmt::format("weights {}: a delta from {} to {}, announced as one from {}",
                                         manifest.version, delta.base(), delta.version(), manifest.base));
    let_go();
    TRY(delta.apply(blocks_, {bytes_.data(), bytes_.size()}, threads));
  }
  parts_ = manifest.parts;
  holds_ = {.holds = true, .version = manifest.version, .digest = digest_of_parts(manifest.parts)};
  return {};
}

Status Held::check(kernels::ThreadPool& threads) {
  const Status status = blocks_.check(parts_, blocks_.digests(bytes(), threads));
  if (!status.ok()) let_go();
  return status;
}

}  // namespace tandem::weights_sync
