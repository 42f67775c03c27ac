#include "rollout/handover.h"

#include "rollout/books/lease.h"

namespace tandem::rollout {

void write_handover(const Handover& handover, wire::Outgoing& message) {
  auto out = message.body().initHandover();
  write_lease(handover.lease, out.initLease());
  write_trajectory(handover.trajectory, out.initTrajectory(), message);
  out.setEnvLease(handover.sandbox.value_or(0));
  out.setEnvServer(static_cast<uint32_t>(handover.server));
  out.setSaid(handover.said);
  out.setTurns(handover.turns);
  out.setMaxTurns(handover.max_turns);
  out.setToolCalls(handover.tool_calls);
  out.setSteals(handover.steals);
  out.setPromptTokens(handover.prompt_tokens);
}

Result<Handover> read_handover(const wire::Incoming& message) {
  const auto in = message.body().getHandover();
  Handover handover;
  handover.trajectory = TRY(read_trajectory(in.getTrajectory(), message));
  handover.lease = read_lease(in.getLease());
  if (in.getEnvLease() != 0) handover.sandbox = in.getEnvLease();
  handover.server = static_cast<int>(in.getEnvServer());
  handover.said = in.getSaid();
  handover.turns = in.getTurns();
  handover.max_turns = in.getMaxTurns();
  handover.tool_calls = in.getToolCalls();
  handover.prompt_tokens = in.getPromptTokens();
  handover.steals = in.getSteals();
  return handover;
}

}  // namespace tandem::rollout
