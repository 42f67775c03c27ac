// OpenAI's /v1/responses, over the same conversation as chat. A request brings all that came before, or goes on from an
// answer that is kept (serve/response_store.h).
#include <fmt/format.h>

#include <functional>

#include "serve/endpoints.h"
#include "serve/shapes/conversation.h"

namespace tandem::serve {
namespace {

constexpr FieldRow kResponseFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Name of a model of /v1/models."},
    {"input", Effect::kTakes, R"({"type":["string","array"],"minItems":1})",
     "A text, or items: messages, function calls and their outputs."},
    {"instructions", Effect::kTakes, R"({"type":"string"})", "A system message before the input."},
    {"max_output_tokens", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":2147483647})",
     "Most tokens of the answer. Default: all that there is room for."},
    {"temperature", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":100})", "Default 1."},
    {"top_p", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":1})", "Default 1."},
    {"tools", Effect::kTakes, R"({"type":"array","maxItems":1024})", "Functions that the model may call."},
    {"tool_choice", Effect::kTakes, R"({"type":["string","object"]})",
     "\"auto\", \"none\", \"required\", or one function."},
    {"parallel_tool_calls", Effect::kTakes, R"({"type":"boolean"})", "False: at most one call in an answer."},
    {"text", Effect::kTakes, R"({"type":"object"})", "format: text, json_object or json_schema."},
    {"stream", Effect::kTakes, R"({"type":"boolean"})", "The answer comes in server-sent events."},
    {"seed", Effect::kTakes, R"({"type":"integer"})", "As in chat."},
    {"previous_response_id", Effect::kTakes, R"({"type":"string","maxLength":200})",
     "An answer that the conversation goes on from; the server keeps the last ones in memory."},
    {"conversation", Effect::kRefused, R"({"enum":[]})", "Use previous_response_id."},
    {"background", Effect::kRefused, R"({"enum":[false]})", "Use stream."},
    {"prompt", Effect::kRefused, R"({"enum":[]})", "Send instructions and input."},
    {"truncation", Effect::kRefused, R"({"enum":["disabled"]})", "An input that is too long is an error."},
    {"store", Effect::kTakes, R"({"type":"boolean"})",
     "False: it cannot be gone on from. Default true; answers are kept in memory alone."},
    {"stream_options", Effect::kIgnored, R"({"type":"object"})", ""},
    {"reasoning", Effect::kIgnored, R"({"type":"object"})", "What a model thinks is told where its template has it."},
    {"include", Effect::kIgnored, R"({"type":"array"})", ""},
    {"metadata", Effect::kTakes, R"({"type":"object"})", "Comes back in the answer."},
    {"max_tool_calls", Effect::kIgnored, R"({"type":"integer"})", "Of tools that a server runs; there are none."},
    {"top_logprobs", Effect::kIgnored, R"({"type":"integer"})", "Use /v1/chat/completions."},
    {"service_tier", Effect::kIgnored, R"({"type":"string"})", ""},
    {"user", Effect::kIgnored, R"({"type":"string"})", ""},
    {"safety_identifier", Effect::kIgnored, R"({"type":"string"})", ""},
    {"prompt_cache_key", Effect::kIgnored, R"({"type":"string"})", ""},
    {"prompt_cache_retention", Effect::kIgnored, R"({"type":"string"})", ""},
};

Result<std::string> text_of_parts(Fields& fields, std::string_view place, const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array())
    return fail(fields.wrong("input", fmt::format("{} must be a text or a list of parts", place)));
  for (const Json& part : content) {
    const std::string type = part.is_object() ? part.value("type", std::string()) : std::string();
    const bool known = type == "input_text" || type == "output_text" || type == "text";
    if (!known || !part.contains("text") || !part["text"].is_string()) {
      return fail(fields.wrong(
          "input", fmt::format("{} has a part of type \"{}\"; only text can be read", place, type.substr(0, 40))));
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

Status put_item(Fields& fields, const Json& item, std::string_view place, Json& messages) {
  if (!item.is_object()) return fields.wrong("input", fmt::format("{} is no object", place));
  const std::string type =
      item.value("type", Json("message")).is_string() ? item.value("type", std::string("message")) : std::string();
  if (type == "reasoning") return {};
  if (type == "message") {
    std::string role = item.value("role", std::string());
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      return fields.wrong("input", fmt::format("{}.role must be user, assistant, system or developer", place));
    if (!item.contains("content")) return fields.wrong("input", fmt::format("{}.content is missing", place));
    auto content = TRY(text_of_parts(fields, place, item["content"]));
    messages.push_back({{"role", role}, {"content", std::move(content)}});
    return {};
  }
  if (type == "function_call" && item.contains("name") && item["name"].is_string()) {
    auto arguments = parse_json(item.value("arguments", std::string("{}")));
    Json call = {{"id", item.value("call_id", Json(""))},
                 {"type", "function"},
                 {"function",
                  {{"name", item["name"]},
                   {"arguments", arguments ? std::move(*arguments) : item.value("arguments", Json(""))}}}};
    // Calls of one answer are one message.
    if (!messages.empty() && messages.back()["role"] == Json("assistant"))
      messages.back()["tool_calls"].push_back(std::move(call));
    else
      messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({std::move(call)})}});
    return {};
  }
  if (type == "function_call_output" && item.contains("output")) {
    auto content = TRY(text_of_parts(fields, place, item["output"]));
    messages.push_back(
        {{"role", "tool"}, {"tool_call_id", item.value("call_id", Json(""))}, {"content", std::move(content)}});
    return {};
  }
  return fields.wrong(
      "input",
      fmt::format("{} is of type \"{}\"; message, function_call, function_call_output and reasoning can be read", place,
                  type.substr(0, 40)));
}

// The request's own items.
Json items_of(const Fields& fields) {
  const Json& input = *fields.get("input");
  if (!input.is_string()) return input;
  return Json::array({{{"type", "message"}, {"role", "user"}, {"content", input}}});
}

// Those of the answer that it goes on from, and of all before it.
Result<Json> earlier_items(Fields& fields, const ModelView& model) {
  if (!fields.has("previous_response_id")) return Json::array();
  const std::string id = fields.text("previous_response_id");
  const bool keeps = model.stored != nullptr && model.stored->keeps();
  auto items = keeps ? model.stored->items_until(id, model.key) : std::nullopt;
  if (items) return std::move(*items);
  return fail(fields.wrong("previous_response_id",
                           keeps ? fmt::format("there is no answer \"{}\" any more: send the whole input", id)
                                 : "this server keeps no answers (serve.stored_responses_mb): send the whole input"));
}

Result<Conversation> read_conversation_of_items(Fields& fields, const Json& earlier, const Json& items) {
  Conversation conversation;
  if (fields.has("instructions"))
    conversation.messages.push_back({{"role", "system"}, {"content", fields.text("instructions")}});
  for (size_t i = 0; i < earlier.size(); ++i)
    TRY(put_item(fields, earlier[i], fmt::format("earlier item {}", i), conversation.messages));
  for (size_t i = 0; i < items.size(); ++i)
    TRY(put_item(fields, items[i], fmt::format("input[{}]", i), conversation.messages));
  if (const Json* const tools = fields.get("tools")) {
    for (const Json& tool : *tools) {
      const bool is_function = tool.is_object() && tool.value("type", Json()) == Json("function") &&
                               tool.contains("name") && tool["name"].is_string();
      if (!is_function)
        return fail(fields.wrong("tools", "each of \"tools\" must be a function with a name; this server runs none"));
      Json function = {{"name", tool["name"]}};
      for (const char* key : {"description", "parameters", "strict"}) {
        if (tool.contains(key) && !tool[key].is_null()) function[key] = tool[key];
      }
      conversation.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (const Json* const choice = fields.get("tool_choice")) {
    if (*choice == Json("none")) {
      conversation.tools = Json::array();
    } else if (*choice == Json("required")) {
      conversation.tool_choice = *choice;
    } else if (choice->is_object() && choice->value("type", Json()) == Json("function") && choice->contains("name")) {
      conversation.tool_choice = {{"type", "function"}, {"function", {{"name", (*choice)["name"]}}}};
    } else if (*choice != Json("auto")) {
      return fail(fields.wrong("tool_choice", "\"tool_choice\" must be auto, none, required or one function"));
    }
  }
  if (const Json* const text = fields.get("text"); text != nullptr && text->contains("format")) {
    Json format = (*text)["format"];
    // Chat has the schema one level deeper.
    if (format.is_object() && format.value("type", Json()) == Json("json_schema"))
      format = {
          {"type", "json_schema"},
          {"json_schema", {{"name", format.value("name", Json(""))}, {"schema", format.value("schema", Json())}}}};
    conversation.response_format = std::move(format);
  }
  conversation.one_call = !fields.boolean("parallel_tool_calls", true);
  return conversation;
}

class ResponseShape final : public Shape {
 public:
  // `fixed`: what of the answer follows from the request.
  // `keep`: takes the answer once it is whole; may be empty.
  ResponseShape(std::string id, Json fixed, std::function<void(const std::string& id, Json body)> keep)
      : id_(std::move(id)), fixed_(std::move(fixed)), keep_(std::move(keep)) {}

  void ended(const AnswerView& view) override {
    if (keep_) keep_("resp_" + id_, whole(view));
  }

  Json whole(const AnswerView& view) const override {
    const Choice& choice = view.choices[0];
    Json output = Json::array();
    if (!choice.reasoning().empty()) output.push_back(reasoning_item(output.size(), choice.reasoning()));
    if (!choice.text().empty() || choice.calls().empty())
      output.push_back(message_item(output.size(), choice.text(), "completed"));
    for (const auto& call : choice.calls()) output.push_back(call_item(output.size(), call, "completed"));
    return body(view, choice.finish() == Finish::kLength ? "incomplete" : "completed", std::move(output));
  }

  void begin(const AnswerView& view, EventWriter& out) override {
    for (const char* type : {"response.created", "response.in_progress"})
      send(type, {{"response", body(view, "in_progress", Json::array())}}, out);
  }

  void piece(const AnswerView&, size_t, const Piece& piece, EventWriter& out) override {
    if (!piece.reasoning.empty()) {
      open(Kind::kReasoning, out);
      text_ += piece.reasoning;
      send("response.reasoning_text.delta", place({{"content_index", 0}, {"delta", piece.reasoning}}), out);
    }
    if (!piece.text.empty()) {
      open(Kind::kMessage, out);
      text_ += piece.text;
      send("response.output_text.delta",
           place({{"content_index", 0}, {"delta", piece.text}, {"logprobs", Json::array()}}), out);
    }
    for (const auto& call : piece.calls) {
      if (!call.id.empty()) {
        close(out);
        call_ = call;
        call_.arguments.clear();
        open(Kind::kCall, out);
      }
      if (call.arguments.empty()) continue;
      call_.arguments += call.arguments;
      send("response.function_call_arguments.delta", place({{"delta", call.arguments}}), out);
    }
  }

  void end(const AnswerView& view, EventWriter& out) override {
    if (view.choices[0].text().empty() && view.choices[0].calls().empty()) open(Kind::kMessage, out);
    close(out);
    const bool cut = view.choices[0].finish() == Finish::kLength;
    send(cut ? "response.incomplete" : "response.completed",
         {{"response", body(view, cut ? "incomplete" : "completed", done_)}}, out);
  }

  void error(const Json& error, EventWriter& out) override {
    send("error",
         {{"code", std::to_string(error["error"]["code"].get<int>())},
          {"message", error["error"]["message"]},
          {"param", error["error"]["param"]}},
         out);
  }

 private:
  enum class Kind : uint8_t { kNone, kReasoning, kMessage, kCall };

  std::string item_id(std::string_view kind, size_t index) const { return fmt::format("{}_{}_{}", kind, id_, index); }
  Json reasoning_item(size_t index, const std::string& text) const {
    return {{"type", "reasoning"},
            {"id", item_id("rs", index)},
            {"summary", Json::array()},
            {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
  }
  Json message_item(size_t index, const std::string& text, const char* status) const {
    Json item = {{"type", "message"}, {"id", item_id("msg", index)}, {"status", status}, {"role", "assistant"}};
    item["content"] = Json::array();
    if (std::string_view(status) == "completed") item["content"].push_back(text_part(text));
    return item;
  }
  static Json text_part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }
  Json call_item(size_t index, const CallPiece& call, const char* status) const {
    return {{"type", "function_call"}, {"id", item_id("fc", index)},  {"call_id", call.id},
            {"name", call.name},       {"arguments", call.arguments}, {"status", status}};
  }

  Json body(const AnswerView& view, const char* status, Json output) const {
    Json all = {{"id", "resp_" + id_}, {"object", "response"}};
    for (const auto& [key, value] : fixed_.items()) all[key] = value;
    all["status"] = status;
    all["error"] = nullptr;
    const bool incomplete = std::string_view(status) == "incomplete";
    all["incomplete_details"] = incomplete ? Json({{"reason", "max_output_tokens"}}) : Json();
    all["output"] = std::move(output);
    all["usage"] = nullptr;
    if (std::string_view(status) != "in_progress") {
      const Usage usage = view.usage();
      all["usage"] = {{"input_tokens", usage.prompt_tokens},
                      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                      {"output_tokens", usage.completion_tokens},
                      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    }
    return all;
  }

  void send(std::string_view type, Json data, EventWriter& out) {
    Json event = {{"type", type}, {"sequence_number", number_++}};
    for (auto&& [key, value] : data.items()) event[key] = value;
    out.add(type, event);
  }
  // Where in the output it belongs.
  Json place(Json more) const {
    Json all = {{"item_id", current_["id"]}, {"output_index", done_.size()}};
    for (const auto& [key, value] : more.items()) all[key] = value;
    return all;
  }
  void open(Kind kind, EventWriter& out) {
    if (kind_ == kind) return;
    close(out);
    kind_ = kind;
    text_.clear();
    const size_t index = done_.size();
    current_ = kind == Kind::kReasoning ? reasoning_item(index, "")
               : kind == Kind::kMessage ? message_item(index, "", "in_progress")
                                        : call_item(index, call_, "in_progress");
    if (kind == Kind::kReasoning) current_["content"] = Json::array();
    send("response.output_item.added", {{"output_index", index}, {"item", current_}}, out);
    if (kind == Kind::kMessage)
      send("response.content_part.added", place({{"content_index", 0}, {"part", text_part("")}}), out);
  }
  void close(EventWriter& out) {
    if (kind_ == Kind::kNone) return;
    const size_t index = done_.size();
    Json item;
    if (kind_ == Kind::kReasoning) {
      send("response.reasoning_text.done", place({{"content_index", 0}, {"text", text_}}), out);
      item = reasoning_item(index, text_);
    } else if (kind_ == Kind::kMessage) {
      send("response.output_text.done", place({{"content_index", 0}, {"text", text_}, {"logprobs", Json::array()}}),
           out);
      send("response.content_part.done", place({{"content_index", 0}, {"part", text_part(text_)}}), out);
      item = message_item(index, text_, "completed");
    } else {
      send("response.function_call_arguments.done", place({{"name", call_.name}, {"arguments", call_.arguments}}), out);
      item = call_item(index, call_, "completed");
    }
    send("response.output_item.done", {{"output_index", index}, {"item", item}}, out);
    done_.push_back(std::move(item));
    kind_ = Kind::kNone;
  }

  const std::string id_;
  const Json fixed_;
  const std::function<void(const std::string& id, Json body)> keep_;
  // In a stream: the items that are whole, and the one that is open.
  Json done_ = Json::array(), current_;
  Kind kind_ = Kind::kNone;
  std::string text_;
  CallPiece call_;
  int number_ = 0;
};

Result<Prepared> prepare_response(Fields& fields, const ModelView& model, const std::string& id, int64_t created) {
  Prepared prepared;
  Generation& generation = prepared.generation;
  TRY(read_sampling(fields, model, "max_output_tokens", -1, generation));
  const Json earlier = TRY(earlier_items(fields, model));
  Json items = items_of(fields);
  TRY(apply_conversation(fields, model, TRY(read_conversation_of_items(fields, earlier, items)), generation));
  TRY(fit_answer(fields, "input", model, generation));
  const auto given = [&](std::string_view name, Json otherwise) {
    const Json* const value = fields.get(name);
    return value == nullptr ? std::move(otherwise) : *value;
  };
  const bool stores = model.stored != nullptr && model.stored->keeps() && fields.boolean("store", true);
  Json fixed = {{"created_at", created},
                {"model", model.name},
                {"instructions", given("instructions", Json())},
                {"max_output_tokens", given("max_output_tokens", Json())},
                {"metadata", given("metadata", Json::object())},
                {"parallel_tool_calls", given("parallel_tool_calls", true)},
                {"previous_response_id", given("previous_response_id", Json())},
                {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                {"store", stores},
                {"temperature", given("temperature", 1.0)},
                {"text", given("text", {{"format", {{"type", "text"}}}})},
                {"tool_choice", given("tool_choice", "auto")},
                {"tools", given("tools", Json::array())},
                {"top_p", given("top_p", 1.0)},
                {"truncation", "disabled"}};
  prepared.stream = fields.boolean("stream", false);
  std::function<void(const std::string&, Json)> keep;
  if (stores && model.keeps) {
    keep = [stored = model.stored, key = model.key, previous = fields.text("previous_response_id"),
            items = std::move(items)](const std::string& answer, Json body) mutable {
      for (const Json& item : body["output"]) items.push_back(item);
      stored->add(answer, key, previous, items, body);
    };
  }
  prepared.shape = std::make_unique<ResponseShape>(id, std::move(fixed), std::move(keep));
  return prepared;
}

}  // namespace

Endpoint responses_endpoint() {
  return {"/v1/responses", "OpenAI's Responses", {kResponseFields}, {"model", "input"}, prepare_response};
}

}  // namespace tandem::serve
