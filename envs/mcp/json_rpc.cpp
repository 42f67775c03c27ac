#include "envs/mcp/json_rpc.h"

#include <algorithm>
#include <cctype>

#include "base/json_line.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr size_t kJsonRpcLongestId = 256;

RpcMessage malformed(RpcCode code, std::string why, Json id = nullptr) {
  RpcMessage message;
  message.id = std::move(id);
  message.error = {code, std::move(why), nullptr};
  return message;
}

bool is_id(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().size() <= kJsonRpcLongestId;
  return value.is_number_integer();
}

// The value of "id" that begins at `at`, behind its colon; null where it is none.
Json id_at(std::string_view text, size_t at) {
  at = std::min(text.find_first_not_of(" \t", at), text.size());
  if (at == text.size()) return nullptr;
  size_t end = at;
  if (text[at] == '"') {
    end = text.find('"', at + 1);
    if (end == std::string_view::npos || end - at > kJsonRpcLongestId) return nullptr;
    ++end;
  } else {
    while (end < text.size() && (text[end] == '-' || std::isdigit(static_cast<unsigned char>(text[end])))) ++end;
  }
  const auto id = parse_json(text.substr(at, end - at));
  return id && is_id(*id) ? *id : Json();
}

// The id of a request that cannot be read as a whole: a member of the outermost object, looked for from its beginning,
// or the last one before its end. Null where none is seen.
Json id_of_broken(std::string_view text) {
  if (!trim(text).starts_with('{')) return nullptr;
  constexpr std::string_view kKey = "\"id\"";
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    size_t end = i + 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    if (depth == 1 && text.substr(i, end + 1 - i) == kKey) {
      const size_t colon = text.find_first_not_of(" \t", end + 1);
      if (colon < text.size() && text[colon] == ':') return id_at(text, colon + 1);
    }
    i = end;
  }
  // Behind what was left out of one that is too long.
  const size_t at = text.rfind(kKey);
  if (at == std::string_view::npos || at == 0 || (text[at - 1] != ',' && text[at - 1] != ' ')) return nullptr;
  const size_t colon = text.find_first_not_of(" \t", at + kKey.size());
  if (colon >= text.size() || text[colon] != ':') return nullptr;
  auto rest = trim(text.substr(colon + 1));
  if (!rest.ends_with('}') || rest.find('{') != std::string_view::npos) return nullptr;
  return id_at(text, colon + 1);
}

// The error of a response; it always has words.
RpcError told_error(const Json& error) {
  RpcError told{RpcCode::kInternalError, "an error without words", nullptr};
  if (!error.is_object()) return told;
  const auto code = error.find("code"), message = error.find("message");
  if (code != error.end() && code->is_number_integer()) told.code = static_cast<RpcCode>(code->get<int>());
  if (message != error.end() && message->is_string() && !message->get_ref<const std::string&>().empty())
    told.message = message->get<std::string>();
  return told;
}

RpcMessage decode(Json& value) {
  const auto refuse = [](std::string why, Json id = nullptr) {
    return malformed(RpcCode::kInvalidRequest, std::move(why), std::move(id));
  };
  if (!value.is_object()) return refuse("a message is a JSON object");
  RpcMessage message;
  const auto id = value.find("id");
  if (id != value.end()) {
    // Whoever asked waits for the number that was said, be it one that may not be.
    if (!is_id(*id))
      return refuse("id: neither a whole number nor text of 256 bytes at most", id->is_number() ? *id : Json());
    message.id = *id;
  }
  if (value.value("jsonrpc", Json()) != "2.0") return refuse("jsonrpc: must be \"2.0\"", message.id);
  const auto method = value.find("method");
  if (method == value.end()) {
    if (!value.contains("result") && !value.contains("error")) return refuse("method: missing", message.id);
    message.kind = RpcMessage::Kind::kResponse;
    // Some libraries write both, and null in the one that does not count.
    const auto error = value.find("error");
    if (error != value.end() && !(error->is_null() && value.contains("result"))) {
      message.error = told_error(*error);
    } else {
      message.result = std::move(value.at("result"));
    }
    return message;
  }
  if (!method->is_string()) return refuse("method: not text", message.id);
  message.method = method->get<std::string>();
  if (const auto params = value.find("params"); params != value.end()) {
    if (!params->is_object()) {
      return malformed(RpcCode::kInvalidParams, "params: not an object", message.id);
    }
    message.params = std::move(*params);
  }
  message.kind = id == value.end() ? RpcMessage::Kind::kNotification : RpcMessage::Kind::kRequest;
  return message;
}

}  // namespace

RpcFrame decode_rpc_frame(std::string_view text) {
  const auto one = [](RpcMessage message) { return RpcFrame{{std::move(message)}, false}; };
  if (text.size() > kLargestRpcFrame) {
    return one(malformed(RpcCode::kParseError, "a message has more than " + format_bytes(kLargestRpcFrame),
                         id_of_broken(text)));
  }
  auto value = parse_json(text);
  if (!value) return one(malformed(RpcCode::kParseError, value.error().message(), id_of_broken(text)));
  if (!value->is_array()) return one(decode(*value));
  if (value->empty() || value->size() > kLargestRpcBatch) {
    return one(
        malformed(RpcCode::kInvalidRequest, "a batch has 1 to " + std::to_string(kLargestRpcBatch) + " messages"));
  }
  RpcFrame frame{{}, true};
  for (auto& element : *value) frame.messages.push_back(decode(element));
  return frame;
}

std::string encode_rpc_result(const Json& id, const Json& result) {
  return dump_json_line(Json{{"jsonrpc", "2.0"}, {"id", id}, {"result", result}});
}

std::string encode_rpc_error(const Json& id, const RpcError& error) {
  Json object = {{"code", static_cast<int>(error.code)}, {"message", error.message}};
  if (!error.data.is_null()) object["data"] = error.data;
  return dump_json_line(Json{{"jsonrpc", "2.0"}, {"id", id}, {"error", std::move(object)}});
}

}  // namespace tandem::envs
