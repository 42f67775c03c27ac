#include "envs/mcp_server/mcp_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "envs/mcp/revisions.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kBatchRevision = "2025-03-26";  // the only one with batches

constexpr std::string_view kInstructions =
    "The tools work on one folder, /workspace, in a sandbox {}. Paths are relative to it. Files are changed in place.";
constexpr std::array<std::string_view, 2> kShells = {"run_terminal_cmd", "bash"};

// What a request says of its revision, where it needs no beginning; null where it says nothing.
Json revision_of(const Json& params) {
  const auto meta = params.is_object() ? params.find("_meta") : params.end();
  if (!params.is_object() || meta == params.end() || !meta->is_object()) return {};
  return meta->value(kRevisionKey, Json());
}

Json spoken_revisions() {
  Json all = {kStatelessRevision};
  for (const auto revision : kMcpRevisions) all.push_back(revision);
  return all;
}

RpcError unsupported_revision(const Json& asked) {
  return {RpcCode::kUnsupportedRevision,
          "Unsupported protocol version",
          {{"supported", spoken_revisions()}, {"requested", asked}}};
}

// As the revision without a beginning has it. What the list and the discovery say is good as long as the server is.
Json complete(Json result, bool lasts) {
  result["resultType"] = "complete";
  if (lasts) result.update({{"ttlMs", 3'600'000}, {"cacheScope", "private"}});
  return result;
}

RpcError invalid_params(std::string message) { return {RpcCode::kInvalidParams, std::move(message), nullptr}; }

bool is_offered(const std::vector<std::string>& offered, std::string_view name) {
  return std::find(offered.begin(), offered.end(), name) != offered.end();
}

std::string instructions(const std::vector<std::string>& offered, const std::vector<std::string>& hosts) {
  std::string text = fmt::format(
      kInstructions, hosts.empty()
                         ? "without network"
                         : "whose programs reach these hosts through a proxy, and no others: " + join(hosts, ", "));
  for (const auto shell : kShells) {
    if (!is_offered(offered, shell)) continue;
    text.append(" Each ").append(shell).append(
        " starts in the folder and with the exported variables that the last one left.");
    break;
  }
  return text;
}

Json list_tools(const std::vector<std::string>& offered) {
  Json list = Json::array();
  for (const auto& tool : every_tool()) {
    if (!is_offered(offered, tool.name)) continue;
    const bool reads = tool.effect == ToolEffect::kReads;
    Json annotations = {{"readOnlyHint", reads}, {"openWorldHint", false}};
    if (!reads) annotations["destructiveHint"] = true;
    list.push_back({{"name", tool.name},
                    {"description", tool.description},
                    {"inputSchema", Json::parse(tool.parameters)},
                    {"annotations", std::move(annotations)}});
  }
  return {{"tools", std::move(list)}};
}

Json call_result(const ToolOutcome& outcome) {
  return {{"content", Json::array({{{"type", "text"}, {"text", outcome.output}}})}, {"isError", !outcome.ok}};
}

std::string unknown_tool(const std::vector<std::string>& offered, const std::string& name) {
  // A tool that does not exist does nothing but say so, in the words that a model reads everywhere else.
  ToolContext context;
  context.tools = offered;
  return run_tool(context, name, Json::object()).output;
}

}  // namespace

std::vector<McpAction> McpSession::step(uint64_t exchange, std::string_view frame) {
  auto decoded = decode_rpc_frame(frame);
  if (decoded.batch && revision_ != kBatchRevision) {
    RpcMessage refused;
    refused.error = {RpcCode::kInvalidRequest,
                     "batches are of revision " + std::string(kBatchRevision) + "; send one message at a time",
                     nullptr};
    decoded = {{std::move(refused)}, false};
  }
  exchanges_[exchange].batch = decoded.batch;
  // Held while it is read, so that a call that is cancelled by the same batch does not end it.
  ++exchanges_[exchange].calls;
  for (auto& message : decoded.messages) take(exchange, message);
  begin_calls();
  leave(exchange);
  return take_actions();
}

void McpSession::take(uint64_t exchange, RpcMessage& message) {
  switch (message.kind) {
    case RpcMessage::Kind::kMalformed:
      exchanges_[exchange].refused = true;
      return answer(exchange, encode_rpc_error(message.id, message.error));
    case RpcMessage::Kind::kRequest:
      return take_request(exchange, message);
    case RpcMessage::Kind::kNotification:
      if (message.method == "notifications/cancelled") cancel(message.params.value("requestId", Json()));
      return;  // others have nothing to say to us
    case RpcMessage::Kind::kResponse:
      return;  // we ask for nothing
  }
}

void McpSession::take_request(uint64_t exchange, RpcMessage& message) {
  const auto refuse = [&](const RpcError& error) { answer(exchange, encode_rpc_error(message.id, error)); };
  const auto give = [&](const Json& result) { answer(exchange, encode_rpc_result(message.id, result)); };
  if (message.method == "ping") return give(Json::object());
  if (message.method == "initialize") {
    if (initialized() || exchanges_[exchange].batch) {
      return refuse({RpcCode::kInvalidRequest, "initialize: comes once, first and alone", nullptr});
    }
    const auto result = initialize(message.params);
    return result ? give(*result) : refuse(invalid_params(result.error().message()));
  }
  const auto asked = revision_of(message.params);
  const bool stateless = asked == Json(kStatelessRevision);
  if (!asked.is_null() && !stateless && !initialized()) return refuse(unsupported_revision(asked));
  if (message.method == "server/discover") {
    return give(complete({{"supportedVersions", spoken_revisions()},
                          {"capabilities", {{"tools", Json::object()}}},
                          {"serverInfo", {{"name", "tandem"}, {"version", server_version_}}},
                          {"instructions", instructions(offered_, hosts_)}},
                         true));
  }
  const bool list = message.method == "tools/list";
  if (!list && message.method != "tools/call") {
    return refuse(
        {RpcCode::kUnknownMethod,
         "there is no method \"" + message.method.substr(0, 100) + "\"" +
             did_you_mean(message.method, {"initialize", "server/discover", "ping", "tools/list", "tools/call"}),
         nullptr});
  }
  if (!stateless && !initialized()) return refuse({RpcCode::kInvalidRequest, "initialize comes first", nullptr});
  if (!list) return take_call(exchange, message, stateless);
  if (message.params.contains("cursor")) return refuse(invalid_params("cursor: the list has one page, and no cursors"));
  give(stateless ? complete(list_tools(offered_), true) : list_tools(offered_));
}

Result<Json> McpSession::initialize(const Json& params) {
  const auto asked = params.value("protocolVersion", Json());
  if (!asked.is_string()) return fail(Status::invalid("protocolVersion: must be a date, such as 2025-11-25"));
  const auto spoken = std::find(kMcpRevisions.begin(), kMcpRevisions.end(), asked.get_ref<const std::string&>());
  // A client that knows none of ours is told our newest, and goes on or leaves.
  revision_ = spoken == kMcpRevisions.end() ? kMcpRevisions.front() : *spoken;
  return Json{{"protocolVersion", revision_},
              {"capabilities", {{"tools", Json::object()}}},
              {"serverInfo", {{"name", "tandem"}, {"version", server_version_}}},
              {"instructions", instructions(offered_, hosts_)}};
}

void McpSession::take_call(uint64_t exchange, RpcMessage& message, bool stateless) {
  const auto refuse = [&](const RpcError& error) { answer(exchange, encode_rpc_error(message.id, error)); };
  const auto name = message.params.find("name");
  if (name == message.params.end() || !name->is_string()) return refuse(invalid_params("name: must be that of a tool"));
  const Tool* tool = find_tool(name->get_ref<const std::string&>());
  if (!tool || !is_offered(offered_, tool->name))
    return refuse(invalid_params(unknown_tool(offered_, name->get<std::string>())));
  Json arguments = message.params.value("arguments", Json::object());
  if (!arguments.is_object()) return refuse(invalid_params("arguments: not an object"));
  const bool taken = std::any_of(calls_.begin(), calls_.end(),
                                 [&](const Call& call) { return !call.cancelled && call.id == message.id; });
  if (taken) return refuse({RpcCode::kInvalidRequest, "id: that of a call that is still under way", nullptr});
  if (calls_.size() >= kMostCalls) {
    return refuse({RpcCode::kInternalError,
                   std::to_string(kMostCalls) + " calls wait already; send this one again when some have ended",
                   nullptr});
  }
  ++exchanges_[exchange].calls;
  const bool reads = effect_of(*tool, arguments) == ToolEffect::kReads;
  calls_.push_back({next_call_++, exchange, message.id, tool, std::move(arguments), reads, stateless});
}

void McpSession::cancel(const Json& request_id) {
  const auto call = std::find_if(calls_.begin(), calls_.end(),
                                 [&](const Call& one) { return !one.cancelled && one.id == request_id; });
  if (call == calls_.end()) return;  // it has ended meanwhile, or never was
  const uint64_t exchange = call->exchange;
  if (call->begun) {
    call->cancelled = true;
    actions_.emplace_back(McpCallStop{call->number});
  } else {
    calls_.erase(call);
  }
  leave(exchange);
}

std::vector<McpAction> McpSession::finished(uint64_t number, const Result<ToolOutcome>& outcome) {
  const auto call = std::find_if(calls_.begin(), calls_.end(), [&](const Call& one) { return one.number == number; });
  if (call == calls_.end()) return {};
  if (!call->cancelled) {
    answer(call->exchange,
           outcome ? encode_rpc_result(call->id,
                                       call->stateless ? complete(call_result(*outcome), false) : call_result(*outcome))
                   : encode_rpc_error(call->id, {RpcCode::kInternalError, outcome.error().to_string(), nullptr}));
    leave(call->exchange);
  }
  calls_.erase(call);
  begin_calls();
  return take_actions();
}

void McpSession::begin_calls() {
  bool first = true, all_read = true;
  for (auto& call : calls_) {
    const bool reads = call.reads;
    if (!call.begun && (first || (reads && all_read))) {
      call.begun = true;
      actions_.emplace_back(McpCallStart{call.number, std::string(call.tool->name), std::move(call.arguments)});
    }
    first = false;
    all_read = all_read && reads;
  }
}

// One thing less that the exchange waits for; after the last, the reply to it.
void McpSession::leave(uint64_t number) {
  auto& exchange = exchanges_.at(number);
  if (--exchange.calls > 0) return;
  McpReply reply{number, McpReply::Kind::kNothing, ""};
  if (!exchange.responses.empty()) {
    reply.kind = exchange.refused && !exchange.batch ? McpReply::Kind::kRefused : McpReply::Kind::kResponse;
    reply.text = exchange.batch ? "[" + join(exchange.responses, ",") + "]" : std::move(exchange.responses.front());
  }
  exchanges_.erase(number);
  actions_.emplace_back(std::move(reply));
}

std::vector<McpAction> McpSession::take_actions() { return std::exchange(actions_, {}); }

}  // namespace tandem::envs
