#include "envs/mcp/mcp_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "envs/mcp/revisions.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kOldestRevision = "2024-11-05";  // of servers; its messages are those of the later ones
constexpr int kMostStrangeLines = 1000;                     // that are no messages
constexpr size_t kMostPages = 32;                           // of the list of tools
constexpr size_t kLongestWords = 2000;                      // bytes of a server's refusal that are shown
constexpr int kTurnMilliseconds = 50;                       // in which `stop` is seen
constexpr auto kPartingWords = std::chrono::milliseconds(100);

struct EndTurn {
  void operator()(std::binary_semaphore* turn) const { turn->release(); }
};

Json message_of(std::string_view method, const Json& params) {
  return {{"jsonrpc", "2.0"}, {"method", method}, {"params", params}};
}

Json client_info() { return {{"name", "tandem"}, {"version", "1"}}; }

}  // namespace

Result<std::unique_ptr<McpClient>> McpClient::begin(std::string server, FileDescriptor socket, Time deadline) {
  std::unique_ptr<McpClient> client(new McpClient(std::move(server), std::move(socket)));
  TRY(client->initialize(deadline));
  TRY(client->list_tools(deadline));
  return client;
}

Status McpClient::initialize(Time deadline) {
  const auto answer = request(
      "initialize",
      {{"protocolVersion", kMcpRevisions.front()}, {"capabilities", Json::object()}, {"clientInfo", client_info()}},
      deadline, {});
  if (!answer && answer.error().code() == Code::kInvalid && lost_.ok()) return discover(deadline);
  if (!answer) return answer.error();
  const Json& result = *answer;
  const auto revision = result.is_object() ? result.value("protocolVersion", Json()) : Json();
  if (revision == Json(kStatelessRevision)) {
    stateless_ = true;
    return {};
  }
  const bool is_known =
      revision == Json(kOldestRevision) ||
      std::any_of(kMcpRevisions.begin(), kMcpRevisions.end(), [&](auto each) { return revision == Json(each); });
  if (!is_known)
    return lose("speaks revision " + make_printable(dump_json(revision).substr(0, 40)) +
                " of the protocol, which is none of ours");
  return send(message_of("notifications/initialized", Json::object()), deadline, {});
}

Status McpClient::discover(Time deadline) {
  stateless_ = true;
  const auto answer = request("server/discover", Json::object(), deadline, {});
  if (!answer) return lose("knows neither initialize nor server/discover: " + answer.error().message());
  const auto versions = answer->is_object() ? answer->value("supportedVersions", Json()) : Json();
  if (versions.is_array() && std::find(versions.begin(), versions.end(), Json(kStatelessRevision)) != versions.end())
    return {};
  return lose("speaks the revisions " + make_printable(dump_json(versions).substr(0, 200)) +
              " of the protocol, none of which is ours");
}

Status McpClient::list_tools(Time deadline) {
  Json params = Json::object();
  for (size_t page = 0; page < kMostPages; ++page) {
    const auto result = TRY(request("tools/list", params, deadline, {}));
    auto cursor = read_foreign_tools(server_, result, tools_, left_out_);
    if (!cursor) return lose("cannot be used: " + cursor.error().message());
    if (!*cursor) return {};
    params = {{"cursor", **cursor}};
  }
  return lose("cannot be used: the list of its tools has no end");
}

Result<ToolOutcome> McpClient::call(const ForeignTool& tool, const Json& arguments, Time deadline,
                                    const std::stop_token& stop) {
  const auto result = TRY(request("tools/call", {{"name", tool.tool}, {"arguments", arguments}}, deadline, stop));
  auto outcome = read_foreign_outcome(result);
  if (!outcome) return fail(Status::invalid(fmt::format("the server {}: {}", server_, outcome.error().message())));
  return outcome;
}

Result<Json> McpClient::request(std::string_view method, const Json& params, Time deadline,
                                const std::stop_token& stop) {
  if (!turn_.try_acquire_until(deadline))
    return fail(Status::deadline(fmt::format("the server {} is busy with another call", server_)));
  const std::unique_ptr<std::binary_semaphore, EndTurn> turn(&turn_);
  if (!lost_) return fail(lost_);
  const uint64_t id = ++last_id_;
  Json message = message_of(method, params);
  message["id"] = id;
  if (stateless_) {
    message["params"]["_meta"] = {{kRevisionKey, kStatelessRevision},
                                  {"io.modelcontextprotocol/clientInfo", client_info()},
                                  {"io.modelcontextprotocol/clientCapabilities", Json::object()}};
  }
  TRY(send(message, deadline, stop));
  auto answer = answer_to(id, deadline, stop);
  if (!answer) {
    // The server may stop what nobody waits for any more; whether it hears this is its own affair.
    const auto code = answer.error().code();
    if (code == Code::kDeadline || code == Code::kCancelled)
      (void)send(message_of("notifications/cancelled", {{"requestId", id}, {"reason", "the caller waits no longer"}}),
                 SystemClock().now() + kPartingWords, {})
          .ok();
    return fail(std::move(answer).error());
  }
  if (!answer->error.message.empty())
    return fail(Status::invalid(fmt::format("the server {} refused: {}", server_,
                                            make_printable(answer->error.message.substr(0, kLongestWords)))));
  if (answer->result.is_object() && answer->result.value("resultType", Json("complete")) != Json("complete"))
    return fail(Status::invalid(fmt::format("the server {} asks for words of the user's, whom nobody asks", server_)));
  return std::move(answer->result);
}

Result<RpcMessage> McpClient::answer_to(uint64_t id, Time deadline, const std::stop_token& stop) {
  for (;;) {
    while (!waiting_.empty()) {
      auto message = std::move(waiting_.front());
      waiting_.pop_front();
      // Some servers make a text of every id.
      const bool is_ours = message.id == Json(id) || message.id == Json(std::to_string(id));
      if (message.kind == RpcMessage::Kind::kResponse && is_ours) return message;
      if (message.kind == RpcMessage::Kind::kMalformed && is_ours)
        return fail(Status::invalid(fmt::format("the answer of the server {} cannot be read: {}", server_,
                                                make_printable(message.error.message.substr(0, kLongestWords)))));
      if (message.kind == RpcMessage::Kind::kMalformed && ++strange_lines_ > kMostStrangeLines)
        return fail(lose("does not speak the protocol: " + message.error.message));
      if (message.kind != RpcMessage::Kind::kRequest) continue;  // old answers, and what it tells unasked
      const bool is_ping = message.method == "ping";
      const auto reply = is_ping
                             ? encode_rpc_result(message.id, Json::object())
                             : encode_rpc_error(message.id, {RpcCode::kUnknownMethod, "this client has none", nullptr});
      TRY(send(Json::parse(reply), deadline, stop));
    }
    TRY(receive_more(deadline, stop));
    while (const auto line = lines_.next()) {
      auto frame = decode_rpc_frame(*line);
      std::move(frame.messages.begin(), frame.messages.end(), std::back_inserter(waiting_));
    }
  }
}

Status McpClient::send(const Json& message, Time deadline, const std::stop_token& stop) {
  const auto line = dump_json(message) + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t count = ::send(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EAGAIN) {
      // Half a line cannot be taken back: what follows it would be read as its other half.
      if (auto status = wait_for(POLLOUT, deadline, stop); !status)
        return rest.size() == line.size() ? status : lose("does not read what it is sent");
    } else if (count < 0 && errno != EINTR) {
      return lose("has ended");
    } else if (count > 0) {
      rest.remove_prefix(static_cast<size_t>(count));
    }
  }
  return {};
}

Status McpClient::receive_more(Time deadline, const std::stop_token& stop) {
  std::array<char, 65536> bytes;
  for (;;) {
    // Without control buffers: descriptors that a server sends along are closed by the kernel.
    const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) {
      lines_.append({bytes.data(), static_cast<size_t>(count)});
      return {};
    }
    if (count < 0 && errno == EINTR) continue;
    // One that ends with words of ours unread resets the connection.
    if (count == 0 || errno != EAGAIN) return lose("has ended");
    TRY(wait_for(POLLIN, deadline, stop));
  }
}

Status McpClient::wait_for(short events, Time deadline, const std::stop_token& stop) const {
  const SystemClock clock;
  for (;;) {
    if (stop.stop_requested()) return Status::cancelled("the call was cancelled");
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now()).count();
    if (left <= 0) return Status::deadline(fmt::format("the server {} did not answer in time", server_));
    pollfd wait = {socket_.get(), events, 0};
    if (poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, kTurnMilliseconds))) > 0) return {};
  }
}

Status McpClient::lose(std::string why) {
  if (lost_) lost_ = Status::unavailable(fmt::format("the server {} {}", server_, std::move(why)));
  return lost_;
}

}  // namespace tandem::envs
