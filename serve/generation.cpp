#include "serve/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/unique_number.h"

namespace tandem::serve {
namespace {

constexpr FieldRow kSampling[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Name of a model of /v1/models."},
    {"temperature", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":100})",
     "0 takes the likeliest token. Default 1."},
    {"top_p", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":1})",
     "Share of probability that is sampled from. Default 1."},
    {"top_k", Effect::kTakes, R"({"type":"integer","minimum":-1,"maximum":1000000})",
     "The likeliest tokens that are sampled from; 0 or -1: all."},
    {"min_p", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":1})",
     "Least probability relative to the likeliest token. Default 0."},
    {"n", Effect::kTakes, R"({"type":"integer","minimum":1,"maximum":128})", "Answers to each prompt. Default 1."},
    {"seed", Effect::kTakes, R"({"type":"integer"})",
     "The same seed, prompt and model give the same tokens; answer i draws with seed + i."},
    {"stop", Effect::kTakes, R"({"type":["string","array"],"maxItems":64,"maxLength":10000})",
     "Texts that end the answer; they are no part of it."},
    {"stop_token_ids", Effect::kTakes, R"({"type":"array","maxItems":1024})", "Tokens that end the answer."},
    {"include_stop_str_in_output", Effect::kTakes, R"({"type":"boolean"})", "What ended the answer is part of it."},
    {"ignore_eos", Effect::kTakes, R"({"type":"boolean"})", "The model's end tokens end nothing."},
    {"min_tokens", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":1000000})",
     "End tokens cannot be drawn before."},
    {"skip_special_tokens", Effect::kTakes, R"({"type":"boolean"})",
     "Special tokens are no part of the text. Default true."},
    {"logit_bias", Effect::kTakes, R"({"type":"object"})",
     "By token id, a number from -100 to 100 that is added to its logit; unknown tokens are passed over."},
    {"presence_penalty", Effect::kTakes, R"({"type":"number","minimum":-2,"maximum":2})",
     "Taken off the logits of tokens that the answer has said."},
    {"frequency_penalty", Effect::kTakes, R"({"type":"number","minimum":-2,"maximum":2})",
     "Taken off for each time that the answer has said the token."},
    {"prompt_logprobs", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":20})",
     "Logprobs of the prompt's tokens, and of so many likeliest ones beside each."},
    {"return_token_ids", Effect::kTakes, R"({"type":"boolean"})", "Adds prompt_token_ids and token_ids."},
    {"priority", Effect::kTakes, R"({"type":"integer","minimum":-2147483648,"maximum":2147483647})",
     "vLLM's: lower goes first. Below 0 is autocomplete, 0 interactive, up to 9 agent, from 10 on batch."},
    {"stream", Effect::kTakes, R"({"type":"boolean"})", "The answer comes in server-sent events."},
    {"stream_options", Effect::kTakes, R"({"type":"object"})",
     "include_usage: a last chunk with the usage; continuous_usage_stats: usage in every chunk."},
    {"user", Effect::kIgnored, R"({"type":"string"})", ""},
    {"request_id", Effect::kIgnored, R"({"type":"string"})", ""},
    {"cache_salt", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":1024})",
     "What was computed of the prompt is shared with requests of the same salt alone. Changes no token."},
    {"repetition_penalty", Effect::kRefused, R"({"enum":[1,1.0]})", "Use frequency_penalty."},
    {"length_penalty", Effect::kRefused, R"({"enum":[1,1.0]})", ""},
    {"use_beam_search", Effect::kRefused, R"({"enum":[false]})", ""},
    {"bad_words", Effect::kRefused, R"({"type":"array","maxItems":0})", "Use logit_bias."},
    {"allowed_token_ids", Effect::kRefused, R"({"type":"array","maxItems":0})", "Use logit_bias."},
    {"truncate_prompt_tokens", Effect::kRefused, R"({"enum":[-1]})", ""},
    {"structured_outputs", Effect::kRefused, R"({"enum":[]})", "Use response_format."},
    {"guided_json", Effect::kRefused, R"({"enum":[]})", "Use response_format."},
    {"guided_regex", Effect::kRefused, R"({"enum":[]})", "Use response_format."},
    {"guided_choice", Effect::kRefused, R"({"enum":[]})", "Use response_format."},
    {"guided_grammar", Effect::kRefused, R"({"enum":[]})", "Use response_format."},
};

Result<std::vector<std::string>> read_stops(Fields& fields) {
  std::vector<std::string> stops;
  const Json* const stop = fields.get("stop");
  if (stop == nullptr) return stops;
  if (stop->is_string()) stops.push_back(stop->get<std::string>());
  if (stop->is_array()) {
    for (const Json& one : *stop) {
      if (!one.is_string()) return fail(fields.wrong("stop", "\"stop\" must be a text or a list of texts"));
      stops.push_back(one.get<std::string>());
    }
  }
  std::erase(stops, "");  // it would end every answer before it begins
  return stops;
}

Status read_biases(Fields& fields, const ModelView& model, Generation& generation) {
  const Json* const biases = fields.get("logit_bias");
  if (biases == nullptr) return {};
  constexpr size_t kMostBiases = 4096;
  if (biases->size() > kMostBiases)
    return fields.wrong("logit_bias", fmt::format("\"logit_bias\" has more than {} tokens", kMostBiases));
  for (const auto& [key, value] : biases->items()) {
    const bool digits =
        !key.empty() && key.size() < 10 && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) continue;  // OpenAI's clients send names of no token, and expect that nothing comes of it
    if (!value.is_number() || value.get<double>() < -100 || value.get<double>() > 100) {
      return fields.wrong("logit_bias",
                          fmt::format("\"logit_bias\" of token {} must be a number from -100 to 100", key));
    }
    const int token = std::stoi(key);
    if (token < model.config.vocabulary) generation.turn.bias.push_back({token, value.get<float>()});
  }
  // "1" and "01" are one token.
  auto& bias = generation.turn.bias;
  std::ranges::stable_sort(bias, {}, &model::TokenBias::token);
  const auto same = [](const model::TokenBias& a, const model::TokenBias& b) { return a.token == b.token; };
  bias.erase(std::unique(bias.begin(), bias.end(), same), bias.end());
  return {};
}

}  // namespace

std::span<const FieldRow> sampling_fields() { return kSampling; }

Result<std::vector<int32_t>> read_tokens(Fields& fields, std::string_view param, const Json& tokens,
                                         const ModelView& model) {
  std::vector<int32_t> ids;
  ids.reserve(tokens.size());
  for (const Json& token : tokens) {
    const bool known =
        token.is_number_integer() && token.get<int64_t>() >= 0 && token.get<int64_t>() < model.config.vocabulary;
    if (!known) {
      return fail(fields.wrong(
          param, fmt::format("\"{}\" has {} at place {}, which is no token of {}: 0 to {}", param,
                             dump_json(token).substr(0, 40), ids.size(), model.name, model.config.vocabulary - 1)));
    }
    ids.push_back(token.get<int32_t>());
  }
  return ids;
}

Result<std::vector<int32_t>> encode(Fields& fields, std::string_view param, const std::string& text,
                                    const ModelView& model, bool add_special) {
  if (!model.text.tokenizer) {
    return fail(fields.wrong(param, fmt::format("{} has no tokenizer.json: send tokens in place of text", model.name)));
  }
  auto ids = model.text.tokenizer->encode(text, add_special ? model::AddSpecial::kYes : model::AddSpecial::kNo);
  if (!ids) return fail(fields.wrong(param, std::move(ids).error()));
  return std::move(*ids);
}

Status read_sampling(Fields& fields, const ModelView& model, std::string_view max_tokens, int otherwise,
                     Generation& generation) {
  auto& turn = generation.turn;
  turn.sampling = {.temperature = static_cast<float>(fields.number("temperature", 1)),
                   .top_k = std::max(0, fields.integer("top_k", 0)),
                   .top_p = static_cast<float>(fields.number("top_p", 1)),
                   .min_p = static_cast<float>(fields.number("min_p", 0))};
  if (turn.sampling.top_p == 0) turn.sampling = {.temperature = 0};  // OpenAI allows it: the likeliest token
  if (const Status status = kernels::check(turn.sampling); !status.ok()) return fields.wrong("min_p", status);
  generation.n = fields.integer("n", 1);
  if (const Json* const seed = fields.get("seed")) {
    turn.seed = seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>());
  } else {
    turn.seed = unique_number();
  }
  turn.max_new_tokens = fields.integer(max_tokens, otherwise);
  turn.min_new_tokens = fields.integer("min_tokens", 0);
  turn.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", 0));
  turn.presence_penalty = static_cast<float>(fields.number("presence_penalty", 0));
  if (const Json* const ids = fields.get("stop_token_ids"))
    turn.stop_tokens = TRY(read_tokens(fields, "stop_token_ids", *ids, model));
  if (!fields.boolean("ignore_eos", false)) {
    turn.stop_tokens.insert(turn.stop_tokens.end(), model.config.eos_tokens.begin(), model.config.eos_tokens.end());
  }
  if (fields.has("prompt_logprobs")) {
    turn.prompt_logprobs = true;
    turn.prompt_top_logprobs = fields.integer("prompt_logprobs", 0);
  }
  if (fields.has("prompt_logprobs") && fields.boolean("stream", false))
    return fields.wrong("prompt_logprobs", "\"prompt_logprobs\" and \"stream\" do not go together");
  TRY(read_biases(fields, model, generation));
  generation.choice->stops = TRY(read_stops(fields));
  if (!generation.choice->stops.empty() && !model.text.tokenizer)
    return fields.wrong("stop", fmt::format("{} has no tokenizer.json, so \"stop\" finds no text", model.name));
  generation.choice->include_stop = fields.boolean("include_stop_str_in_output", false);
  generation.choice->skip_special = fields.boolean("skip_special_tokens", true);
  turn.cache_salt = fields.text("cache_salt");
  if (fields.has("priority")) generation.priority = priority_of_number(fields.integer("priority", 0));
  return {};
}

Status fit_answer(Fields& fields, std::string_view param, const ModelView& model, Generation& generation) {
  size_t longest = 0;
  for (const auto& prompt : generation.prompts) {
    if (prompt.empty()) return fields.wrong(param, fmt::format("\"{}\" has no tokens", param));
    longest = std::max(longest, prompt.size());
  }
  if (longest >= static_cast<size_t>(model.max_tokens)) {
    return fields.wrong(param, fmt::format("the prompt has {} tokens, and {} takes {} together with the answer",
                                           longest, model.name, model.max_tokens));
  }
  const int room = model.max_tokens - static_cast<int>(longest);
  int& wanted = generation.turn.max_new_tokens;
  if (wanted < 0 || wanted > room) wanted = room;
  generation.choice->most_tokens = wanted;
  return {};
}

}  // namespace tandem::serve
