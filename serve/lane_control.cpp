// Pauses, sleep and waking of a served model, and what adapters it takes.
#include <fmt/format.h>

#include "serve/lane.h"

namespace tandem::serve {

void Lane::hold() { act(admission_.step(Hold{paused_ || asleep_}, clock_.now())); }

void Lane::pause(PauseMode mode) {
  paused_ = true;
  hold();
  engine_->hold(mode == PauseMode::kKeep);  // of a wait after a keep, running answers go on to their end
  if (mode == PauseMode::kAbort) end_all(503, "the server was paused");
}

void Lane::resume() {
  paused_ = false;
  engine_->hold(false);
  hold();
}

bool Lane::sleep() {
  if (admission_.running() > 0) return false;
  asleep_ = true;
  hold();
  engine_->put(nullptr);
  rewards_.put(nullptr);
  return true;
}

Result<Lane::Awake> Lane::load_awake() const {
  auto weights =
      std::make_shared<model::Weights>(TRY(model::load_weights(settings_.directory, false, settings_.format)));
  TRY(settings_.place.ready(*weights));
  auto rewards = TRY(load_rewards(settings_.directory, settings_.reward_reader, weights, settings_.place));
  return Awake{TRY(engine_of(settings_, weights, max_tokens_)), std::move(rewards)};
}

void Lane::wake(Awake awake) {
  engine_->put(std::make_unique<rollout::Engine>(std::move(awake.engine)));
  rewards_.put(std::move(awake.rewards));
  asleep_ = false;
  hold();
}

Result<std::shared_ptr<const model::LiveAdapter>> Lane::prepare(const model::Adapter& adapter) const {
  if (settings_.place.device.kind != kernels::Device::Kind::kCpu) {
    return tl::unexpected(Status::unfit(fmt::format("{} computes with no adapters beside the weights",
                                                    kernels::to_string(settings_.place.device)))
                              .hint("merge it into a model of its own (tandem import --adapter), or serve on the CPU"));
  }
  // A thread of its own: those of the engine are sampling.
  const model::Place place{.device = settings_.place.device, .threads = 1};
  auto stream = TRY(place.host_stream());
  return model::LiveAdapter::create(stream, adapter, TRY(model::parameter_layout(config_)), settings_.format);
}

bool Lane::takes(const model::LiveAdapter& adapter) const {
  const auto layout = model::parameter_layout(config_);
  return layout && adapter.fits(*layout, settings_.format);
}

}  // namespace tandem::serve
