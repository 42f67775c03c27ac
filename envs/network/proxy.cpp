#include "envs/network/proxy.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

#include "base/text.h"
#include "envs/network/proxy_request.h"
#include "envs/network/relay.h"
#include "envs/tools/output.h"

namespace tandem::envs {

struct NetworkProxy::Gate {
  FileDescriptor listener;
  FileDescriptor stop;  // can be read once the listener is gone
  AllowList list;
  OnUse on_use;
  std::shared_ptr<PackageService> packages;  // may be null
  std::stop_source gone;                     // asked to stop once the listener is gone
  std::atomic<int64_t> budget{0};            // bytes that may still pass
  std::atomic<size_t> connections{0};
};

namespace {

constexpr int kPauseMilliseconds = 20;  // where nothing can be accepted
constexpr size_t kMostAddresses = 8;    // of a name that are tried
constexpr std::string_view kHeadEnd = "\r\n\r\n";

Result<std::vector<Address>> ask_name_service(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0)
    return fail(Status::unavailable(fmt::format("{}: {}", name, gai_strerror(error))));
  std::vector<Address> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char text[NI_MAXHOST] = "";
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (const auto address = parse_address(text)) addresses.push_back(*address);
  }
  freeaddrinfo(found);
  return addresses;
}

// False where the time is up or `stop` can be read.
bool wait_for(int socket, short events, Time deadline, int stop) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SystemClock().now()).count();
    if (left <= 0) return false;
    pollfd waits[2] = {{socket, events, 0}, {stop, POLLIN, 0}};
    const int ready = poll(waits, 2, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready < 0 && errno != EINTR) return false;
    if (waits[1].revents != 0) return false;
    if (ready > 0 && waits[0].revents != 0) return true;
  }
}

struct Answer {
  int status = 403;
  std::string why;
};

// What is closed with bytes unread is reset, and the answer lost with it.
void finish(int client, Time deadline, int stop) {
  shutdown(client, SHUT_WR);
  char bytes[4096];
  for (size_t read = 0; read < (1 << 20) && wait_for(client, POLLIN, deadline, stop);) {
    const ssize_t count = recv(client, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count <= 0) return;
    read += static_cast<size_t>(count);
  }
}

// The words stand in the first line, too: of an answer to CONNECT most programs show no more.
void refuse(int client, const Answer& answer, Time deadline, int stop) {
  const std::string line = "refused by the sandbox's proxy: " + answer.why;
  const std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}\n",
      answer.status, line, line.size() + 1, line);
  std::string_view rest = text;
  while (!rest.empty() && wait_for(client, POLLOUT, deadline, stop)) {
    const ssize_t count = send(client, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) return;
    rest.remove_prefix(static_cast<size_t>(count));
  }
  finish(client, deadline, stop);
}

// One connection of a sandbox, from its first byte to its last.
class Connection {
 public:
  Connection(const ProxyLimits& limits, const NetworkProxy::Resolve& resolve, NetworkProxy::Gate& gate, int client)
      : limits_(limits), resolve_(resolve), gate_(gate), client_(client), began_(clock_.now()) {}

  void serve() {
    if (const auto answer = run()) {
      use_.refused = answer->why;
      report();
      return refuse(client_.get(), *answer, clock_.now() + limits_.head, gate_.stop.get());
    }
    if (!use_.method.empty()) report();
  }

 private:
  void report() {
    use_.seconds = to_seconds(clock_.now() - began_);
    if (gate_.on_use) gate_.on_use(use_);
  }

  // What it is refused with; nothing where it was served, or its sender is gone.
  std::optional<Answer> run() {
    if (!read_head()) {
      if (received_.size() > kLargestProxyHead) return Answer{431, "the head of the request is too long"};
      return received_.empty() ? std::nullopt : std::optional(Answer{408, "the request did not come in time"});
    }
    const size_t end = received_.find(kHeadEnd) + kHeadEnd.size();
    const auto head = std::string_view(received_).substr(0, end);
    if (gate_.packages && asks_proxy_itself(head)) return answer_itself(head);
    const auto request = parse_proxy_request(head);
    if (!request) return Answer{400, request.error().message()};
    use_.method = request->method;
    use_.host = make_printable(request->host);
    use_.port = request->port;
    if (auto why = gate_.list.why_refused(request->host, request->port); !why.empty()) return closed(why);
    if (gate_.budget <= 0) return Answer{403, "the sandbox has used up its bytes"};
    auto host = connect(*request);
    if (!host) return Answer{host.error().code() == Code::kInvalid ? 403 : 502, host.error().message()};
    return pass_on(*request, received_.substr(end), *host);
  }

  // What is asked of the registries of packages.
  std::optional<Answer> answer_itself(std::string_view head) {
    const auto request = parse_package_request(head);
    if (!request) return Answer{400, request.error().message()};
    use_.method = request->method;
    use_.package = make_printable(request->path);
    if (gate_.budget <= 0) return Answer{403, "the sandbox has used up its bytes"};
    auto answer = gate_.packages->answer(*request, gate_.gone.get_token());
    use_.refused = std::move(answer.refused);
    use_.broken = std::move(answer.broken);
    const uint64_t size = answer.file ? answer.file_bytes : answer.body.size();
    std::string first =
        fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    answer.status, answer.status == 200 ? "OK" : "Not here", answer.type, size);
    if (request->method == "GET" && !answer.file) first += answer.body;
    bool sent = send_all(first);
    if (sent && request->method == "GET" && answer.file) sent = send_file(answer.file, size);
    if (!sent && use_.cut.empty()) use_.cut = "the program did not take all of it";
    report();
    finish(client_.get(), clock_.now() + limits_.head, gate_.stop.get());
    use_ = {};  // it has been told
    return std::nullopt;
  }

  bool send_file(const FileDescriptor& file, uint64_t size) {
    std::string piece(64 << 10, '\0');
    for (uint64_t at = 0; at < size;) {
      const ssize_t count =
          pread(file.get(), piece.data(), std::min<uint64_t>(piece.size(), size - at), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0 || !send_all(std::string_view(piece).substr(0, static_cast<size_t>(count)))) return false;
      at += static_cast<uint64_t>(count);
    }
    return true;
  }

  // Within the sandbox's bytes and the limits of a connection.
  bool send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const Time now = clock_.now();
      const Time deadline = std::min(now + limits_.idle, began_ + limits_.longest);
      if (gate_.budget <= 0) use_.cut = "the sandbox has used up its bytes";
      if (gate_.budget <= 0 || !wait_for(client_.get(), POLLOUT, deadline, gate_.stop.get())) return false;
      const ssize_t count = send(client_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
      use_.received += static_cast<uint64_t>(count);
      gate_.budget -= count;
    }
    return true;
  }

  Answer closed(const std::string& why) const { return {403, fmt::format("{}:{} is {}", use_.host, use_.port, why)}; }

  bool read_head() {
    const Time deadline = began_ + limits_.head;
    char bytes[4096];
    while (received_.find(kHeadEnd) == std::string::npos) {
      if (received_.size() > kLargestProxyHead || !wait_for(client_.get(), POLLIN, deadline, gate_.stop.get()))
        return false;
      const ssize_t count = recv(client_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count <= 0) return false;
      received_.append(bytes, static_cast<size_t>(count));
    }
    return true;
  }

  // kInvalid where none of its addresses is open.
  Result<FileDescriptor> connect(const ProxyRequest& request) {
    std::vector<Address> addresses;
    if (const auto address = parse_address(request.host)) {
      addresses.push_back(*address);
    } else {
      addresses = TRY(resolve_(host_name(request.host)));
      if (addresses.size() > kMostAddresses) addresses.resize(kMostAddresses);
    }
    Status trouble = Status::unavailable(fmt::format("{} has no address", use_.host));
    for (const auto& address : addresses) {
      if (auto why = gate_.list.why_refused(address, request.port); !why.empty()) {
        trouble = Status::invalid(fmt::format("the address of {}: {}", use_.host, why));
        continue;
      }
      auto host = connect(address, request.port);
      if (host) return host;
      trouble = std::move(host).error();
    }
    return fail(std::move(trouble));
  }

  Result<FileDescriptor> connect(const Address& address, uint16_t port) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    memcpy(&to.sin6_addr, address.bytes.data(), sizeof to.sin6_addr);
    sockaddr_in to_four{};
    to_four.sin_family = AF_INET;
    to_four.sin_port = to.sin6_port;
    memcpy(&to_four.sin_addr, address.bytes.data() + 12, sizeof to_four.sin_addr);
    const bool four = IN6_IS_ADDR_V4MAPPED(&to.sin6_addr);
    FileDescriptor host(socket(four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!host) return fail(Status::from_errno("socket", errno));
    const auto* where = four ? reinterpret_cast<const sockaddr*>(&to_four) : reinterpret_cast<const sockaddr*>(&to);
    int error = 0;
    if (::connect(host.get(), where, four ? sizeof to_four : sizeof to) != 0) error = errno;
    if (error == EINPROGRESS) {
      if (!wait_for(host.get(), POLLOUT, clock_.now() + limits_.connect, gate_.stop.get()))
        return fail(Status::unavailable(fmt::format("{}:{} does not answer", use_.host, port)));
      socklen_t size = sizeof error;
      getsockopt(host.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) return fail(Status::from_errno(fmt::format("{}:{}", use_.host, port), error));
    const int at_once = 1;
    setsockopt(host.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    return host;
  }

  std::optional<Answer> pass_on(const ProxyRequest& request, const std::string& early, const FileDescriptor& host) {
    RelayLimits limits{.idle = limits_.idle, .deadline = began_ + limits_.longest, .out_bytes = request.body_bytes};
    std::string first = early;
    if (request.tunnel) {
      limits.out_bytes.reset();
      constexpr std::string_view kOpened = "HTTP/1.1 200 Connection established\r\n\r\n";
      // An empty send buffer takes these few bytes whole.
      if (send(client_.get(), kOpened.data(), kOpened.size(), MSG_NOSIGNAL) < 0) return std::nullopt;
    } else {
      if (limits.out_bytes) {
        first.resize(std::min<uint64_t>(first.size(), *limits.out_bytes));
        *limits.out_bytes += request.head.size();
      }
      first = request.head + first;
    }
    auto relayed = relay(client_.get(), host.get(), std::move(first), limits, gate_.budget, gate_.stop.get());
    use_.sent = relayed.sent;
    use_.received = relayed.received;
    use_.cut = std::move(relayed.cut);
    return std::nullopt;
  }

  const SystemClock clock_;
  const ProxyLimits& limits_;
  const NetworkProxy::Resolve& resolve_;
  NetworkProxy::Gate& gate_;
  FileDescriptor client_;
  const Time began_;
  std::string received_;
  NetworkUse use_;
};

}  // namespace

struct NetworkProxy::Shared {
  struct Running {
    std::thread thread;
    std::atomic<bool> done{false};
  };

  Shared(const ProxyLimits& of_proxy, Resolve of_names)
      : limits(of_proxy), resolve(std::move(of_names)), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void accept_all() {
    std::list<Running> running;
    while (!stopping) {
      const auto open = gates_now();
      std::vector<pollfd> waits = {{wake.get(), POLLIN, 0}};
      for (const auto& gate : open) waits.push_back({gate->listener.get(), POLLIN, 0});
      poll(waits.data(), waits.size(), running.empty() ? -1 : 1000);
      uint64_t ignored = 0;
      (void)!read(wake.get(), &ignored, sizeof ignored);
      for (size_t i = 0; i < open.size(); ++i) {
        if (waits[i + 1].revents != 0) accept(open[i], running);
      }
      std::erase_if(running, [](Running& one) {
        if (!one.done) return false;
        one.thread.join();
        return true;
      });
    }
    for (auto& one : running) one.thread.join();
  }

  std::vector<std::shared_ptr<Gate>> gates_now() {
    std::lock_guard lock(mutex);
    return gates;
  }

  void accept(const std::shared_ptr<Gate>& gate, std::list<Running>& running) {
    FileDescriptor client(accept4(gate->listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // Where this process has no descriptor left, the connection waits for one and wakes us until then.
    if (!client && (errno == EMFILE || errno == ENFILE)) poll(nullptr, 0, kPauseMilliseconds);
    if (!client) return;
    if (gate->connections < limits.connections && running.size() < limits.all_connections) {
      if (serve(gate, client.get(), running)) (void)client.release();
      return;
    }
    // One that is closed at once is seen by its program as a proxy that does not answer.
    NetworkUse use;
    use.refused = "too many connections at once";
    if (gate->on_use) gate->on_use(use);
  }

  // False where this machine gives no thread; then the connection is closed.
  bool serve(const std::shared_ptr<Gate>& gate, int client, std::list<Running>& running) {
    auto& one = running.emplace_back();
    ++gate->connections;
    try {
      one.thread = std::thread([this, gate, &one, client] {
        Connection(limits, resolve, *gate, client).serve();
        --gate->connections;
        one.done = true;
      });
      return true;
    } catch (const std::system_error&) {
      --gate->connections;
      running.pop_back();
      return false;
    }
  }

  void tell() {
    const uint64_t one = 1;
    (void)!write(wake.get(), &one, sizeof one);
  }

  const ProxyLimits limits;
  const Resolve resolve;
  const FileDescriptor wake;
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::vector<std::shared_ptr<Gate>> gates;
  std::thread acceptor;
};

NetworkProxy::NetworkProxy() : NetworkProxy(ProxyLimits{}, ask_name_service) {}

NetworkProxy::NetworkProxy(const ProxyLimits& limits, Resolve resolve)
    : shared_(std::make_unique<Shared>(limits, std::move(resolve))) {
  shared_->acceptor = std::thread([shared = shared_.get()] { shared->accept_all(); });
}

NetworkProxy::~NetworkProxy() {
  shared_->stopping = true;
  shared_->tell();
  shared_->acceptor.join();
}

std::unique_ptr<NetworkProxy::Listener> NetworkProxy::open(FileDescriptor listener, AllowList list, OnUse on_use,
                                                           std::shared_ptr<PackageService> packages) {
  const auto gate = std::make_shared<Gate>();
  gate->listener = std::move(listener);
  gate->stop = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  gate->list = std::move(list);
  gate->on_use = std::move(on_use);
  gate->packages = std::move(packages);
  gate->budget = static_cast<int64_t>(shared_->limits.bytes);
  {
    std::lock_guard lock(shared_->mutex);
    shared_->gates.push_back(gate);
  }
  shared_->tell();
  return std::unique_ptr<Listener>(new Listener(*this, gate));
}

NetworkProxy::Listener::~Listener() {
  const uint64_t one = 1;
  (void)!write(gate_->stop.get(), &one, sizeof one);
  gate_->gone.request_stop();
  {
    std::lock_guard lock(proxy_.shared_->mutex);
    std::erase(proxy_.shared_->gates, gate_);
  }
  proxy_.shared_->tell();
}

}  // namespace tandem::envs
