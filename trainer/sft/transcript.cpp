#include "trainer/sft/transcript.h"

#include <fmt/format.h>

#include <limits>

#include "base/segments.h"
#include "base/text.h"

namespace tandem::trainer {

bool Chat::is_learned() const {
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i]["role"] == "assistant" && !muted[i]) return true;
  return false;
}

Result<Transcript> read_transcript(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("is not a JSON object"));
  if (json.contains("messages")) return Transcript(TRY(read_chat(json)));
  if (json.contains("schema_version") || json.contains("steps")) return Transcript(TRY(read_atif(json)));
  if (json.contains("tokens")) return Transcript(TRY(read_episode(json)));
  Status status = Status::invalid("has neither messages (OpenAI's format), nor steps (ATIF), nor tokens (an episode)");
  if (json.contains("conversations"))
    return fail(
        std::move(status).hint("turn \"conversations\" of from and value into \"messages\" of role and content"));
  if (json.contains("prompt") || json.contains("text"))
    return fail(std::move(status).hint("write what was asked and answered as messages of role and content"));
  return fail(std::move(status));
}

Result<Episode> read_episode(const Json& json) {
  const auto list = [&](const char* key) -> const Json* {
    const auto found = json.find(key);
    return found != json.end() && found->is_array() ? &*found : nullptr;
  };
  const Json *tokens = list("tokens"), *sampled = list("sampled");
  if (tokens == nullptr || sampled == nullptr)
    return fail(Status::invalid("tokens and sampled are not two lists; write episodes with --tokens"));
  if (tokens->size() != sampled->size()) {
    return fail(Status::invalid(
        fmt::format("tokens has {} entries and sampled {}; they must be as many", tokens->size(), sampled->size())));
  }
  Episode episode;
  for (size_t i = 0; i < tokens->size(); ++i) {
    const Json &token = (*tokens)[i], &said = (*sampled)[i];
    if (!token.is_number_integer() || token.get<double>() < 0 ||
        token.get<double>() > std::numeric_limits<int32_t>::max())
      return fail(Status::invalid(fmt::format("tokens[{}] is {}, not a token id", i, dump_json(token))));
    if (!(said.is_number_integer() && (said == 0 || said == 1)))
      return fail(Status::invalid(fmt::format("sampled[{}] is {}, not 0 or 1", i, dump_json(said))));
    episode.tokens.push_back(token.get<int32_t>());
    episode.sampled.push_back(said == 1);
  }
  if (const auto* later = list("later_segments")) {
    for (const Json& begin : *later)
      episode.later_segments.push_back(begin.is_number_unsigned() ? begin.get<uint32_t>() : 0);
    if (!are_parts(episode.later_segments, episode.tokens.size()))
      return fail(Status::invalid("later_segments is not a list of ascending places in tokens"));
  }
  if (const auto reward = json.find("reward"); reward != json.end() && !reward->is_null()) {
    if (!reward->is_number()) return fail(Status::invalid("reward is not a number"));
    episode.reward = reward->get<double>();
  }
  if (const auto split = json.find("split"); split != json.end() && split->is_string())
    episode.split = split->get<std::string>();
  return episode;
}

}  // namespace tandem::trainer
