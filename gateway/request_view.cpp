#include "gateway/request_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "gateway/prefix_map.h"

namespace tandem::gateway {
namespace {

constexpr double kBytesPerToken = 4;
constexpr double kMostAnswer = 1e6;

void add_value(PrefixChain& chain, const Json& value) {
  if (!value.is_array() || value.size() == 0 || value[0].is_number()) {
    chain.add(value.is_string() ? value.get<std::string>() : value.dump());
    return;
  }
  for (const Json& item : value) chain.add(item.dump());
}

Result<std::string> text_of(const Json& body, std::string_view key) {
  if (!body.contains(key) || body[key].is_null()) return std::string();
  if (!body[key].is_string()) return fail(Status::invalid(fmt::format("\"{}\" must be a string", key)));
  return body[key].get<std::string>();
}

}  // namespace

Result<RequestView> view_of(std::string_view text, std::string_view salt) {
  RequestView view;
  view.body = TRY(parse_json(text));
  const Json& body = view.body;
  if (!body.is_object()) return fail(Status::invalid("the body must be a JSON object"));
  view.model = TRY(text_of(body, "model"));
  for (const auto key : {"prompt_cache_key", "safety_identifier", "user"}) {
    if (view.session.empty() && body.contains(key) && body[key].is_string())
      view.session = body[key].get<std::string>();
  }
  view.stream = body.contains("stream") && body["stream"].is_boolean() && body["stream"].get<bool>();
  if (std::string previous = TRY(text_of(body, "previous_response_id")); !previous.empty())
    view.previous = std::move(previous);
  PrefixChain chain(fmt::format("{}\n{}", salt, view.model));
  for (const auto key : {"tools", "system", "instructions", "messages", "input", "prompt", "token_ids"}) {
    if (body.contains(key) && !body[key].is_null()) add_value(chain, body[key]);
  }
  view.prefix = chain.take();
  view.tokens = static_cast<double>(text.size()) / kBytesPerToken;
  for (const auto key : {"max_completion_tokens", "max_tokens", "max_output_tokens"}) {
    if (!body.contains(key) || !body[key].is_number()) continue;
    view.tokens += std::clamp(body[key].get<double>(), 0.0, kMostAnswer);
    break;
  }
  return view;
}

}  // namespace tandem::gateway
