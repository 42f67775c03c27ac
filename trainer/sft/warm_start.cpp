#include "trainer/sft/warm_start.h"

#include <fmt/format.h>

#include "envs/tasks/workspace/kinds.h"
#include "trainer/sft/seeds.h"

namespace tandem::trainer {

Result<Sample> sample_of(const envs::Transcript& transcript, const rollout::Conversation& conversation,
                         int max_tokens) {
  Sample sample;
  const auto append = [&](const std::vector<int32_t>& tokens, bool trained) {
    sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
    sample.trained.resize(sample.tokens.size(), trained);
  };
  const auto opening = envs::opening(transcript.task, envs::prompted_tools(), {}, conversation.listing());
  append(TRY(conversation.prompt(opening)), false);
  size_t calls = 0;
  for (const auto& turn : transcript.turns) {
    const auto spoken = TRY(conversation.spoken(turn.calls, turn.answer, opening.tools, calls));
    append(spoken, true);
    calls += turn.calls.size();
    if (turn.outcomes.empty()) break;
    rollout::Reply reply;
    for (const auto& outcome : turn.outcomes) reply.results.push_back(outcome.output);
    const auto said = conversation.read(spoken, opening.tools);
    append(TRY(conversation.next_turn(spoken, said, reply, opening.tools)).tokens, false);
  }
  if (static_cast<int>(sample.tokens.size()) > max_tokens) {
    return fail(
        Status::exhausted(fmt::format("a demonstration of {} tokens, at most {}", sample.tokens.size(), max_tokens)));
  }
  return sample;
}

Result<std::vector<Sample>> demonstrations(const WarmStartSettings& settings, const rollout::Conversation& conversation,
                                           uint64_t first, int count, int max_tokens) {
  // Where so many in a row are too long, all are.
  constexpr uint64_t kMostTries = 200;
  std::vector<Sample> samples;
  uint64_t last = first;  // after the newest one that was taken
  for (uint64_t number = first; static_cast<int>(samples.size()) < count; ++number) {
    if (number - last >= kMostTries) {
      return fail(Status::invalid(
                      fmt::format("{} demonstrations in a row are longer than max_tokens={}", kMostTries, max_tokens))
                      .hint("set a higher max_tokens, or other kinds"));
    }
    const auto& kind = settings.kinds[number % settings.kinds.size()];
    const uint64_t seed = derive_seed(settings.seed, {kDemonstrationTaskStream, number});
    const envs::Task task = TRY(envs::make_task({.kind = kind, .split = envs::Split::kTrain, .seed = seed}));
    Random random(derive_seed(settings.seed, {kDemonstrationNoiseStream, number}));
    auto sample = sample_of(TRY(envs::demonstrate(task, random, settings.noise)), conversation, max_tokens);
    if (sample)
      samples.push_back(std::move(*sample)), last = number + 1;
    else if (sample.error().code() != Code::kExhausted)
      return fail(sample.error());
  }
  return samples;
}

}  // namespace tandem::trainer
