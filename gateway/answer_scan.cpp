#include "gateway/answer_scan.h"

namespace tandem::gateway {
namespace {

uint64_t count_at(const Json& object, std::string_view key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer()) return 0;
  const auto value = object[key].get<int64_t>();
  return value < 0 ? 0 : static_cast<uint64_t>(value);
}

const Json* member(const Json& object, std::string_view key) {
  return object.is_object() && object.contains(key) ? &object[key] : nullptr;
}

}  // namespace

void AnswerScan::feed(std::string_view bytes) {
  if (!readable_) return;
  const auto events = decoder_.feed(bytes);
  if (!events) {
    readable_ = false;
    return;
  }
  for (const auto& event : *events) read_event(event);
}

void AnswerScan::read_event(const wire::StreamEvent& event) {
  if (event.data == "[DONE]") return;
  if (!notes_.counted) ++notes_.answer_tokens;
  // Most events have neither: their texts are not read.
  const bool says_usage = event.data.find("\"usage\"") != std::string::npos;
  const bool may_have_id = notes_.response_id.empty() && event.type.starts_with("response.");
  if (!says_usage && !may_have_id) return;
  const auto body = parse_json(event.data);
  if (!body) return;
  for (const auto key : {"response", "message"}) {
    if (const Json* inner = member(*body, key); inner != nullptr && inner->is_object()) read(*inner);
  }
  read(*body);
}

void AnswerScan::read(const Json& body) {
  if (const Json* object = member(body, "object"); object != nullptr && *object == Json("response")) {
    if (const Json* id = member(body, "id"); id != nullptr && id->is_string())
      notes_.response_id = id->get<std::string>();
  }
  const Json* const usage = member(body, "usage");
  if (usage == nullptr || !usage->is_object()) return;
  const auto largest = [&](uint64_t& into, std::initializer_list<const char*> keys) {
    for (const char* key : keys) into = std::max(into, count_at(*usage, key));
  };
  // Streams of Anthropic's API say the prompt at the beginning and the answer at the end.
  if (!notes_.counted) notes_.answer_tokens = 0;
  notes_.counted = true;
  largest(notes_.prompt_tokens, {"prompt_tokens", "input_tokens"});
  largest(notes_.answer_tokens, {"completion_tokens", "output_tokens"});
  largest(notes_.cached_tokens, {"cache_read_input_tokens"});
  for (const auto key : {"prompt_tokens_details", "input_tokens_details"}) {
    if (const Json* details = member(*usage, key))
      notes_.cached_tokens = std::max(notes_.cached_tokens, count_at(*details, "cached_tokens"));
  }
}

}  // namespace tandem::gateway
