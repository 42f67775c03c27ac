#include "serve/continuation.h"

#include <algorithm>

namespace tandem::serve {

Status check_continuable(const Generation& generation) {
  const auto& turn = generation.turn;
  // The engine follows a grammar and counts penalties from the first token of a turn.
  if (turn.constraint) return Status::unfit("the answer follows a grammar (response_format or tool_choice)");
  if (turn.frequency_penalty != 0 || turn.presence_penalty != 0) return Status::unfit("the request has penalties");
  if (generation.choice->routes) return Status::unfit("the experts of each token are wanted, of one version");
  if (turn.prompt_logprobs) return Status::unfit("the logprobs of the prompt are wanted, of one version");
  return {};
}

RestOfTurn rest_of(std::span<const int32_t> prompt, const rollout::TurnRequest& turn,
                   std::span<const rollout::SampledToken> said) {
  RestOfTurn rest{.prompt = {prompt.begin(), prompt.end()}, .request = turn};
  if (said.empty()) return rest;
  const int count = static_cast<int>(said.size());
  rest.prompt.reserve(prompt.size() + said.size());
  for (const auto& token : said) rest.prompt.push_back(token.token);
  rest.request.max_new_tokens -= count;
  rest.request.min_new_tokens = std::max(0, turn.min_new_tokens - count);
  // Its places are those behind the first token of a turn. It changes no token.
  rest.request.prediction.clear();
  return rest;
}

}  // namespace tandem::serve
