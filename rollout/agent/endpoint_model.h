// Runs an agent's turns on external servers with OpenAI's /v1/chat/completions.
//
// Answers are streamed where the server does, whole otherwise; options that a server does not know are left out from
// then on. When it is tried again, and where, is decided by wire/attempts.h. The key goes to the servers and nowhere
// else: it is taken out of their words, too.
#pragma once

#include <set>

#include "base/clock.h"
#include "envs/episodes/profile.h"
#include "rollout/agent/agent_model.h"
#include "rollout/agent/chat_answer.h"
#include "rollout/agent/endpoint_names.h"
#include "wire/attempts.h"
#include "wire/completions_url.h"
#include "wire/http_client.h"

namespace tandem::rollout {

struct EndpointSettings {
  std::vector<std::string> urls;  // in the order in which they are asked; see completions_url
  std::string model;              // its name at the servers
  std::string key;                // empty: none is sent
  std::optional<double> temperature;
  std::optional<uint64_t> seed;
  std::optional<int> max_tokens;                        // of a turn
  std::vector<std::string> tools = envs::tool_names();  // that are offered
  std::vector<envs::ForeignTool> foreign_tools;         // beside them
  std::string system = std::string(envs::kSystemMessage);
  envs::Compaction compaction;  // by the token counts of the servers, which know nothing of what follows their answers
  Duration request_limit = std::chrono::seconds(600);
  wire::AttemptSettings attempts;  // `servers` is set from the URLs
  // Called before each request to urls[server], those that are tried again included; returns once it may be sent, or
  // false where `stop` was asked for. Empty: at once.
  std::function<bool(size_t server, const std::stop_token& stop)> wait_for_turn = {};
};

using wire::completions_url;

class EndpointModel final : public AgentModel {
 public:
  // kInvalid for URLs that are none. `clock` outlives the model.
  static Result<std::unique_ptr<EndpointModel>> create(EndpointSettings settings, const envs::Task& task,
                                                       const Clock& clock);

  std::string name() const override { return settings_.model; }
  const std::vector<envs::Message>& opening() const override { return opening_; }
  const Json& tools() const override { return tools_; }
  // Fails with the last trouble once all servers have been tried.
  Result<AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                         const std::stop_token& stop) override;

 private:
  EndpointModel(EndpointSettings settings, const Clock& clock);
  std::string request() const;
  // The next message of the model, after messages_; asked for as often as the attempts allow.
  Result<ChatAnswer> next_answer(const TurnListener& listener, const std::stop_token& stop);
  // Has the conversation summed up, into turn.summary, and begins it anew; turn.cut_by says why there is no summary.
  Status compact(AgentTurn& turn, const TurnListener& listener, const std::stop_token& stop);
  // Waits until `at`; false where `stop` was asked for.
  bool wait_until(Time at, const std::stop_token& stop) const;
  Result<ChatAnswer> ask(size_t server, const TurnListener& listener, const std::stop_token& stop,
                         wire::AttemptFailed& failure);
  Status refused(const wire::HttpHead& head, const std::string& body, wire::AttemptFailed& failure) const;
  bool leave_out_what_is_refused(const std::string& words);
  // Fields of the server's own messages that it does not take back.
  bool forget_fields(const std::string& words);
  std::string without_key(std::string text) const;
  AgentTurn read(const ChatAnswer& answer, AgentTurn turn);

  EndpointSettings settings_;
  const Clock& clock_;
  wire::Attempts attempts_;
  std::vector<envs::Message> opening_;
  Json tools_ = Json::array(), messages_ = Json::array();
  EndpointNames names_;                // of the tools at the servers
  Json sent_tools_ = Json::array();    // tools_ by those
  std::vector<std::string> call_ids_;  // that the next replies answer
  int turns_ = 0;
  uint32_t compactions_ = 0;
  std::optional<uint64_t> tokens_;  // of the conversation, as the last answer told
  bool streams_ = true, asks_for_use_ = true, parallel_ = true, old_limit_ = true;
  std::set<std::string> refused_fields_;  // of its own messages
  bool gave_calls_ = false, calls_in_text_ = false;
};

}  // namespace tandem::rollout
