#include "dashboard/view_server.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::dashboard {

namespace {

using Answer = std::function<Result<ServedPage>(const std::string& path)>;
using wire::HttpRequest;
using wire::HttpResponse;

HttpResponse respond(const HttpRequest& request, uint16_t port, const Answer& answer) {
  const auto host = request.header("host");
  if (host != fmt::format("127.0.0.1:{}", port) && host != fmt::format("localhost:{}", port)) {
    return HttpResponse::plain(403, "this page is only for 127.0.0.1\n");
  }
  if (request.method != "GET" && request.method != "HEAD") return HttpResponse::plain(405, "GET or HEAD\n");
  auto page = answer(request.path);
  if (!page) {
    return HttpResponse::plain(page.error().code() == Code::kNotFound ? 404 : 500, page.error().message() + "\n");
  }
  return {200, {{"Content-Type", page->type}}, std::move(page->body)};
}

}  // namespace

Result<ViewServer> ViewServer::listen(uint16_t port) {
  auto server = wire::HttpServer::listen("127.0.0.1", port, {});
  if (server) return ViewServer(std::move(*server));
  return fail(std::move(server).error().hint("give another port with --port, or none for any that is free"));
}

Status ViewServer::serve(const Answer& answer, const std::atomic<bool>& stop) {
  wire::HttpHandler handler;
  handler.answer = [&](const HttpRequest& request, const wire::HttpReply& reply) {
    auto response = respond(request, port(), answer);
    response.headers.insert(response.headers.end(), {{"Cache-Control", "no-store"},
                                                     {"X-Content-Type-Options", "nosniff"},
                                                     {"X-Frame-Options", "DENY"},
                                                     {"Referrer-Policy", "no-referrer"},
                                                     {"Cross-Origin-Resource-Policy", "same-origin"}});
    reply(std::move(response));
  };
  return server_.serve(handler, stop);
}

}  // namespace tandem::dashboard
