#include "envs/mcp_server/mcp_http.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "envs/mcp/revisions.h"

namespace tandem::envs {
namespace {

using wire::HttpRequest;
using wire::HttpResponse;

constexpr int kCallThreads = 16;
constexpr size_t kMostWaitingCalls = 256;  // of all sessions together
constexpr wire::HttpLimits kLimits = {
    .header_bytes = 16384, .body_bytes = kLargestRpcFrame, .connections = 128, .transfer = std::chrono::seconds(30)};

// As long for any text of the same length, so that time tells nothing of the token.
bool is_loopback(std::string_view address) { return address.starts_with("127.") || address == "::1"; }

// Hosts and types are the same in any case.
std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

// Whether a header that lists what it allows, with commas between, allows `type`.
bool accepts_json(std::string_view header) {
  if (header.empty()) return true;
  for (const auto part : split(header, ',')) {
    const auto type = in_small_letters(trim(part.substr(0, part.find(';'))));
    if (type == "application/json" || type == "application/*" || type == "*/*") return true;
  }
  return false;
}

HttpResponse json_response(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

// A client that cannot read the words of HTTP reads these.
HttpResponse refusal(int status, std::string why) {
  return json_response(status, encode_rpc_error(nullptr, {RpcCode::kInvalidRequest, std::move(why), nullptr}));
}

struct HttpClient {
  std::shared_ptr<McpPeer> peer;
  std::map<uint64_t, wire::HttpReply> waiting;  // by exchange
  std::string id;                               // empty until it has initialized
  Time seen{};
};

class Endpoint {
 public:
  Endpoint(const McpHttpSettings& settings, const McpServing& serving, const Clock& clock, uint16_t port)
      : settings_(settings), serving_(serving), clock_(clock), port_(port), queue_(kCallThreads, kMostWaitingCalls) {}

  WorkQueue& queue() { return queue_; }

  // Nothing where the request may go on.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const {
    const auto host = in_small_letters(request.header("host"));
    const std::string here = fmt::format(":{}", port_);
    if (is_loopback(settings_.address) && host != "127.0.0.1" + here && host != "localhost" + here &&
        host != "[::1]" + here && host != settings_.address + here) {
      return refusal(403, "Host: not this server");
    }
    if (const auto origin = request.header("origin"); !origin.empty() && in_small_letters(origin) != "http://" + host) {
      return refusal(403, "Origin: not this server");
    }
    if (!equal_in_constant_time(request.header("authorization"), "Bearer " + settings_.token)) {
      auto response = refusal(401, "Authorization: must be \"Bearer\" and the token of this server");
      response.headers.emplace_back("WWW-Authenticate", "Bearer");
      return response;
    }
    if (request.path != "/mcp") return refusal(404, "the endpoint is /mcp");
    const auto revision = request.header("mcp-protocol-version");
    if (!revision.empty() && revision != kStatelessRevision &&
        std::find(kMcpRevisions.begin(), kMcpRevisions.end(), revision) == kMcpRevisions.end()) {
      return refusal(400, "MCP-Protocol-Version: not one of 2025-11-25, 2025-06-18, 2025-03-26");
    }
    return std::nullopt;
  }

  void answer(HttpRequest request, wire::HttpReply reply) {
    // A sandbox belongs to a session, and this revision has none. The error tells a client which ones do, by the number
    // that the client waits for.
    if (request.header("mcp-protocol-version") == kStatelessRevision) {
      const auto frame = decode_rpc_frame(request.body);
      const RpcError error = {RpcCode::kUnsupportedRevision,
                              "Unsupported protocol version",
                              {{"supported", kMcpRevisions}, {"requested", kStatelessRevision}}};
      const Json id = frame.messages.empty() ? Json() : frame.messages.front().id;
      return reply(json_response(400, encode_rpc_error(id, error)));
    }
    if (request.method == "POST") return post(std::move(request), std::move(reply));
    if (request.method != "DELETE") {
      auto response = refusal(405, "POST or DELETE; there is no stream to GET");
      response.headers.emplace_back("Allow", "POST, DELETE");
      return reply(std::move(response));
    }
    const std::string id(request.header("mcp-session-id"));
    if (id.empty()) return reply(refusal(400, "Mcp-Session-Id: missing"));
    if (!clients_.contains(id)) return reply(no_session());
    end(id, "the session was ended");
    reply({204, {}, ""});
  }

  void end_idle() {
    for (auto it = clients_.begin(); it != clients_.end();) {
      const auto& [id, client] = *it++;
      if (!client->peer->busy() && clock_.now() - client->seen > settings_.idle)
        end(std::string(id), "the session ended");
    }
  }

 private:
  static HttpResponse no_session() { return refusal(404, "there is no such session; begin one with initialize"); }

  void post(HttpRequest request, wire::HttpReply reply) {
    if (!accepts_json(request.header("accept")))
      return reply(refusal(406, "Accept: application/json is what there is"));
    const auto type = request.header("content-type");
    if (in_small_letters(trim(type.substr(0, type.find(';')))) != "application/json") {
      return reply(refusal(415, "Content-Type: must be application/json"));
    }
    const std::string id(request.header("mcp-session-id"));
    if (id.empty()) return begin(request, std::move(reply));
    const auto found = clients_.find(id);
    if (found == clients_.end()) return reply(no_session());
    receive(found->second, request.body, std::move(reply));
  }

  // Without a session, a frame can only begin one.
  void begin(const HttpRequest& request, wire::HttpReply reply) {
    if (clients_.size() >= settings_.sessions) {
      return reply(refusal(503, fmt::format("{} sessions are open already; end one by DELETE", settings_.sessions)));
    }
    auto client = std::make_shared<HttpClient>();
    client->peer = McpPeer::create(serving_, queue_, [this, weak = std::weak_ptr(client)](McpReply answer) {
      if (const auto self = weak.lock()) give(*self, std::move(answer));
    });
    receive(client, request.body, [this, client, reply = std::move(reply)](HttpResponse response) {
      if (client->peer->initialized()) {
        client->id = random_token();
        response.headers.emplace_back("Mcp-Session-Id", client->id);
        clients_.emplace(client->id, client);
      } else if (response.body.empty()) {
        response = refusal(400, "Mcp-Session-Id: missing; a session begins with initialize");
      } else {
        response.status = 400;
      }
      reply(std::move(response));
    });
  }

  void receive(const std::shared_ptr<HttpClient>& client, std::string_view frame, wire::HttpReply reply) {
    client->seen = clock_.now();
    const uint64_t exchange = next_exchange_++;
    client->waiting.emplace(exchange, std::move(reply));
    client->peer->receive(exchange, frame);
  }

  void give(HttpClient& client, McpReply answer) {
    client.seen = clock_.now();
    auto waiting = client.waiting.extract(answer.exchange);
    if (!waiting) return;
    switch (answer.kind) {
      case McpReply::Kind::kNothing:
        return waiting.mapped()({202, {}, ""});
      case McpReply::Kind::kResponse:
        return waiting.mapped()(json_response(200, std::move(answer.text)));
      case McpReply::Kind::kRefused:
        return waiting.mapped()(json_response(400, std::move(answer.text)));
    }
  }

  void end(const std::string& id, const char* why) {
    const auto client = clients_.extract(id).mapped();
    for (auto& [exchange, reply] : client->waiting) reply(refusal(404, why));
  }

  const McpHttpSettings& settings_;
  const McpServing& serving_;
  const Clock& clock_;
  const uint16_t port_;
  uint64_t next_exchange_ = 1;
  WorkQueue queue_;
  std::map<std::string, std::shared_ptr<HttpClient>> clients_;  // go first: they cancel what the queue waits for
};

}  // namespace

std::string random_token() {
  unsigned char bytes[16];
  if (getentropy(bytes, sizeof bytes) != 0) std::abort();  // it cannot fail for so few
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

McpHttp::McpHttp(McpHttpSettings settings, McpServing serving, const Clock& clock, wire::HttpServer server)
    : settings_(std::move(settings)), serving_(std::move(serving)), clock_(&clock), server_(std::move(server)) {}

Result<McpHttp> McpHttp::listen(McpHttpSettings settings, McpServing serving, const Clock& clock) {
  if (settings.token.empty()) return fail(Status::invalid("the token is empty"));
  auto server = TRY(wire::HttpServer::listen(settings.address, settings.port, kLimits));
  return McpHttp(std::move(settings), std::move(serving), clock, std::move(server));
}

std::string McpHttp::url() const {
  const bool v6 = settings_.address.find(':') != std::string::npos;
  return fmt::format("http://{}:{}/mcp", v6 ? "[" + settings_.address + "]" : settings_.address, server_.port());
}

Status McpHttp::serve(const std::atomic<bool>& stop) {
  Endpoint endpoint(settings_, serving_, *clock_, server_.port());
  server_.watch(endpoint.queue().wake_fd(), [&] { endpoint.queue().run_completions(); });
  wire::HttpHandler handler;
  handler.refuse = [&](const HttpRequest& request) { return endpoint.refuse(request); };
  handler.answer = [&](HttpRequest request, wire::HttpReply reply) {
    endpoint.answer(std::move(request), std::move(reply));
  };
  handler.tick = [&] { endpoint.end_idle(); };
  return server_.serve(handler, stop);
}

}  // namespace tandem::envs
