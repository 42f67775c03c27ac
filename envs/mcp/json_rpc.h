// JSON-RPC 2.0 for the Model Context Protocol: decoding of untrusted frames, encoding of responses.
//
// Thread safety: none needed; values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tandem::envs {

inline constexpr size_t kLargestRpcFrame = size_t{16} << 20;
inline constexpr size_t kLargestRpcBatch = 64;

enum class RpcCode : int {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kUnknownMethod = -32601,
  kInvalidParams = -32602,
  kInternalError = -32603,
  kUnsupportedRevision = -32022,  // of the Model Context Protocol
};

struct RpcError {
  RpcCode code = RpcCode::kInternalError;
  std::string message;
  Json data;  // null: none
};

struct RpcMessage {
  enum class Kind : uint8_t { kRequest, kNotification, kResponse, kMalformed };
  Kind kind = Kind::kMalformed;
  Json id;             // text or a whole number; null where there is none, or none that can be read
  std::string method;  // of requests and notifications
  Json params = Json::object();
  Json result;     // of a response that is none of an error
  RpcError error;  // why it is malformed, or of a response the error that it tells; a message without words: none
};

struct RpcFrame {
  std::vector<RpcMessage> messages;  // at least one
  bool batch = false;                // sent as an array
};

// Never fails: what cannot be understood is a malformed message that says why, with the id of the request where that
// can be seen, so that who asked hears of it. A frame larger than kLargestRpcFrame, one that is not JSON, and an array
// that is empty or larger than kLargestRpcBatch are one malformed message.
RpcFrame decode_rpc_frame(std::string_view text);

// Answers on one line.
std::string encode_rpc_result(const Json& id, const Json& result);
std::string encode_rpc_error(const Json& id, const RpcError& error);

}  // namespace tandem::envs
