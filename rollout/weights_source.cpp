#include "rollout/weights_source.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace tandem::rollout {

using weights_sync::Upstream;

Status WeightsSource::follow(const wire::Directory& directory) {
  if (!relay_) return {};
  const auto* const entry = directory.find(*relay_);
  if (entry == nullptr || (address_ && *address_ == entry->address)) return {};
  auto line = TRY(connect_(entry->address));
  if (asks_relay() || !line_) feed_.change_sender();
  refused_before_ = refused_messages();
  line_ = std::move(line);
  address_ = entry->address;
  return {};
}

void WeightsSource::add_sockets(std::vector<wire::Socket*>& sockets) {
  if (line_) sockets.push_back(&*line_);
}

void WeightsSource::know(uint64_t version) {
  if (line_) step(Upstream::Known{version});
}

void WeightsSource::on_trainer(const wire::Incoming& message) { take(message, !asks_relay()); }

void WeightsSource::receive() {
  for (int i = 0; line_ && i < 16; ++i) {
    const auto message = line_->receive();
    if (!message) return;
    const bool is_asked = asks_relay();
    take(*message, is_asked);
    if (is_asked) step(Upstream::Heard{.is_receiving = feed_.receiving()});
  }
}

void WeightsSource::take(const wire::Incoming& message, bool is_asked) {
  const auto body = message.body();
  if (body.isWeightsManifest()) {
    const auto manifest = body.getWeightsManifest();
    know(manifest.getNewest());
    if (is_asked) heard_of_ = manifest.getNewest();
    // Without bytes it says only what there is.
    if (is_asked && manifest.getBytes() > 0) feed_.on_manifest(manifest);
  }
  if (body.isChunk() && is_asked) feed_.on_chunk(message);
}

void WeightsSource::tick(wire::Socket& trainer) {
  if (!line_) {
    (void)feed_.tick(trainer);
    return;
  }
  step(turn());
  const bool is_relay = asks_relay();
  if (feed_.tick(is_relay ? *line_ : trainer) && is_relay) step(Upstream::Asked{});
}

void WeightsSource::step(const Upstream::Event& event) {
  const auto before = upstream_.source();
  const auto now = upstream_.step(event, clock_.now());
  if (now == before) return;
  if (now == Upstream::Source::kTrainer)
    spdlog::warn("weights are asked for from the trainer, and not from {}: {}", to_string(*relay_), upstream_.why());
  else
    spdlog::info("weights are asked for from {} again", to_string(*relay_));
  feed_.change_sender();
}

Upstream::Turn WeightsSource::turn() const {
  return {.held = feed_.newest(),
          .is_receiving = feed_.receiving(),
          .is_busy = feed_.preparing(),
          .refused_in_a_row = feed_.refused_in_a_row(),
          .refused_versions = feed_.refused_versions()};
}

}  // namespace tandem::rollout
