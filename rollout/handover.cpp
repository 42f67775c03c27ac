#include "rollout/handover.h"

#include "envs/episodes/call_messages.h"
#include "rollout/books/lease.h"

namespace tandem::rollout {

namespace {

void write_said(const Said& said, wire::Said::Builder out) {
  out.setText(said.text);
  out.setReasoning(said.reasoning);
  envs::write_calls(said.calls, out.initCalls(static_cast<unsigned>(said.calls.size())));
}

Result<Said> read_said(wire::Said::Reader in) {
  auto calls = TRY(envs::read_calls(in.getCalls()));
  return Said{.text = in.getText(), .reasoning = in.getReasoning(), .calls = std::move(calls)};
}

}  // namespace

void write_handover(const Handover& handover, wire::Outgoing& message) {
  auto out = message.body().initHandover();
  write_lease(handover.lease, out.initLease());
  write_trajectory(handover.trajectory, out.initTrajectory(), message);
  out.setEnvLease(handover.sandbox.value_or(0));
  out.setEnvServer(static_cast<uint32_t>(handover.server));
  out.setTools(dump_json(handover.opening.tools));
  auto messages = out.initOpeningMessages(static_cast<unsigned>(handover.opening.messages.size()));
  for (size_t i = 0; i < handover.opening.messages.size(); ++i) {
    messages[static_cast<unsigned>(i)].setRole(handover.opening.messages[i].role);
    messages[static_cast<unsigned>(i)].setContent(handover.opening.messages[i].content);
  }
  out.setInstruction(handover.instruction);
  out.setSummarising(handover.is_summarising);
  write_said(handover.said, out.initSaid());
  out.setSampling(handover.is_sampling);
  out.setTurns(handover.turns);
  out.setMaxTurns(handover.max_turns);
  out.setToolCalls(handover.tool_calls);
  out.setRetokenisedTurns(handover.retokenised_turns);
  out.setSteals(handover.steals);
  out.setPromptTokens(handover.prompt_tokens);
  out.setPastTrunk(handover.is_past_trunk);
  out.setInheritedTokens(handover.inherited_tokens);
  out.setInheritedCalls(handover.inherited_calls);
}

Result<Handover> read_handover(const wire::Incoming& message) {
  const auto in = message.body().getHandover();
  Handover handover;
  handover.trajectory = TRY(read_trajectory(in.getTrajectory(), message));
  handover.lease = read_lease(in.getLease());
  if (in.getEnvLease() != 0) handover.sandbox = in.getEnvLease();
  handover.server = static_cast<int>(in.getEnvServer());
  for (const auto message : in.getOpeningMessages())
    handover.opening.messages.push_back({message.getRole(), message.getContent()});
  handover.opening.tools = TRY(envs::read_tools(std::string(in.getTools())));
  handover.instruction = in.getInstruction();
  handover.is_summarising = in.getSummarising();
  handover.said = TRY(read_said(in.getSaid()));
  handover.is_sampling = in.getSampling();
  if (handover.is_sampling && (!handover.sandbox || handover.trajectory.tokens.empty()))
    return fail(Status::corrupt("a turn of an episode that has not begun was handed over"));
  handover.turns = in.getTurns();
  handover.max_turns = in.getMaxTurns();
  handover.tool_calls = in.getToolCalls();
  handover.retokenised_turns = in.getRetokenisedTurns();
  handover.prompt_tokens = in.getPromptTokens();
  handover.steals = in.getSteals();
  handover.is_past_trunk = in.getPastTrunk();
  handover.inherited_tokens = in.getInheritedTokens();
  handover.inherited_calls = in.getInheritedCalls();
  return handover;
}

}  // namespace tandem::rollout
