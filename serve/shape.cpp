#include "serve/shape.h"

#include <cmath>

namespace tandem::serve {

Usage usage_of(std::span<const std::vector<int32_t>> prompts, std::span<const Choice> choices) {
  Usage usage;
  for (const auto& prompt : prompts) usage.prompt_tokens += static_cast<int>(prompt.size());
  const size_t n = prompts.empty() ? 1 : std::max<size_t>(1, choices.size() / prompts.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i % n == 0) usage.cached_tokens += choices[i].cached_tokens();
    usage.completion_tokens += static_cast<int>(choices[i].tokens().size());
    usage.reasoning_tokens += choices[i].reasoning_tokens();
    usage.accepted_prediction_tokens += choices[i].accepted_prediction();
    usage.rejected_prediction_tokens += choices[i].rejected_prediction();
  }
  return usage;
}

Json json_of(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens},
            {"accepted_prediction_tokens", usage.accepted_prediction_tokens},
            {"rejected_prediction_tokens", usage.rejected_prediction_tokens}}}};
}

void Shape::error(const Json& body, EventWriter& out) {
  out.add(body);
  out.end();
}

std::string token_text(const model::Tokenizer* tokenizer, int32_t token) {
  if (tokenizer == nullptr) return "token_id:" + std::to_string(token);
  return std::string(tokenizer->bytes_of(token));
}

Json ids_of(const Choice& choice, size_t first, size_t count) {
  Json all = Json::array();
  for (size_t i = first; i < first + count; ++i) all.push_back(choice.tokens()[i].token);
  return all;
}

Json json_of_logprob(float logprob) { return std::isfinite(logprob) ? Json(logprob) : Json(-9999.0); }

Json prompt_logprobs_of(const model::Tokenizer* tokenizer, std::span<const int32_t> prompt, const Choice& choice) {
  Json all = Json::array();
  all.push_back(nullptr);
  for (size_t at = 1; at < prompt.size() && at <= choice.prompt().size(); ++at) {
    const auto& [logprob, top] = choice.prompt()[at - 1];
    Json here = Json::object();
    const auto put = [&](int32_t token, float value, const Json& rank) {
      here[std::to_string(token)] = {
          {"logprob", json_of_logprob(value)}, {"rank", rank}, {"decoded_token", token_text(tokenizer, token)}};
    };
    put(prompt[at], logprob, nullptr);
    for (size_t i = 0; i < top.size(); ++i) put(top[i].token, top[i].logprob, i + 1);
    all.push_back(std::move(here));
  }
  return all;
}

}  // namespace tandem::serve
