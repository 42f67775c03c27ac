#include "run/memory.h"

#include <algorithm>
#include <optional>

#include "model/forward.h"
#include "model/routes.h"
#include "model/weights.h"
#include "rollout/engine/engine.h"
#include "run/devices.h"
#include "run/run_step.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/tape.h"

namespace tandem::run {

Result<Json> memory_of(const RunConfig& config, const model::ModelConfig& model) {
  const auto format = TRY(model::weight_format_named(config.model.weights));
  const auto optimizer = TRY(optimizer_of(config));
  const auto algorithm = TRY(algorithm_of(config));
  std::optional<model::ModelConfig> teacher;
  if (!algorithm.teacher.path.empty()) teacher = TRY(model::read_config(TRY(model_to_check(algorithm.teacher.path))));
  using Kind = kernels::Device::Kind;
  const Kind kind = TRY(devices_of(config)).trainer.kind;
  const bool on_device = kind == Kind::kCuda || kind == Kind::kEmulated;
  const auto learner =
      TRY(trainer::Learner::memory_of(model, format, optimizer, trainer::any_part(algorithm, trainer::needs_reference),
                                      config.trainer.ranks, teacher ? &*teacher : nullptr, on_device));
  const auto rollout = TRY(model::Weights::memory_of(model, false, format));
  const bool sleeps = config.rollout.sleep_while_training;
  const rollout::EngineSettings engine{.slots = config.rollout.slots, .max_tokens = config.rollout.max_tokens};
  const size_t routes = config.trainer.replay_routes
                            ? rollout::RoutePages::bytes_of(model::route_shape(model), rollout::pages_of(engine))
                            : 0;
  // A sample is never cut, so a pass of one alone may be longer. Segments of a conversation that was summed up are one.
  const auto profile = TRY(profile_of(config));
  const int segments = profile.compaction.at > 0 ? 1 + profile.compaction.most : 1;
  const size_t rows = std::max(static_cast<size_t>(optimizer.max_pass_tokens),
                               static_cast<size_t>(segments) * static_cast<size_t>(config.rollout.max_tokens));
  const auto pass_of = [&](const model::ModelConfig& passed) -> Result<size_t> {
    return TRY(trainer::Tape::row_bytes_of(passed)) * rows;
  };
  const size_t pass = TRY(pass_of(model)), teacher_pass = teacher ? TRY(pass_of(*teacher)) : 0;
  const auto& weights = learner.weights;
  Json memory{{config.trainer.ranks > 1 ? "trainer (each rank)" : "trainer",
               {{"masters and gradients", learner.masters_and_gradients},
                {"moments", learner.optimizer},
                {on_device ? "gradients of slots, on the device" : "gradients of slots", learner.slots},
                {"weights and panels", weights.all()},
                {"weights of the step before", learner.previous},
                {"reference model", learner.reference},
                {"teacher", learner.teacher + teacher_pass},
                {"published version", weights.wire > 0 ? weights.wire : weights.flat},
                {sleeps ? "activations of one pass, while a step trains" : "activations of one pass, at most", pass}}},
              {"rollout (each)",
               {{"weights, live", rollout.all() - rollout.returned},
                {"weights, coming", rollout.all()},
                {sleeps ? "keys and values, but while a step trains" : "keys and values",
                 model::KvPool::page_bytes_of(model, format) * static_cast<size_t>(rollout::pages_of(engine))},
                {"routes of their positions", routes}}}};
  if (config.run.relays > 0) {
    const size_t version = rollout.wire > 0 ? rollout.wire : rollout.flat;
    memory["relay (each)"] = {{"version that comes", version},
                              {"versions that are offered", 2 * version},
                              {"versions that are fetched slowly, at most", 2 * version},
                              {"deltas, at most", config.trainer.weight_deltas ? version : 0}};
  }
  return memory;
}

MemoryNeed memory_need_here(const Json& memory, const Topology& topology) {
  const auto of_role = [&](std::string_view name) {
    uint64_t bytes = 0;
    for (const auto& [role, parts] : memory.items()) {
      if (!role.starts_with(name)) continue;
      for (const auto& [what, part] : parts.items()) bytes += part.get<uint64_t>();
    }
    return bytes;
  };
  MemoryNeed need;
  for (const Place& place : topology.places) {
    const bool is_here = place.host == kLocalHost && place.device.starts_with("cpu");
    if (!is_here) continue;
    const uint64_t bytes = of_role(to_string(place.peer.role));
    need.all += bytes;
    need.largest = std::max(need.largest, bytes);
  }
  return need;
}

std::string memory_warning_of(const MemoryNeed& need, const MemoryRoom& room, uint64_t address_space) {
  const auto words = memory_warning(need.all, need.largest, room, address_space);
  if (words.empty()) return words;
  return "not enough memory for the plan: " + words +
         "; lower rollout.slots, rollout.max_tokens, rollout.workers or trainer.max_pass_tokens, or give it more";
}

}  // namespace tandem::run
