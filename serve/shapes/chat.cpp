// OpenAI's /v1/chat/completions.
#include <fmt/format.h>

#include "serve/endpoints.h"
#include "serve/shapes/conversation.h"

namespace tandem::serve {
namespace {

constexpr FieldRow kChatFields[] = {
    {"messages", Effect::kTakes, R"({"type":"array","minItems":1})", "The conversation, in OpenAI's format."},
    {"tools", Effect::kTakes, R"({"type":"array","maxItems":1024})", "Functions that the model may call."},
    {"tool_choice", Effect::kTakes, R"({"type":["string","object"]})",
     "\"auto\", \"none\", \"required\", or one function."},
    {"parallel_tool_calls", Effect::kTakes, R"({"type":"boolean"})", "False: at most one call in an answer."},
    {"response_format", Effect::kTakes, R"({"type":"object"})",
     "text, json_object, or json_schema: the answer is valid by construction."},
    {"max_completion_tokens", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":2147483647})",
     "Most tokens of the answer. Default: all that there is room for."},
    {"max_tokens", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":2147483647})",
     "The older name of max_completion_tokens."},
    {"logprobs", Effect::kTakes, R"({"type":"boolean"})", "Logprobs of the answer's tokens."},
    {"top_logprobs", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":20})",
     "The likeliest tokens beside each. Needs logprobs."},
    {"include_reasoning", Effect::kTakes, R"({"type":"boolean"})",
     "Default true: reasoning stands beside the content."},
    {"add_generation_prompt", Effect::kTakes, R"({"type":"boolean"})", "Default true."},
    {"continue_final_message", Effect::kTakes, R"({"type":"boolean"})", "The answer goes on with the last message."},
    {"chat_template_kwargs", Effect::kTakes, R"({"type":"object"})", "Variables of the template."},
    {"reasoning_effort", Effect::kTakes, R"({"type":"string"})", "A variable of the template, where it reads one."},
    {"documents", Effect::kTakes, R"({"type":"array"})", "A variable of the template."},
    {"prediction", Effect::kTakes, R"({"type":"object"})",
     "A text that much of the answer will be, such as the file that is edited: tokens come sooner, and are the same."},
    {"echo", Effect::kRefused, R"({"enum":[false]})", "Use /v1/completions."},
    {"chat_template", Effect::kRefused, R"({"enum":[]})", "The template is the model's."},
    {"thinking_token_budget", Effect::kRefused, R"({"enum":[]})", ""},
    {"functions", Effect::kIgnored, R"({"type":"array"})", "The older form of tools; use tools."},
    {"function_call", Effect::kIgnored, R"({"type":["string","object"]})", "Use tool_choice."},
    {"audio", Effect::kIgnored, R"({"type":"object"})", ""},
    {"modalities", Effect::kIgnored, R"({"type":"array"})", "Answers are text."},
    {"metadata", Effect::kIgnored, R"({"type":"object"})", ""},
    {"store", Effect::kIgnored, R"({"type":"boolean"})", "Nothing is stored."},
    {"service_tier", Effect::kIgnored, R"({"type":"string"})", ""},
    {"verbosity", Effect::kIgnored, R"({"type":"string"})", ""},
    {"web_search_options", Effect::kIgnored, R"({"type":"object"})", ""},
    {"safety_identifier", Effect::kIgnored, R"({"type":"string"})", ""},
    {"prompt_cache_key", Effect::kIgnored, R"({"type":"string"})", ""},
    {"prompt_cache_retention", Effect::kIgnored, R"({"type":"string"})", ""},
    {"prompt_cache_options", Effect::kIgnored, R"({"type":"object"})", ""},
    {"moderation", Effect::kIgnored, R"({})", ""},
};

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const unsigned char byte : text) bytes.push_back(int{byte});
  return bytes;
}

class ChatShape final : public Shape {
 public:
  struct Options {
    std::string id, model;
    int64_t created = 0;
    bool logprobs = false, token_ids = false, reasoning = true, prompt_logprobs = false;
    bool include_usage = false, continuous_usage = false;
    const model::Tokenizer* tokenizer = nullptr;
  };
  explicit ChatShape(Options options) : options_(std::move(options)) {}

  Json whole(const AnswerView& view) const override {
    Json choices = Json::array();
    for (size_t i = 0; i < view.choices.size(); ++i) {
      const Choice& choice = view.choices[i];
      const bool calls = !choice.calls().empty();
      Json message = {{"role", "assistant"},
                      {"content", calls && choice.text().empty() ? Json() : Json(choice.text())},
                      {"refusal", nullptr}};
      if (options_.reasoning && !choice.reasoning().empty()) {
        message["reasoning"] = choice.reasoning();
        message["reasoning_content"] = choice.reasoning();
      }
      for (const auto& call : choice.calls()) {
        message["tool_calls"].push_back({{"id", call.id},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      Json answer = {{"index", i},
                     {"message", std::move(message)},
                     {"logprobs", options_.logprobs ? logprobs(choice, 0, choice.tokens().size()) : Json()},
                     {"finish_reason", name_of(choice.finish())},
                     {"stop_reason", choice.stop_reason()}};
      if (options_.token_ids) answer["token_ids"] = ids_of(choice, 0, choice.tokens().size());
      choices.push_back(std::move(answer));
    }
    Json body = {{"id", options_.id},
                 {"object", "chat.completion"},
                 {"created", options_.created},
                 {"model", options_.model},
                 {"choices", std::move(choices)},
                 {"usage", json_of(view.usage())},
                 {"system_fingerprint", nullptr}};
    if (options_.token_ids) body["prompt_token_ids"] = view.prompts[0];
    if (options_.prompt_logprobs)
      body["prompt_logprobs"] = prompt_logprobs_of(options_.tokenizer, view.prompts[0], view.choices[0]);
    return body;
  }

  void begin(const AnswerView& view, EventWriter& out) override {
    for (size_t i = 0; i < view.choices.size(); ++i) {
      Json chunk = chunk_of(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
      if (options_.token_ids && i == 0) chunk["prompt_token_ids"] = view.prompts[0];
      send(view, std::move(chunk), out);
    }
  }

  void piece(const AnswerView& view, size_t index, const Piece& piece, EventWriter& out) override {
    const Choice& choice = view.choices[index];
    Json delta = Json::object();
    if (!piece.text.empty()) delta["content"] = piece.text;
    if (options_.reasoning && !piece.reasoning.empty()) {
      delta["reasoning"] = piece.reasoning;
      delta["reasoning_content"] = piece.reasoning;
    }
    for (const auto& call : piece.calls) {
      Json part = {{"index", call.index}};
      if (!call.id.empty()) {
        part["id"] = call.id;
        part["type"] = "function";
        part["function"] = {{"name", call.name}, {"arguments", call.arguments}};
      } else {
        part["function"] = {{"arguments", call.arguments}};
      }
      delta["tool_calls"].push_back(std::move(part));
    }
    const bool tokens = piece.tokens > 0 && (options_.logprobs || options_.token_ids);
    if (!delta.empty() || tokens) {
      Json chunk = chunk_of(index, std::move(delta), nullptr,
                            options_.logprobs ? logprobs(choice, piece.first_token, piece.tokens) : Json());
      if (options_.token_ids) chunk["choices"][0]["token_ids"] = ids_of(choice, piece.first_token, piece.tokens);
      send(view, std::move(chunk), out);
    }
    if (piece.finish) {
      Json chunk = chunk_of(index, Json::object(), name_of(*piece.finish), nullptr);
      chunk["choices"][0]["stop_reason"] = choice.stop_reason();
      send(view, std::move(chunk), out);
    }
  }

  void end(const AnswerView& view, EventWriter& out) override {
    if (options_.include_usage) {
      Json chunk = chunk_of(0, Json::object(), nullptr, nullptr);
      chunk["choices"] = Json::array();
      chunk["usage"] = json_of(view.usage());
      out.add(chunk);
    }
    out.end();
  }

 private:
  Json chunk_of(size_t index, Json delta, Json finish, Json logprobs) const {
    return {{"id", options_.id},
            {"object", "chat.completion.chunk"},
            {"created", options_.created},
            {"model", options_.model},
            {"system_fingerprint", nullptr},
            {"choices", Json::array({{{"index", index},
                                      {"delta", std::move(delta)},
                                      {"logprobs", std::move(logprobs)},
                                      {"finish_reason", std::move(finish)}}})}};
  }
  void send(const AnswerView& view, Json chunk, EventWriter& out) const {
    if (options_.continuous_usage)
      chunk["usage"] = json_of(view.usage());
    else if (options_.include_usage)
      chunk["usage"] = nullptr;
    out.add(chunk);
  }
  Json entry(int32_t token, float logprob) const {
    const std::string text = token_text(options_.tokenizer, token);
    return {{"token", text}, {"logprob", json_of_logprob(logprob)}, {"bytes", bytes_of(text)}};
  }
  Json logprobs(const Choice& choice, size_t first, size_t count) const {
    Json content = Json::array();
    for (size_t i = first; i < first + count; ++i) {
      const auto& token = choice.tokens()[i];
      Json one = entry(token.token, token.logprob);
      one["top_logprobs"] = Json::array();
      for (const auto& [other, logprob] : token.top) one["top_logprobs"].push_back(entry(other, logprob));
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }

  const Options options_;
};

// The messages as templates read them: texts for lists of text parts, "system" for "developer".
Result<Json> read_messages(Fields& fields) {
  Json messages = *fields.get("messages");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (!message.is_object()) return fail(fields.wrong("messages", place + " is no object"));
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string() ||
        std::ranges::find(kRoles, role->get<std::string_view>()) == std::end(kRoles)) {
      return fail(fields.wrong("messages", fmt::format("{}.role must be one of {}", place, fmt::join(kRoles, ", "))));
    }
    if (*role == Json("developer")) *role = "system";
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) {
      message["content"] = "";
    } else if (content->is_array()) {
      std::string text;
      for (const Json& part : *content) {
        const std::string type = part.is_object() ? part.value("type", std::string()) : std::string();
        const bool is_text = type == "text" && part.contains("text") && part["text"].is_string();
        if (!is_text) {
          return fail(fields.wrong(
              "messages",
              fmt::format("{}.content has a part of type \"{}\"; only text can be read", place, type.substr(0, 40))));
        }
        text += part["text"].get<std::string>();
      }
      *content = text;
    } else if (!content->is_string()) {
      return fail(fields.wrong("messages", place + ".content must be a text, a list of text parts, or null"));
    }
    // Templates want arguments as an object; clients send the text of one.
    const auto calls = message.find("tool_calls");
    if (calls != message.end() && calls->is_null()) {
      message.erase("tool_calls");
    } else if (calls != message.end()) {
      if (!calls->is_array()) return fail(fields.wrong("messages", place + ".tool_calls must be a list"));
      for (Json& call : *calls) {
        if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
            !call["function"].contains("name") || !call["function"]["name"].is_string()) {
          return fail(fields.wrong("messages", place + ".tool_calls has a call without function.name"));
        }
        Json& function = call["function"];
        if (!function.contains("arguments")) function["arguments"] = Json::object();
        if (!function["arguments"].is_string()) continue;
        auto arguments = parse_json(function["arguments"].get<std::string>());
        if (arguments && arguments->is_object()) function["arguments"] = std::move(*arguments);
      }
    }
  }
  return messages;
}

Status read_tools(Fields& fields) {
  const Json* const tools = fields.get("tools");
  if (tools == nullptr) return {};
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const bool is_function = tool.is_object() && tool.value("type", std::string()) == "function" &&
                             tool.contains("function") && tool["function"].is_object() &&
                             tool["function"].contains("name") && tool["function"]["name"].is_string();
    if (!is_function) {
      return fields.wrong("tools", fmt::format("tools[{}] must be {{\"type\": \"function\", \"function\": {{\"name\": "
                                               "..}}}}",
                                               i));
    }
  }
  return {};
}

// {"type": "content", "content": a text, or a list of text parts}. Sooner or later, the same tokens.
Status read_prediction(Fields& fields, const ModelView& model, Generation& generation) {
  static constexpr std::string_view kParam = "prediction";
  const Json* const prediction = fields.get(kParam);
  if (prediction == nullptr) return {};
  const auto wrong = [&] {
    return fields.wrong(kParam,
                        "\"prediction\" must be {\"type\": \"content\", \"content\": a text or a list of parts of "
                        "type text}");
  };
  const auto content = prediction->find("content");
  if (prediction->value("type", Json()) != Json("content") || content == prediction->end()) return wrong();
  std::string text;
  if (content->is_string()) text = content->get<std::string>();
  if (!content->is_string() && !content->is_array()) return wrong();
  for (const Json& part : content->is_array() ? *content : Json::array()) {
    if (!part.is_object() || part.value("type", Json()) != Json("text") || !part.contains("text") ||
        !part["text"].is_string())
      return wrong();
    text += part["text"].get<std::string>();
  }
  // What the model has no room to say is no prediction, and takes time to look up.
  constexpr size_t kMostBytesOfToken = 16;
  const size_t most = static_cast<size_t>(model.max_tokens) * kMostBytesOfToken;
  if (text.size() > most)
    return fields.wrong(kParam,
                        fmt::format("\"prediction\" has {} bytes, and there may be {}: a sequence has at most {} "
                                    "tokens",
                                    text.size(), most, model.max_tokens));
  generation.turn.prediction = TRY(encode(fields, kParam, text, model, false));
  generation.choice->predicted_tokens = static_cast<int>(generation.turn.prediction.size());
  return {};
}

Result<Prepared> prepare_chat(Fields& fields, const ModelView& model, const std::string& id, int64_t created) {
  Prepared prepared;
  Generation& generation = prepared.generation;
  const auto limit = fields.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  TRY(read_sampling(fields, model, limit, -1, generation));
  Conversation conversation;
  conversation.messages = TRY(read_messages(fields));
  TRY(read_tools(fields));
  const Json* const choice = fields.get("tool_choice");
  if (choice != nullptr && choice->is_string() && *choice != Json("none") && *choice != Json("auto") &&
      *choice != Json("required")) {
    return fail(
        fields.wrong("tool_choice", "\"tool_choice\" must be \"auto\", \"none\", \"required\" or one function"));
  }
  const Json* const tools = fields.get("tools");
  if (tools != nullptr && !(choice != nullptr && *choice == Json("none"))) conversation.tools = *tools;
  if (choice != nullptr && *choice != Json("none") && *choice != Json("auto")) conversation.tool_choice = *choice;
  if (const Json* const format = fields.get("response_format")) conversation.response_format = *format;
  conversation.one_call = !fields.boolean("parallel_tool_calls", true);
  conversation.continues = fields.boolean("continue_final_message", false);
  if (conversation.continues && fields.boolean("add_generation_prompt", false)) {
    return fail(fields.wrong("continue_final_message",
                             "\"continue_final_message\" and \"add_generation_prompt\" do not go together"));
  }
  conversation.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  if (const Json* const variables = fields.get("chat_template_kwargs")) conversation.variables = *variables;
  if (fields.has("reasoning_effort")) conversation.variables["reasoning_effort"] = fields.text("reasoning_effort");
  if (const Json* const documents = fields.get("documents")) conversation.variables["documents"] = *documents;
  TRY(apply_conversation(fields, model, conversation, generation));
  TRY(fit_answer(fields, "messages", model, generation));
  TRY(read_prediction(fields, model, generation));

  const bool logprobs = fields.boolean("logprobs", false);
  if (fields.integer("top_logprobs", 0) > 0 && !logprobs)
    return fail(fields.wrong("top_logprobs", "\"top_logprobs\" needs \"logprobs\": true"));
  generation.turn.top_logprobs = fields.integer("top_logprobs", 0);
  prepared.stream = fields.boolean("stream", false);
  const Json* const stream_options = fields.get("stream_options");
  const auto option = [&](std::string_view name) {
    return stream_options != nullptr && stream_options->contains(name) &&
           (*stream_options)[std::string(name)] == Json(true);
  };
  prepared.shape =
      std::make_unique<ChatShape>(ChatShape::Options{.id = "chatcmpl-" + id,
                                                     .model = model.name,
                                                     .created = created,
                                                     .logprobs = logprobs,
                                                     .token_ids = fields.boolean("return_token_ids", false),
                                                     .reasoning = fields.boolean("include_reasoning", true),
                                                     .prompt_logprobs = fields.has("prompt_logprobs"),
                                                     .include_usage = option("include_usage"),
                                                     .continuous_usage = option("continuous_usage_stats"),
                                                     .tokenizer = model.text.tokenizer_or_null()});
  return prepared;
}

}  // namespace

Endpoint chat_endpoint() {
  return {"/v1/chat/completions",
          "An answer to a conversation",
          {sampling_fields(), kChatFields},
          {"model", "messages"},
          prepare_chat};
}

}  // namespace tandem::serve
