// Benchmarks of the HTTP server: its front over loopback sockets, and tokens through it beside those of the engine
// alone.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/file.h"
#include "bench/measure.h"
#include "bench/served.h"
#include "gateway/gateway.h"
#include "rollout/engine/engine.h"

namespace tandem::bench {

namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr int kConnections = 16;
constexpr auto kPatience = 60s;

// Keeps one request under way on each connection until `rounds` answers have come. `whole` says whether what came is an
// answer.
Status exchange(uint16_t port, int connections, const std::string& request, int rounds,
                const std::function<bool(std::string_view)>& whole) {
  std::vector<FileDescriptor> sockets;
  std::vector<pollfd> waits;
  std::vector<std::string> answers(connections);
  for (int i = 0; i < connections; ++i) {
    sockets.push_back(TRY(connect_to(port)));
    waits.push_back({sockets.back().get(), POLLIN, 0});
    TRY(write_all(sockets.back().get(), request, "request"));
  }
  int sent = connections, done = 0;
  const auto deadline = Steady::now() + kPatience;
  while (done < rounds) {
    if (::poll(waits.data(), waits.size(), 1000) < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (Steady::now() > deadline) return Status::deadline("the server did not answer in time");
    for (int i = 0; i < connections; ++i) {
      if ((waits[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      char buffer[16384];
      const ssize_t got = ::recv(waits[i].fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got == 0) return Status::unavailable("the server closed a connection");
      if (got < 0) continue;
      answers[i].append(buffer, static_cast<size_t>(got));
      if (!whole(answers[i])) continue;
      answers[i].clear();
      ++done;
      if (sent >= rounds) continue;
      ++sent;
      TRY(write_all(waits[i].fd, request, "request"));
    }
  }
  return {};
}

// Sends back as many bytes as an answer has for each request: what sockets alone allow.
class BareServer {
 public:
  BareServer(size_t request, size_t answer) : request_(request), answer_(answer, 'x') {
    listener_ = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&where), size) == 0 && ::listen(listener_.get(), 64) == 0 &&
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&where), &size) == 0)
      port_ = ntohs(where.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~BareServer() {
    stop_ = true;
    thread_.join();
  }
  uint16_t port() const { return port_; }

 private:
  void serve() {
    std::vector<FileDescriptor> sockets;
    std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}};
    std::vector<size_t> got = {0};
    while (!stop_) {
      if (::poll(waits.data(), waits.size(), 50) <= 0) continue;
      for (size_t i = 1; i < waits.size(); ++i) {
        if (waits[i].revents == 0) continue;
        char buffer[16384];
        const ssize_t n = ::recv(waits[i].fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n <= 0) waits[i].events = 0;
        for (got[i] += static_cast<size_t>(std::max<ssize_t>(n, 0)); got[i] >= request_; got[i] -= request_)
          (void)write_all(waits[i].fd, answer_, "answer");
      }
      if ((waits[0].revents & POLLIN) != 0) {
        sockets.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const int on = 1;
        ::setsockopt(sockets.back().get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        waits.push_back({sockets.back().get(), POLLIN, 0});
        got.push_back(0);
      }
    }
  }
  const size_t request_;
  const std::string answer_;
  FileDescriptor listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A gateway in this process, in front of one server.
class OwnGateway {
 public:
  static Result<std::unique_ptr<OwnGateway>> open(uint16_t upstream) {
    auto own_gateway = std::unique_ptr<OwnGateway>(new OwnGateway);
    gateway::GatewaySettings wanted{.front = {.port = 0}, .drain_seconds = 0, .version = "bench"};
    wanted.upstreams.push_back(TRY(gateway::upstream_of(fmt::format("http://127.0.0.1:{}", upstream))));
    own_gateway->gateway_ = TRY(gateway::Gateway::listen(std::move(wanted), own_gateway->clock_));
    own_gateway->thread_ = std::thread([raw = own_gateway.get()] {
      raw->status_ = raw->gateway_->serve([raw](const auto&) { raw->ready_ = true; }, raw->stop_, raw->read_keys_);
    });
    const auto deadline = Steady::now() + kPatience;
    while (!own_gateway->ready_ && Steady::now() < deadline) std::this_thread::sleep_for(1ms);
    if (!own_gateway->ready_) return fail(Status::deadline("the gateway did not reach its server"));
    return own_gateway;
  }
  ~OwnGateway() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint16_t port() const {
    return static_cast<uint16_t>(std::stoi(gateway_->url().substr(gateway_->url().rfind(':') + 1)));
  }

 private:
  SystemClock clock_;
  std::unique_ptr<gateway::Gateway> gateway_;
  std::atomic<bool> stop_{false}, read_keys_{false}, ready_{false};
  Status status_;
  std::thread thread_;
};

constexpr int kPrompt = 64, kSaid = 128;

// Tokens a second of the engine alone.
Result<double> engine_alone(const Settings& settings, int streams) {
  auto weights = std::make_shared<model::Weights>(TRY(load_model(settings, false)));
  auto engine =
      TRY(rollout::Engine::create(weights, 0, settings.place(), {.slots = std::max(streams, 1), .max_tokens = 512}));
  rollout::SequenceId next = 0;
  const double seconds = TRY(median_seconds(settings.seconds, [&]() -> Status {
    for (int i = 0; i < streams; ++i) {
      std::vector<int32_t> prompt(kPrompt, 5);
      ++next;
      TRY(engine.add(next, prompt, {.max_new_tokens = kSaid, .seed = next}));
    }
    while (!engine.idle()) TRY(engine.step());
    for (int i = 0; i < streams; ++i) engine.release(next - i);
    return {};
  }));
  return streams * kSaid / seconds;
}

}  // namespace

Result<std::vector<Figure>> bench_serve(const Settings& settings) {
  if (settings.model.empty()) return fail(Status::invalid("which model? --model DIR says it"));
  std::vector<Figure> figures;
  const std::string health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  constexpr int kRounds = 2000;
  constexpr size_t kAnswerBytes = 100;
  double sockets = 0;
  {
    const BareServer echo(health.size(), kAnswerBytes);
    sockets = kRounds / TRY(median_seconds(settings.seconds, [&] {
                return exchange(echo.port(), kConnections, health, kRounds,
                                [](std::string_view answer) { return answer.size() >= kAnswerBytes; });
              }));
  }
  std::map<int, double> alone;
  for (const int streams : {1, kConnections}) alone[streams] = TRY(engine_alone(settings, streams));
  const auto served = TRY(Served::start(settings, {}));
  const auto rate_at = [&](uint16_t port, const std::string& request, int connections, int rounds) -> Result<double> {
    return rounds / TRY(median_seconds(settings.seconds,
                                       [&] { return exchange(port, connections, request, rounds, ends_whole); }));
  };
  const auto rate = [&](const std::string& request, int connections, int rounds) {
    return rate_at(served->port(), request, connections, rounds);
  };
  const double healths = TRY(rate(health, kConnections, kRounds));
  figures.push_back({fmt::format("GET /health, {} connections", kConnections), healths, "/s", sockets, "sockets"});
  // Read, checked, made into tokens and answered, without a token to sample.
  const auto empty = post("/v1/completions", {{"model", "model"}, {"prompt", {5, 6, 7, 8}}, {"max_tokens", 0}});
  const double direct = TRY(rate(empty, kConnections, kRounds));
  figures.push_back(
      {fmt::format("completions of no token, {} connections", kConnections), direct, "/s", sockets, "sockets"});
  const auto own_gateway = TRY(OwnGateway::open(served->port()));
  const double through = TRY(rate_at(own_gateway->port(), empty, kConnections, kRounds));
  figures.push_back({"the same through a gateway", through, "/s", direct, "the server alone"});
  const std::vector<int32_t> prompt(kPrompt, 5);
  for (const int streams : {1, kConnections}) {
    const auto request =
        post("/v1/completions",
             {{"model", "model"}, {"prompt", prompt}, {"max_tokens", kSaid}, {"ignore_eos", true}, {"stream", true}});
    const double tokens = kSaid * TRY(rate(request, streams, streams));
    figures.push_back(
        {fmt::format("streamed tokens, {} at once", streams), tokens, "tok/s", alone[streams], "engine alone"});
    const double answers = TRY(rate_at(own_gateway->port(), request, streams, streams));
    figures.push_back({"the same through a gateway", kSaid * answers, "tok/s", tokens, "the server alone"});
  }
  return figures;
}

}  // namespace tandem::bench
