#include "serve/front.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "serve/cors.h"

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

constexpr Duration kKeepAlive = 75s;

wire::HttpLimits limits_of(const FrontSettings& settings) {
  wire::HttpLimits limits;
  limits.header_bytes = size_t{32} << 10;
  limits.body_bytes = size_t{16} << 20;
  limits.connections = settings.connections;
  limits.transfer = 30s;
  limits.keep_alive = kKeepAlive;
  return limits;
}

bool is_loopback(std::string_view host) { return host.starts_with("127.") || host == "::1"; }

}  // namespace

void Front::read_files_again(bool surely) {
  access->refresh(surely);
  const auto again = tls ? tls->refresh(surely) : Result<bool>(false);
  if (!again) spdlog::error("the certificate stays as it is: {}", again.error().to_string());
  if (again && *again) spdlog::info("the certificate was read again");
}

Result<Front> open_front(const FrontSettings& settings, const Clock& clock) {
  if (!is_loopback(settings.host) && settings.access.key_file.empty() && settings.access.key_book.empty()) {
    return fail(
        Status::invalid(fmt::format("{} can be reached from other machines, and there are no keys", settings.host))
            .hint("give --api-key-file F, a file with a key on each line"));
  }
  TRY(check_origins(settings.cors_origins));
  auto access = TRY(Access::open(settings.access, clock));
  if (settings.tls_certificate.empty() != settings.tls_key.empty())
    return fail(Status::invalid("serve.tls_certificate and serve.tls_key are set together, or none of them"));
  std::shared_ptr<wire::Tls> tls;
  if (!settings.tls_certificate.empty()) tls = TRY(wire::Tls::open(settings.tls_certificate, settings.tls_key));
  if (!tls && !is_loopback(settings.host))
    spdlog::warn("{} is served without TLS: keys and prompts can be read on the way (--tls-certificate)",
                 settings.host);
  auto http = TRY(wire::HttpServer::listen(settings.host, settings.port, limits_of(settings), tls));
  const bool v6 = settings.host.find(':') != std::string::npos;
  std::string url =
      fmt::format("{}://{}:{}", tls ? "https" : "http", v6 ? "[" + settings.host + "]" : settings.host, http.port());
  return Front{.url = std::move(url), .access = std::move(access), .tls = std::move(tls), .http = std::move(http)};
}

}  // namespace tandem::serve
