// Benchmarks of messages.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bench/measure.h"
#include "wire/address.h"
#include "wire/socket.h"

namespace tandem::bench {

namespace {

using namespace std::chrono_literals;

// Answers every message with its own bulk until told to stop.
class Echo {
 public:
  static Result<std::unique_ptr<Echo>> start(zmq::context_t& context, const std::string& address) {
    auto echo = std::unique_ptr<Echo>(new Echo(TRY(wire::Socket::listen(context, address, {"server", 1, 1}))));
    echo->thread_ = std::thread([raw = echo.get()] { raw->serve(); });
    return echo;
  }
  ~Echo() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  explicit Echo(wire::Socket socket) : socket_(std::move(socket)) {}
  void serve() {
    wire::Socket* const sockets[] = {&socket_};
    while (!stop_) {
      wire::wait(sockets, 50ms);
      while (auto message = socket_.receive()) {
        wire::Outgoing answer(message->id());
        answer.body().setWatch();
        // A client that is gone is no failure of the measurement; it notices itself that nothing comes back.
        (void)socket_.send(message->sender(), answer);
      }
    }
  }
  wire::Socket socket_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Sends one message with `bytes` of bulk and waits for its answer.
Status round_trip(wire::Socket& client, uint64_t id, std::span<const std::byte> bulk) {
  wire::Outgoing message(id);
  message.body().setWatch();
  if (!bulk.empty()) message.add_bulk(bulk);
  TRY(client.send("", message));
  wire::Socket* const sockets[] = {&client};
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (std::chrono::steady_clock::now() < deadline) {
    wire::wait(sockets, 100ms);
    while (auto answer = client.receive()) {
      if (answer->id() == id) return {};
    }
  }
  return Status::deadline("the echo did not answer within 5 s");
}

// A connection is made in the background; until it stands, nothing can be sent.
Status connected(wire::Socket& client) {
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  Status status;
  do {
    if (status = round_trip(client, 0, {}); status.code() != Code::kExhausted) return status;
    wire::Socket* const sockets[] = {&client};
    wire::wait(sockets, 10ms);
  } while (std::chrono::steady_clock::now() < deadline);
  return status;
}

}  // namespace

Result<std::vector<Figure>> bench_wire(const Settings& settings) {
  auto stream = TRY(kernels::Stream::cpu(1));
  const double bandwidth = kernels::measure_read_bandwidth(stream);
  zmq::context_t context;
  const std::string address = wire::Address::of_path(fmt::format("/tmp/tandem-bench-{}.sock", ::getpid())).text();
  const auto echo = TRY(Echo::start(context, address));
  auto client = TRY(wire::Socket::connect(context, address, {"client", 1, 1}));
  TRY(connected(client));
  uint64_t id = 0;
  const double small = TRY(median_seconds(settings.seconds, [&] { return round_trip(client, ++id, {}); }));
  std::vector<Figure> figures = {{"round trip, no bulk", small * 1e6, "us", 0, ""}};
  const std::vector<std::byte> chunk(size_t{4} << 20, std::byte{1});
  const double large = TRY(median_seconds(settings.seconds, [&] { return round_trip(client, ++id, chunk); }));
  // The bytes are copied into the message, into the socket, and out of it.
  figures.push_back({"chunks of 4 MiB, one at a time", static_cast<double>(chunk.size()) / large / 1e9, "GB/s",
                     bandwidth / 3 / 1e9, "memory"});
  return figures;
}

}  // namespace tandem::bench
