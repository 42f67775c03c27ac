// One client of the Model Context Protocol, from its first message to its last: what to answer, which calls to begin
// and which to end. Revision 2025-11-25; clients of 2025-06-18 and 2025-03-26 are answered in theirs.
//
// Pure: no clock, thread, socket or sandbox inside. The shell names each frame that comes in by a number of its own (an
// exchange) and gets exactly one reply to it, at once or when the calls in it have ended; it carries out the calls and
// says how they went. Calls begin in the order in which they came: those that only read run beside each other, one that
// changes something runs alone.
//
// Thread safety: none; one owner. Memory: bounded by kMostCalls calls of one frame each.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "envs/mcp/json_rpc.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

struct McpReply {
  enum class Kind : uint8_t {
    kNothing,   // the frame asks for no answer, or what it asked for was cancelled
    kResponse,  // `text` answers what it asked
    kRefused,   // `text` says why it is no frame of the protocol
  };
  uint64_t exchange = 0;
  Kind kind = Kind::kNothing;
  std::string text;  // one line
};
struct McpCallStart {
  uint64_t call = 0;
  std::string tool;
  Json arguments;
};
struct McpCallStop {
  uint64_t call = 0;
};
using McpAction = std::variant<McpReply, McpCallStart, McpCallStop>;

class McpSession {
 public:
  static constexpr size_t kMostCalls = 64;  // waiting and under way; more are refused

  // `offered`: names of the tools that there are; empty: those that are everywhere. `hosts`: that are open, as the
  // client is told.
  explicit McpSession(std::string server_version, std::vector<std::string> offered = {},
                      std::vector<std::string> hosts = {})
      : server_version_(std::move(server_version)),
        offered_(offered.empty() ? tool_names() : std::move(offered)),
        hosts_(std::move(hosts)) {}

  std::vector<McpAction> step(uint64_t exchange, std::string_view frame);

  // Ends a call that an McpCallStart began, also one that an McpCallStop ended. Exactly once.
  std::vector<McpAction> finished(uint64_t call, const Result<ToolOutcome>& outcome);

  bool initialized() const { return !revision_.empty(); }
  bool busy() const { return !calls_.empty(); }

 private:
  struct Call {
    uint64_t number = 0, exchange = 0;
    Json id;
    const Tool* tool = nullptr;
    Json arguments;
    bool reads = false;      // and nothing else: other calls need not wait for it
    bool stateless = false;  // asked by the revision without a beginning
    bool begun = false, cancelled = false;
  };
  struct Exchange {
    bool batch = false, refused = false;
    size_t calls = 0;  // that it waits for
    std::vector<std::string> responses;
  };

  void take(uint64_t exchange, RpcMessage& message);
  void take_request(uint64_t exchange, RpcMessage& message);
  void take_call(uint64_t exchange, RpcMessage& message, bool stateless);
  void cancel(const Json& request_id);
  Result<Json> initialize(const Json& params);
  void answer(uint64_t exchange, std::string response) {
    exchanges_[exchange].responses.push_back(std::move(response));
  }
  void leave(uint64_t exchange);
  void begin_calls();
  std::vector<McpAction> take_actions();

  std::string server_version_;
  std::vector<std::string> offered_, hosts_;
  std::string revision_;  // empty until initialize
  uint64_t next_call_ = 1;
  std::deque<Call> calls_;  // in the order in which they came
  std::map<uint64_t, Exchange> exchanges_;
  std::vector<McpAction> actions_;
};

}  // namespace tandem::envs
