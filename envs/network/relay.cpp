#include "envs/network/relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tandem::envs {
namespace {

constexpr size_t kChunk = 64 << 10;

// One way: what was read and has not been written yet.
struct Way {
  int from = -1, to = -1;
  std::optional<uint64_t> left = {};  // that may still be read
  std::string waiting = {};
  uint64_t passed = 0;
  bool ended = false;   // nothing more will be read
  bool closed = false;  // and the other side has been told

  bool wants_to_read() const { return !ended && waiting.empty(); }
  bool wants_to_write() const { return !waiting.empty(); }

  // False where the connection is broken.
  bool read(std::atomic<int64_t>& budget) {
    std::string bytes(std::min<uint64_t>(kChunk, left.value_or(kChunk)), '\0');
    const ssize_t count = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    ended = count == 0;
    bytes.resize(static_cast<size_t>(count));
    take(std::move(bytes), budget);
    return true;
  }

  void take(std::string bytes, std::atomic<int64_t>& budget) {
    if (left) {
      bytes.resize(std::min<uint64_t>(bytes.size(), *left));
      *left -= bytes.size();
      ended = ended || *left == 0;
    }
    budget -= static_cast<int64_t>(bytes.size());
    waiting += bytes;
  }

  bool write() {
    const ssize_t count = send(to, waiting.data(), waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    passed += static_cast<uint64_t>(count);
    waiting.erase(0, static_cast<size_t>(count));
    return true;
  }

  void pass_on_end(bool half_close) {
    if (closed || !ended || !waiting.empty()) return;
    closed = true;
    if (half_close) shutdown(to, SHUT_WR);
  }
};

}  // namespace

Relayed relay(int client, int host, std::string early, const RelayLimits& limits, std::atomic<int64_t>& budget,
              int stop) {
  Way out{.from = client, .to = host, .left = limits.out_bytes}, in{.from = host, .to = client};
  out.take(std::move(early), budget);
  if (limits.out_bytes == 0) out.ended = true;
  const SystemClock clock;
  std::string cut;
  Time last = clock.now();
  while (cut.empty()) {
    // A request of known length ends by its length: a host may take a closed connection for one who has gone.
    out.pass_on_end(!limits.out_bytes);
    in.pass_on_end(true);
    if (in.closed && (out.closed || limits.out_bytes)) break;
    const Time now = clock.now(), until = std::min(limits.deadline, last + limits.idle);
    if (now >= until) {
      cut = limits.deadline <= now ? "it took too long" : "nothing came for too long";
      break;
    }
    pollfd waits[3] = {{client, 0, 0}, {host, 0, 0}, {stop, POLLIN, 0}};
    for (const Way* way : {&out, &in}) {
      waits[way == &out ? 0 : 1].events |= way->wants_to_read() ? POLLIN : 0;
      waits[way == &out ? 1 : 0].events |= way->wants_to_write() ? POLLOUT : 0;
    }
    // A side that nobody waits for must not wake us by having ended.
    for (auto& wait : waits) wait.fd = wait.events == 0 ? -1 : wait.fd;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    if (poll(waits, 3, static_cast<int>(std::min<int64_t>(left, 60'000))) <= 0) continue;
    if (waits[2].revents != 0) {
      cut = "the sandbox has ended";
      break;
    }
    last = clock.now();
    if (waits[0].revents != 0 && out.wants_to_read() && !out.read(budget)) cut = "the program broke off";
    if (waits[1].revents != 0 && in.wants_to_read() && !in.read(budget)) cut = "the host broke off";
    if (cut.empty() && out.wants_to_write() && !out.write()) cut = "the host broke off";
    if (cut.empty() && in.wants_to_write() && !in.write()) cut = "the program broke off";
    if (cut.empty() && budget < 0) cut = "the sandbox has used up its bytes";
  }
  return {.sent = out.passed, .received = in.passed, .cut = std::move(cut)};
}

}  // namespace tandem::envs
