// A client of one server that speaks the Model Context Protocol, over a socket that is its standard input and output.
//
// Everything that comes is bytes of a stranger: lines within kLargestRpcFrame, a few that are no messages passed over
// (servers that print), and nothing waited for without a deadline. What the server asks of us is refused, but for ping.
//
// Ownership: the socket is the client's; the server, which runs in a sandbox, is not. Thread safety: calls may be made
// from several threads; they take turns. Errors: kUnavailable where the server has ended or does not speak the protocol
// (every later call fails the same way), kDeadline where it did not answer in time, kCancelled after `stop`.
#pragma once

#include <deque>
#include <memory>
#include <semaphore>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "envs/mcp/foreign_tools.h"
#include "envs/mcp/json_rpc.h"
#include "envs/mcp/line_splitter.h"

namespace tandem::envs {

class McpClient {
 public:
  // Says who we are, hears which revision the server speaks, and lists its tools.
  static Result<std::unique_ptr<McpClient>> begin(std::string server, FileDescriptor socket, Time deadline);

  const std::string& server() const { return server_; }
  const std::vector<ForeignTool>& tools() const { return tools_; }
  // Tools of the server that cannot be offered, each with the reason.
  const std::vector<std::string>& left_out() const { return left_out_; }

  // `arguments` as they are: who calls has checked them. kInvalid, with its words, where the server refuses.
  Result<ToolOutcome> call(const ForeignTool& tool, const Json& arguments, Time deadline, const std::stop_token& stop);

 private:
  McpClient(std::string server, FileDescriptor socket)
      : server_(std::move(server)), socket_(std::move(socket)), lines_(kLargestRpcFrame) {}

  Status initialize(Time deadline);
  // Asks a server that knows no initialization whether it speaks the revision without one.
  Status discover(Time deadline);
  Status list_tools(Time deadline);
  Result<Json> request(std::string_view method, const Json& params, Time deadline, const std::stop_token& stop);
  Result<RpcMessage> answer_to(uint64_t id, Time deadline, const std::stop_token& stop);
  Status send(const Json& message, Time deadline, const std::stop_token& stop);
  Status receive_more(Time deadline, const std::stop_token& stop);
  Status wait_for(short events, Time deadline, const std::stop_token& stop) const;
  Status lose(std::string why);

  const std::string server_;
  const FileDescriptor socket_;
  std::vector<ForeignTool> tools_;
  std::vector<std::string> left_out_;
  bool stateless_ = false;         // each request says revision and client
  std::binary_semaphore turn_{1};  // to talk to the server, and to touch what follows
  LineSplitter lines_;
  std::deque<RpcMessage> waiting_;
  uint64_t last_id_ = 0;
  int strange_lines_ = 0;
  Status lost_;
};

}  // namespace tandem::envs
