// OpenAI's messages format, checked message by message.
#include <fmt/format.h>

#include <array>
#include <set>

#include "base/text.h"
#include "trainer/sft/transcript.h"

namespace tandem::trainer {

namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// A text, or a list of parts that are texts.
Status check_text(const Json& content) {
  if (content.is_string()) return {};
  if (!content.is_array()) return Status::invalid("content is neither a text nor a list of parts");
  for (const Json& part : content) {
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    if (type != "text" && type != "input_text" && type != "output_text") {
      return Status::invalid(
          fmt::format("content has a part of type {}; only text can be learned from", dump_json(type)));
    }
    if (!part.contains("text") || !part["text"].is_string()) return Status::invalid("a part of content has no text");
  }
  return {};
}

// Templates write a text; of a list of parts most would write the list itself.
Json joined(const Json& content) {
  if (!content.is_array()) return content;
  std::string text;
  for (const Json& part : content) text += part["text"].get_ref<const std::string&>();
  return text;
}

// What clients dump of a message that has none of it: {"function_call": null, "refusal": null, ..}.
void drop_nulls(Json& message) {
  for (auto at = message.begin(); at != message.end();)
    at = at.value().is_null() && at.key() != "content" ? message.erase(at) : std::next(at);
}

class ChatReader {
 public:
  explicit ChatReader(Reading reading) : reading_(reading) {}
  Result<Chat> read(const Json& json) {
    const Json& messages = json["messages"];
    if (!messages.is_array() || messages.empty())
      return fail(Status::invalid("messages is not a list with at least one message"));
    bool spoken = false;
    for (size_t i = 0; i < messages.size(); ++i) {
      Json message = messages[i];
      bool muted = false;
      if (Status status = read_message(message, muted); !status.ok()) {
        const Json role = message.is_object() ? message.value("role", Json()) : Json();
        const std::string who = role.is_string() ? fmt::format(" ({})", role.get<std::string>()) : "";
        return fail(std::move(status).at(fmt::format("messages[{}]{}", i, who)));
      }
      spoken = spoken || message["role"] == "assistant";
      chat_.messages.push_back(std::move(message));
      chat_.muted.push_back(muted);
      chat_.numbers.push_back(i);
    }
    if (!spoken) return fail(Status::invalid("has no assistant message: there is nothing to learn from"));
    TRY(read_tools(json));
    if (const auto found = json.find("chat_template_kwargs"); found != json.end() && !found->is_null()) {
      if (!found->is_object()) return fail(Status::invalid("chat_template_kwargs is not an object"));
      chat_.variables = *found;
    }
    return std::move(chat_);
  }

 private:
  Status read_message(Json& message, bool& muted) {
    if (!message.is_object()) return Status::invalid("is not an object");
    const Json role = message.value("role", Json());
    if (!role.is_string()) return Status::invalid("has no role");
    const auto name = role.get<std::string>();
    if (std::find(kRoles.begin(), kRoles.end(), name) == kRoles.end())
      return Status::invalid(fmt::format("role \"{}\" is not known{}", name, did_you_mean(name, kRoles)));
    drop_nulls(message);
    if (const auto weight = message.find("weight"); weight != message.end()) {
      if (name != "assistant" || !(*weight == 0 || *weight == 1))
        return Status::invalid("weight may be 0 or 1, and stand with an assistant's message alone");
      muted = *weight == 0;
      message.erase("weight");
    }
    if (const Json content = message.value("content", Json()); !content.is_null()) {
      TRY(check_text(content));
      message["content"] = joined(content);
    }
    const Json content = message.value("content", Json());
    if (name == "assistant") return read_assistant(message, content);
    if (message.contains("tool_calls")) return Status::invalid("only an assistant has tool_calls");
    if (content.is_null()) return Status::invalid("has no content");
    if (name != "tool") return {};
    const Json id = message.value("tool_call_id", Json());
    if (id.is_null()) return {};
    if (!id.is_string()) return Status::invalid("tool_call_id is not a text");
    if (!call_ids_.contains(id.get<std::string>())) {
      return Status::invalid(
          fmt::format("tool_call_id {} is of no tool call in the messages before it", dump_json(id)));
    }
    return {};
  }

  Status read_assistant(Json& message, const Json& content) {
    if (message.contains("function_call"))
      return Status::invalid("function_call is the old notation").hint("write it as tool_calls");
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || calls->is_null() || (calls->is_array() && calls->empty())) {
      message.erase("tool_calls");
      const bool thought = message.contains("reasoning_content") || message.contains("reasoning");
      if ((content.is_null() || content == "") && !thought && reading_ == Reading::kToLearn)
        return Status::invalid("says nothing: it has neither content nor tool_calls");
      if (content.is_null()) message["content"] = "";
      return {};
    }
    if (!calls->is_array()) return Status::invalid("tool_calls is not a list");
    for (size_t i = 0; i < calls->size(); ++i) {
      if (Status status = read_call((*calls)[i]); !status.ok())
        return std::move(status).at(fmt::format("tool_calls[{}]", i));
    }
    return {};
  }

  // Templates write arguments by `tojson`: the text of an object would come out as a text in quotes.
  Status read_call(Json& call) {
    if (!call.is_object()) return Status::invalid("is not an object");
    if (const auto type = call.find("type"); type == call.end())
      call["type"] = "function";
    else if (*type != "function")
      return Status::invalid(fmt::format("type is {}, not \"function\"", dump_json(*type)));
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) return Status::invalid("has no function");
    const Json name = function->value("name", Json());
    const bool as_it_is = reading_ == Reading::kAsItIs;
    if (!name.is_string() || (name == "" && !as_it_is)) return Status::invalid("the function has no name");
    Json arguments = function->value("arguments", Json());
    if (arguments.is_string()) {
      auto parsed = parse_json(arguments.get_ref<const std::string&>());
      if (!parsed && !as_it_is) {
        return Status::invalid(fmt::format("the arguments of {} are no JSON object: {}", name.get<std::string>(),
                                           parsed.error().message()));
      }
      if (parsed) arguments = std::move(*parsed);
    }
    if (!arguments.is_object() && !as_it_is)
      return Status::invalid(fmt::format("the arguments of {} are no JSON object", name.get<std::string>()));
    (*function)["arguments"] = std::move(arguments);
    if (const auto id = call.find("id"); id != call.end() && !id->is_null()) {
      if (!id->is_string()) return Status::invalid("id is not a text");
      call_ids_.insert(id->get<std::string>());
    }
    return {};
  }

  Status read_tools(const Json& json) {
    const auto found = json.find("tools");
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_array()) return Status::invalid("tools is not a list");
    for (size_t i = 0; i < found->size(); ++i) {
      const Json& tool = (*found)[i];
      const Json function = tool.is_object() ? tool.value("function", Json()) : Json();
      const Json name = function.is_object() ? function.value("name", Json()) : Json();
      if (!name.is_string())
        return Status::invalid(
            fmt::format("tools[{}] is not {{\"type\": \"function\", \"function\": {{\"name\": ..}}}}", i));
    }
    if (!found->empty()) chat_.tools = *found;
    return {};
  }

  const Reading reading_;
  Chat chat_;
  std::set<std::string> call_ids_;
};

}  // namespace

Result<Chat> read_chat(const Json& json, Reading reading) { return ChatReader(reading).read(json); }

}  // namespace tandem::trainer
