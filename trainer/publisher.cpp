#include "trainer/publisher.h"

#include <spdlog/spdlog.h>

#include "base/json_file.h"
#include "weights_sync/audit.h"

namespace tandem::trainer {

namespace {

constexpr int kAuditFormat = 1;

}  // namespace

Publisher::Publisher(PublisherSettings settings, const Learner& learner, const Clock& clock)
    : settings_(std::move(settings)),
      learner_(learner),
      clock_(clock),
      history_(weights_sync::Blocks::of(learner.weights()), std::string(model::to_string(learner.weights().format())),
               settings_.history),
      threads_(settings_.threads) {}

std::shared_ptr<const weights_sync::Offer> Publisher::publish() {
  const auto version = static_cast<uint64_t>(learner_.steps());
  auto offer = history_.add(version, learner_.weights().wire(), threads_);
  if (settings_.audit_every > 0 && version % static_cast<uint64_t>(settings_.audit_every) == 0)
    audited_ = audit(version, *offer->find(version, version));
  return offer;
}

// The bytes that rollouts are sent, against the weights that they are to be.
Status Publisher::audit(uint64_t version, const weights_sync::Object& published) {
  const Time start = clock_.now();
  const auto found = TRY(weights_sync::audit(learner_.weights(), history_.blocks().parts(), published.bytes, threads_));
  for (const auto& line : found.bad()) spdlog::error("version {} is published wrong: {}", version, line);
  audit_ = to_json(found, version, false);
  audit_["seconds"] = to_seconds(clock_.now() - start);
  if (const Status written = write_file(settings_.run_dir / "weights_audit.json",
                                        with_format(to_json(found, version, true), kAuditFormat).dump(2) + "\n");
      !written)
    spdlog::warn("{}", written.to_string());
  return {};
}

}  // namespace tandem::trainer
