#include "hosts/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/unique_number.h"
#include "hosts/reach.h"
#include "run/spread.h"
#include "wire/address.h"

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kFirstRemote = int64_t{1} << 40;  // above what the kernel numbers its processes with
constexpr double kReachSeconds = 5, kKeySeconds = 8;
constexpr Duration kGoodbye = 5s;
constexpr Duration kBackForGood = 10s;  // up for so long, a host gets its roles back

// A port of `ip` that nobody else gets while the descriptor is open: bound, and not listened at, so that a role can
// listen there, again and again.
Result<std::pair<FileDescriptor, int>> reserve_port(const std::string& ip) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail(Status::from_errno("socket", errno));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, ip.c_str(), &address.sin_addr) != 1) {
    return fail(Status::invalid(fmt::format("\"{}\" is not an IPv4 address", ip))
                    .at("run.address")
                    .hint("give the address of this machine that the hosts can reach"));
  }
  socklen_t length = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return fail(Status::from_errno(fmt::format("a port of {}, the address of this machine for its hosts", ip), errno));
  return std::pair(std::move(socket), static_cast<int>(ntohs(address.sin_port)));
}

// A key for the processes of one attempt, as text of its file.
Result<std::string> make_run_key(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
  TRY(wire::Secret::create(path));
  return read_file(path, 1 << 12);
}

}  // namespace

HostLauncher::HostLauncher(LauncherSettings settings, const Clock& clock)
    : settings_(std::move(settings)), clock_(clock), session_(unique_number()), last_process_(kFirstRemote) {}

HostLauncher::~HostLauncher() {
  const auto is_open = [](const auto& host) {
    return host->line.state() != Line::State::kRefused && host->line.state() != Line::State::kLost &&
           host->line.state() != Line::State::kLeft;
  };
  std::map<const Host*, bool> waiting;
  for (auto& host : hosts_) {
    send(*host, Close{});
    if (is_open(host)) waiting[host.get()] = true;
  }
  // A host that is not told gives itself back when the lease ends.
  for (const Time limit = clock_.now() + kGoodbye; !waiting.empty() && clock_.now() < limit;) {
    std::vector<wire::Socket*> sockets;
    for (auto& host : hosts_) sockets.push_back(&host->socket);
    wire::wait(sockets, 50ms);
    for (auto& host : hosts_) {
      while (auto message = host->socket.receive()) {
        const auto body = message->body();
        if (body.isHostAnswer() && body.getHostAnswer().isClosed()) waiting.erase(host.get());
      }
    }
  }
}

Status HostLauncher::prepare(const std::function<void(const std::string&)>& progress) {
  bundle_ = TRY(bundle_of(settings_.config, settings_.run_dir));
  secret_ = TRY(wire::Secret::read(settings_.config.run.key));
  for (const std::string& address : settings_.config.run.hosts) {
    if (Status status = connect(address, hosts_.size()); !status) return std::move(status).at("run.hosts");
  }
  TRY(choose_addresses());
  run_listener_ = TRY(RunListener::open(context_, ip_, *secret_));
  return await_hosts(progress);
}

Status HostLauncher::connect(const std::string& address, size_t index) {
  const wire::Identity identity{.sender = fmt::format("{:016x}/supervisor-{:x}", settings_.layout.run_id(), session_),
                                .epoch = session_,
                                .run = settings_.layout.run_id(),
                                .hears_other_protocols = true};
  auto reached = reach(TRY(wire::Address::parse(address)), kReachSeconds);
  if (!reached) return Status::unfit(reached.error().message()).hint(reached.error().hint());
  Line line({.name = run::name_of_host(address),
             .open = {.version = settings_.version,
                      .weights = settings_.config.model.weights,
                      .run = run::name_of_run(settings_.run_dir),
                      .epoch = settings_.layout.epoch(),
                      .holder = settings_.holder},
             .numerics_id = settings_.numerics_id,
             .bundle = &bundle_,
             .texts = [this, index](const fs::path& home) { return texts_for(index, home); }});
  auto socket = TRY(wire::Socket::connect(context_, address, identity, &*secret_));
  auto host = std::make_unique<Host>(Host{.address = address,
                                          .line = std::move(line),
                                          .socket = std::move(socket),
                                          .ip = reached->ip,
                                          .own_ip = reached->own_ip,
                                          .state_since = clock_.now()});
  if (index == hosts_.size())
    hosts_.push_back(std::move(host));
  else
    hosts_[index] = std::move(host);
  return {};
}

wire::Peer HostLauncher::next_of(wire::Role role) {
  wire::Peer next{role, settings_.topology.count(role)};
  while (brought_.contains(next)) ++next.rank;
  return next;
}

Status HostLauncher::join(const std::string& address) {
  constexpr size_t kMostHosts = 256;
  const auto parsed = wire::Address::parse(address);
  if (!parsed || parsed->host().empty())
    return Status::invalid(fmt::format("\"{}\" is not the address of a host", address.substr(0, 100)));
  size_t index = 0;
  while (index < hosts_.size() && hosts_[index]->address != address) ++index;
  const bool is_new = index == hosts_.size();
  if (!is_new && hosts_[index]->line.state() != Line::State::kLeft &&
      hosts_[index]->line.state() != Line::State::kRefused)
    return {};  // asked again, or back by itself
  if (is_new && hosts_.size() >= kMostHosts)
    return Status::exhausted(fmt::format("a run has {} hosts at most", kMostHosts));
  TRY(connect(address, index));
  news_.push_back(fmt::format("host {} joins", hosts_[index]->line.name()));
  if (!is_new) return {};  // its roles have been there all the time
  const int share = std::max<int>(
      1, settings_.topology.count(wire::Role::kRollout) / static_cast<int>(settings_.config.run.hosts.size()));
  for (int i = 0; i <= share; ++i) {
    const wire::Peer peer = next_of(i == 0 ? wire::Role::kEnv : wire::Role::kRollout);
    brought_[peer] = index;
    hosts_[index]->brings.push_back(peer);
  }
  return {};
}

Status HostLauncher::leave(const std::string& name) {
  for (auto& host : hosts_) {
    if (host->line.name() != name && host->address != name) continue;
    host->line.give_back();
    return {};
  }
  return Status::not_found(fmt::format("the run has no host {}", name.substr(0, 100)));
}

Status HostLauncher::choose_addresses() {
  ip_ = settings_.config.run.address.empty() ? hosts_.front()->own_ip : settings_.config.run.address;
  for (std::string* address : {&coordinator_, &trainer_}) {
    auto [reserved, port] = TRY(reserve_port(ip_));
    reserved_.push_back(std::move(reserved));
    *address = wire::Address::of_port(ip_, port).text();
  }
  const fs::path folder = settings_.layout.socket_folder();
  TRY(make_private_folder(folder));
  key_text_ = TRY(make_run_key(folder / run::kRunKeyFile));
  return write_file(
      folder / run::kWiringFile,
      run::wiring_text(
          {.host = std::string(run::kLocalHost), .ip = ip_, .coordinator = coordinator_, .trainer = trainer_}));
}

Result<std::vector<HomeText>> HostLauncher::texts_for(size_t host, const fs::path& home) const {
  auto texts = TRY(texts_of(settings_.config, settings_.run_dir, home));
  texts.push_back({.path = fmt::format("sockets/{}", run::kRunKeyFile), .content = key_text_});
  texts.push_back({.path = fmt::format("sockets/{}", run::kWiringFile),
                   .content = run::wiring_text({.host = hosts_[host]->line.name(),
                                                .ip = hosts_[host]->ip,
                                                .coordinator = coordinator_,
                                                .trainer = trainer_})});
  return texts;
}

Status HostLauncher::await_hosts(const std::function<void(const std::string&)>& progress) {
  const Time began = clock_.now();
  std::map<const Host*, bool> told;
  for (;;) {
    std::vector<wire::Socket*> sockets;
    for (auto& host : hosts_) sockets.push_back(&host->socket);
    wire::wait(sockets, 50ms);
    pump();
    news_.clear();  // what happens here is said by the error, or by progress
    bool all_up = true;
    for (const auto& host : hosts_) {
      const Line& line = host->line;
      if (line.state() == Line::State::kRefused)
        return Status::unfit(fmt::format("host {}: {}", line.name(), line.refusal().message()))
            .at("run.hosts")
            .hint(line.refusal().hint());
      if (line.state() == Line::State::kReaching && line.opened().home.empty() &&
          to_seconds(clock_.now() - began) > kKeySeconds) {
        return Status::unfit(fmt::format("host {} listens, and does not answer to the key in {}", line.name(),
                                         settings_.config.run.key))
            .at("run.key")
            .hint("the file must be a copy of what `tandem host --key` has there; hosts are silent to strangers");
      }
      if (line.bytes_to_send() > 0 && !told[host.get()]) {
        told[host.get()] = true;
        progress(fmt::format("sending {:.1f} MiB to host {}", static_cast<double>(line.bytes_to_send()) / (1 << 20),
                             line.name()));
      }
      all_up = all_up && line.state() == Line::State::kUp;
    }
    if (all_up) return {};
  }
}

void HostLauncher::send(Host& host, const Request& request) {
  wire::Outgoing message;
  write_request(session_, request, message.body().initHostRequest());
  if (const auto* send = std::get_if<SendChunk>(&request)) {
    const auto mapped = MappedFile::open(host.line.source_of(send->chunk.digest));
    if (!mapped || mapped->bytes().size() < send->chunk.offset)
      return;  // it was removed: the line tries again, and says so
    const auto rest = mapped->bytes().subspan(send->chunk.offset);
    message.add_bulk(rest.first(std::min(rest.size(), kChunkBytes)));
  }
  (void)host.socket.send("", message);  // a line asks again
}

void HostLauncher::carry_out(Host& host, Line::Turn turn) {
  for (const Request& request : turn.requests) send(host, request);
  for (const Line::Said& said : turn.said) {
    const fs::path path = logs_ / said.log;
    const FileDescriptor log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (log) (void)write_all(log.get(), said.text, path.string());
  }
  for (const Line::Ended& ended : turn.ended) {
    const auto process = static_cast<int64_t>(ended.number);
    if (remote_.erase(process) == 0) continue;
    endings_.push_back({.process = process, .code = ended.code, .signal = ended.signal, .how = ended.how});
  }
  for (std::string& text : turn.news) news_.push_back(std::move(text));
  if (host.line.state() == host.last_state) return;
  host.last_state = host.line.state();
  host.state_since = clock_.now();
  if (host.last_state != Line::State::kUp) return;
  for (const wire::Peer& peer : std::exchange(host.brings, {})) more_roles_.push_back(peer);
}

void HostLauncher::pump() {
  for (auto& host : hosts_) {
    for (int i = 0; i < 64; ++i) {
      auto message = host->socket.receive();
      if (!message) break;
      const auto body = message->body();
      if (!body.isHostAnswer() || body.getHostAnswer().getSession() != session_) continue;
      if (auto answer = read_answer(body.getHostAnswer())) carry_out(*host, host->line.on(*answer, clock_.now()));
    }
    carry_out(*host, host->line.tick(clock_.now()));
  }
}

bool HostLauncher::belongs_here(const wire::Peer& peer) const {
  if (brought_.contains(peer)) return false;
  const run::Place* place = settings_.topology.find(peer);
  return place == nullptr || place->host == run::kLocalHost;
}

size_t HostLauncher::own_host(const wire::Peer& peer) const {
  if (const auto found = brought_.find(peer); found != brought_.end()) return found->second;
  const run::Place* place = settings_.topology.find(peer);
  size_t own = 0;
  while (own < hosts_.size() && (place == nullptr || place->host != hosts_[own]->line.name())) ++own;
  return own;
}

void HostLauncher::bring_back() {
  for (auto& [process, remote] : remote_) {
    const size_t own = own_host(remote.peer);
    if (remote.is_moving || own == remote.host || own >= hosts_.size()) continue;
    const Host& host = *hosts_[own];
    if (!host.line.takes_roles() || clock_.now() - host.state_since < kBackForGood) continue;
    remote.is_moving = true;
    news_.push_back(fmt::format("{} moves back to host {}", to_string(remote.peer), host.line.name()));
    hosts_[remote.host]->line.end(static_cast<uint64_t>(process), JobEnd::kAsk);
  }
}

std::optional<size_t> HostLauncher::choose(const wire::Peer& peer) const {
  std::vector<Machine> machines;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    machines.push_back(
        {.takes_roles = hosts_[i]->line.takes_roles(), .memory_bytes = hosts_[i]->line.opened().memory_bytes});
  }
  for (const auto& [process, remote] : remote_) ++machines[remote.host].roles[remote.peer.role];
  return hosts::place(peer.role, own_host(peer), machines, settings_.needs);
}

std::string HostLauncher::no_room_for(const wire::Peer& peer) const {
  if (belongs_here(peer) || choose(peer)) return "";
  return "waiting for a host with room";
}

Result<int64_t> HostLauncher::start(const run::Job& job) {
  logs_ = job.log.parent_path();
  if (belongs_here(job.peer)) return local_.start(job);
  const auto chosen = choose(job.peer);
  if (!chosen) return fail(Status::unavailable(no_room_for(job.peer)));
  // The home that it works in is the host's matter.
  std::vector<std::string> arguments;
  for (size_t i = 0; i < job.arguments.size(); ++i) {
    if (job.arguments[i] == "--run-dir")
      ++i;
    else
      arguments.push_back(job.arguments[i]);
  }
  const int64_t process = ++last_process_;
  Host& host = *hosts_[*chosen];
  remote_[process] = {.host = *chosen, .peer = job.peer};
  host.line.start(static_cast<uint64_t>(process), std::move(arguments), job.log.filename().string());
  if (own_host(job.peer) != *chosen)
    news_.push_back(fmt::format("{} starts on host {}", to_string(job.peer), host.line.name()));
  carry_out(host, host.line.tick(clock_.now()));
  return process;
}

std::vector<run::Ending> HostLauncher::poll() {
  pump();
  bring_back();
  if (run_listener_) {
    run_listener_->serve([this](const Join& more) { return join(more.address); },
                         [this](const Leave& less) { return leave(less.host); });
  }
  auto endings = local_.poll();
  std::move(endings_.begin(), endings_.end(), std::back_inserter(endings));
  endings_.clear();
  return endings;
}

void HostLauncher::end(int64_t process, run::EndKind kind) {
  const auto found = remote_.find(process);
  if (found == remote_.end()) return local_.end(process, kind);
  hosts_[found->second.host]->line.end(static_cast<uint64_t>(process),
                                       kind == run::EndKind::kAsk ? JobEnd::kAsk : JobEnd::kNow);
  pump();
}

void HostLauncher::await(int64_t process) {
  const auto found = remote_.find(process);
  if (found == remote_.end()) return local_.await(process);
  // The line gives a host up that does not answer, and with it the process.
  wire::Socket* const sockets[] = {&hosts_[found->second.host]->socket};
  while (remote_.contains(process)) {
    wire::wait(sockets, 20ms);
    pump();
  }
  std::erase_if(endings_, [&](const run::Ending& ending) { return ending.process == process; });
}

run::Where HostLauncher::where(int64_t process) const {
  const auto found = remote_.find(process);
  if (found == remote_.end())
    return {.host = std::string(run::kLocalHost), .pid = process < kFirstRemote ? process : 0};
  const Line& line = hosts_[found->second.host]->line;
  return {.host = line.name(), .pid = line.pid(static_cast<uint64_t>(process))};
}

std::string HostLauncher::taken_over() const {
  for (const auto& host : hosts_) {
    if (host->line.fence()) return host->line.refusal().message();
  }
  return "";
}

Json HostLauncher::hosts() const {
  Json all = Json::array();
  for (const auto& host : hosts_) {
    const Line& line = host->line;
    Json roles = Json::array();
    for (const auto& [process, remote] : remote_) {
      if (hosts_[remote.host] == host) roles.push_back(to_string(remote.peer));
    }
    all.push_back({{"host", line.name()},
                   {"address", host->address},
                   {"state", line.shown_state()},
                   {"since", clock_.unix_seconds() - to_seconds(clock_.now() - host->state_since)},
                   {"silent", line.silent_seconds(clock_.now())},
                   {"cores", line.opened().cores},
                   {"memory_bytes", line.opened().memory_bytes},
                   {"sent_bytes", line.bytes_sent()},
                   {"roles", roles}});
  }
  return all;
}

}  // namespace tandem::hosts
