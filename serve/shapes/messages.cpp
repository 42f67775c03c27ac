// Anthropic's /v1/messages and its count_tokens, over the same conversation as OpenAI's chat.
#include <fmt/format.h>

#include "serve/endpoints.h"
#include "serve/lookups.h"
#include "serve/shapes/conversation.h"

namespace tandem::serve {
namespace {

constexpr FieldRow kConversationFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Name of a model of /v1/models."},
    {"messages", Effect::kTakes, R"({"type":"array","minItems":1})", "The conversation, in Anthropic's format."},
    {"system", Effect::kTakes, R"({"type":["string","array"]})", "A text, or text blocks."},
    {"tools", Effect::kTakes, R"({"type":"array","maxItems":1024})", "Tools, each with name and input_schema."},
    {"tool_choice", Effect::kTakes, R"({"type":"object"})", "auto, any, tool or none; disable_parallel_tool_use."},
    {"thinking", Effect::kIgnored, R"({"type":"object"})", "What a model thinks is told where its template has it."},
    {"cache_control", Effect::kIgnored, R"({"type":"object"})", "Prefixes are always kept."},
};
constexpr FieldRow kMessageFields[] = {
    {"max_tokens", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":2147483647})",
     "Most tokens of the answer."},
    {"temperature", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":100})", "Default 1."},
    {"top_p", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":1})", "Default 1."},
    {"top_k", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":1000000})", "Default: all."},
    {"stop_sequences", Effect::kTakes, R"({"type":"array","maxItems":64})", "Texts that end the answer."},
    {"stream", Effect::kTakes, R"({"type":"boolean"})", "The answer comes in server-sent events."},
    {"metadata", Effect::kIgnored, R"({"type":"object"})", ""},
    {"service_tier", Effect::kIgnored, R"({"type":"string"})", ""},
    {"inference_geo", Effect::kIgnored, R"({"type":"string"})", ""},
    {"container", Effect::kRefused, R"({"enum":[]})", ""},
    {"output_config", Effect::kRefused, R"({"type":"object","enum":[{}]})", ""},
};

// The text of a block list, or of a text.
Result<std::string> text_of(Fields& fields, std::string_view param, const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array())
    return fail(fields.wrong(param, fmt::format("\"{}\" must be a text or a list of blocks", param)));
  for (const Json& block : content) {
    const bool is_text = block.is_object() && block.value("type", std::string()) == "text" && block.contains("text") &&
                         block["text"].is_string();
    if (!is_text) {
      return fail(fields.wrong(
          param,
          fmt::format("\"{}\" has a block of type {}; only text can be read", param,
                      block.is_object() ? dump_json(block.value("type", Json())).substr(0, 40) : block.type_name())));
    }
    text += block["text"].get<std::string>();
  }
  return text;
}

// One message of Anthropic's as those of OpenAI's: results of tools are messages of their own.
Status put_message(Fields& fields, const Json& message, std::string_view place, Json& out) {
  if (!message.is_object()) return fields.wrong("messages", fmt::format("{} is no object", place));
  const std::string role = message.value("role", std::string());
  if (role != "user" && role != "assistant" && role != "system")
    return fields.wrong("messages", fmt::format("{}.role must be \"user\" or \"assistant\"", place));
  if (!message.contains("content")) return fields.wrong("messages", fmt::format("{}.content is missing", place));
  const Json& content = message["content"];
  if (content.is_string()) {
    out.push_back({{"role", role}, {"content", content}});
    return {};
  }
  if (!content.is_array()) return fields.wrong("messages", fmt::format("{}.content must be a text or a list", place));
  std::string text;
  Json calls = Json::array();
  for (const Json& block : content) {
    const std::string type = block.is_object() ? block.value("type", std::string()) : std::string();
    if (type == "text" && block.contains("text") && block["text"].is_string()) {
      text += block["text"].get<std::string>();
    } else if (type == "tool_use" && role == "assistant" && block.contains("name") && block["name"].is_string()) {
      calls.push_back({{"id", block.value("id", Json(""))},
                       {"type", "function"},
                       {"function", {{"name", block["name"]}, {"arguments", block.value("input", Json::object())}}}});
    } else if (type == "tool_result" && role == "user") {
      const Json result = block.value("content", Json(""));
      auto content = TRY(text_of(fields, "messages", result));
      out.push_back(
          {{"role", "tool"}, {"tool_call_id", block.value("tool_use_id", Json(""))}, {"content", std::move(content)}});
    } else if (type != "thinking" && type != "redacted_thinking") {
      return fields.wrong(
          "messages", fmt::format("{}.content has a block of type \"{}\"; text, tool_use and tool_result can be read",
                                  place, type.substr(0, 40)));
    }
  }
  if (calls.empty() && text.empty() && role == "user") return {};  // results of tools alone
  Json whole = {{"role", role}, {"content", text}};
  if (!calls.empty()) whole["tool_calls"] = std::move(calls);
  out.push_back(std::move(whole));
  return {};
}

Result<Conversation> read_conversation(Fields& fields) {
  Conversation conversation;
  if (const Json* const system = fields.get("system")) {
    auto content = TRY(text_of(fields, "system", *system));
    conversation.messages.push_back({{"role", "system"}, {"content", std::move(content)}});
  }
  const Json& messages = *fields.get("messages");
  for (size_t i = 0; i < messages.size(); ++i)
    TRY(put_message(fields, messages[i], fmt::format("messages[{}]", i), conversation.messages));
  // An answer that the client has begun.
  conversation.continues = messages[messages.size() - 1].value("role", std::string()) == "assistant";
  if (const Json* const tools = fields.get("tools")) {
    for (const Json& tool : *tools) {
      if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string() || !tool.contains("input_schema"))
        return fail(fields.wrong("tools", "each of \"tools\" needs a name and an input_schema"));
      conversation.tools.push_back({{"type", "function"},
                                    {"function",
                                     {{"name", tool["name"]},
                                      {"description", tool.value("description", Json(""))},
                                      {"parameters", tool["input_schema"]}}}});
    }
  }
  if (const Json* const choice = fields.get("tool_choice")) {
    const std::string type = choice->value("type", std::string());
    conversation.one_call = choice->value("disable_parallel_tool_use", Json(false)) == Json(true);
    if (type == "none") {
      conversation.tools = Json::array();
    } else if (type == "any") {
      conversation.tool_choice = "required";
    } else if (type == "tool" && choice->contains("name")) {
      conversation.tool_choice = {{"type", "function"}, {"function", {{"name", (*choice)["name"]}}}};
    } else if (type != "auto") {
      return fail(fields.wrong("tool_choice", "\"tool_choice\".type must be auto, any, tool (with name) or none"));
    }
  }
  return conversation;
}

std::string_view stop_reason_of(const Choice& choice) {
  if (choice.finish() == Finish::kToolCalls) return "tool_use";
  if (choice.finish() == Finish::kLength) return "max_tokens";
  return choice.stop_reason().is_string() ? "stop_sequence" : "end_turn";
}

class MessageShape final : public Shape {
 public:
  MessageShape(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

  Json whole(const AnswerView& view) const override {
    const Choice& choice = view.choices[0];
    Json content = Json::array();
    if (!choice.reasoning().empty())
      content.push_back({{"type", "thinking"}, {"thinking", choice.reasoning()}, {"signature", ""}});
    if (!choice.text().empty()) content.push_back({{"type", "text"}, {"text", choice.text()}});
    for (const auto& call : choice.calls()) {
      auto input = parse_json(call.arguments);
      const bool whole = input && input->is_object();
      content.push_back({{"type", "tool_use"},
                         {"id", call.id},
                         {"name", call.name},
                         {"input", whole ? std::move(*input) : Json::object()}});
    }
    Json message = opening(view);
    message["content"] = std::move(content);
    message["stop_reason"] = stop_reason_of(choice);
    if (choice.stop_reason().is_string()) message["stop_sequence"] = choice.stop_reason();
    message["usage"]["output_tokens"] = view.usage().completion_tokens;
    return message;
  }

  void begin(const AnswerView& view, EventWriter& out) override {
    out.add("message_start", {{"type", "message_start"}, {"message", opening(view)}});
    out.add("ping", {{"type", "ping"}});
  }

  void piece(const AnswerView&, size_t, const Piece& piece, EventWriter& out) override {
    if (!piece.reasoning.empty()) {
      open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
      delta({{"type", "thinking_delta"}, {"thinking", piece.reasoning}}, out);
    }
    if (!piece.text.empty()) {
      open("text", {{"type", "text"}, {"text", ""}}, out);
      delta({{"type", "text_delta"}, {"text", piece.text}}, out);
    }
    for (const auto& call : piece.calls) {
      if (!call.id.empty()) {
        close(out);
        open("tool_use", {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}}, out);
      }
      if (!call.arguments.empty()) delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}}, out);
    }
  }

  void end(const AnswerView& view, EventWriter& out) override {
    close(out);
    const Choice& choice = view.choices[0];
    out.add("message_delta", {{"type", "message_delta"},
                              {"delta",
                               {{"stop_reason", stop_reason_of(choice)},
                                {"stop_sequence", choice.stop_reason().is_string() ? choice.stop_reason() : Json()}}},
                              {"usage", {{"output_tokens", view.usage().completion_tokens}}}});
    out.add("message_stop", {{"type", "message_stop"}});
  }

  void error(const Json& body, EventWriter& out) override { out.add("error", body); }

 private:
  Json opening(const AnswerView& view) const {
    const Usage usage = view.usage();
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage",
             {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
              {"cache_read_input_tokens", usage.cached_tokens},
              {"cache_creation_input_tokens", 0},
              {"output_tokens", 0}}}};
  }
  // One block at a time is open.
  void open(std::string_view kind, Json block, EventWriter& out) {
    if (open_ == kind) return;
    close(out);
    open_ = kind;
    out.add("content_block_start",
            {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }
  void close(EventWriter& out) {
    if (open_.empty()) return;
    out.add("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
    open_.clear();
  }
  void delta(Json part, EventWriter& out) const {
    out.add("content_block_delta", {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(part)}});
  }

  const std::string id_, model_;
  std::string open_;
  int index_ = 0;
};

Result<Prepared> prepare_message(Fields& fields, const ModelView& model, const std::string& id, int64_t) {
  Prepared prepared;
  Generation& generation = prepared.generation;
  TRY(read_sampling(fields, model, "max_tokens", -1, generation));
  if (const Json* const stops = fields.get("stop_sequences")) {
    for (const Json& stop : *stops) {
      if (!stop.is_string()) return fail(fields.wrong("stop_sequences", "\"stop_sequences\" must be a list of texts"));
      if (!stop.get_ref<const std::string&>().empty()) generation.choice->stops.push_back(stop.get<std::string>());
    }
  }
  TRY(apply_conversation(fields, model, TRY(read_conversation(fields)), generation));
  TRY(fit_answer(fields, "messages", model, generation));
  prepared.stream = fields.boolean("stream", false);
  prepared.shape = std::make_unique<MessageShape>("msg_" + id, model.name);
  return prepared;
}

Result<Json> count_tokens(Fields& fields, const ModelView& model) {
  Generation generation;
  TRY(apply_conversation(fields, model, TRY(read_conversation(fields)), generation));
  return Json{{"input_tokens", generation.prompts[0].size()}};
}

}  // namespace

Endpoint messages_endpoint() {
  return {"/v1/messages",
          "Anthropic's Messages",
          {kConversationFields, kMessageFields},
          {"model", "messages", "max_tokens"},
          prepare_message};
}

Lookup count_tokens_lookup() {
  return {"/v1/messages/count_tokens",
          "Tokens of a conversation",
          {kConversationFields},
          {"model", "messages"},
          count_tokens};
}

}  // namespace tandem::serve
