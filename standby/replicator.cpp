#include "standby/replicator.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace tandem::standby {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTurn = 50ms;

FileDescriptor event_fd() { return FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

std::optional<Digest> digest_of_beginning(const fs::path& path, uint64_t bytes) {
  if (bytes == 0) return digest_of(std::string_view());
  const auto mapped = MappedFile::open(path);
  if (!mapped || mapped->bytes().size() < bytes) return {};
  return digest_of(mapped->bytes().first(bytes));
}

std::string name_of(const std::string& address) { return address.substr(address.find("//") + 2); }

Source::Terms terms_of(const ReplicatorSettings& settings) {
  return {.name = name_of(settings.address),
          .paths = settings.paths,
          .epoch = settings.epoch,
          .first_life = (settings.epoch << 44) + (settings.start << 20),
          .run = settings.run,
          .goes_on = settings.goes_on,
          .digest_of_log = [folder = settings.run_dir](const std::string& path, uint64_t bytes) {
            return digest_of_beginning(folder / path, bytes);
          }};
}

}  // namespace

Replicator::Replicator(ReplicatorSettings settings)
    : settings_(std::move(settings)),
      wake_(event_fd()),
      work_wake_(event_fd()),
      source_(terms_of(settings_)),
      state_since_(SystemClock().now()) {
  thread_ = std::thread([this] { work(); });
}

Replicator::~Replicator() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = is_cancelled_ = true;
  }
  changed_.notify_all();
  poke(work_wake_.get());
  thread_.join();
}

void Replicator::poke(int fd) const {
  const uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

void Replicator::clear() const {
  uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
}

uint64_t Replicator::extend(const std::string& path, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t mark = source_.extend(path, bytes);
  poke(work_wake_.get());
  return mark;
}

fs::path Replicator::source_of(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = sources_.find(path);
  return found == sources_.end() ? settings_.run_dir / path : found->second;
}

Result<uint64_t> Replicator::put(const std::string& path, const fs::path& source) {
  const fs::path at = source.empty() ? settings_.run_dir / path : source;
  struct stat info {};
  if (::stat(at.c_str(), &info) != 0) return fail(Status::from_errno(at.string(), errno));
  Digest digest = digest_of(std::string_view());
  if (info.st_size > 0) digest = digest_of(TRY(MappedFile::open(at)).bytes());
  const std::lock_guard lock(mutex_);
  if (!source.empty()) sources_[path] = source;
  const uint64_t mark = source_.put(path, static_cast<uint64_t>(info.st_size), digest, (info.st_mode & S_IXUSR) != 0);
  poke(work_wake_.get());
  return mark;
}

Result<uint64_t> Replicator::put_all(const std::string& path, const std::string& last) {
  const fs::path root = settings_.run_dir / path;
  std::error_code error;
  if (!fs::is_directory(root, error)) return put(path);
  std::vector<std::string> files;
  for (auto it = fs::recursive_directory_iterator(root, fs::directory_options::follow_directory_symlink, error);
       it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    if (it->is_regular_file(error) && !(name.starts_with('.') && name.ends_with(".tmp")))
      files.push_back(it->path().lexically_relative(settings_.run_dir).generic_string());
    if (files.size() > kMostFiles)
      return fail(Status::exhausted(fmt::format("a copy has {} files at most", kMostFiles)).at(root.string()));
  }
  if (error) return fail(Status::from_errno(root.string(), error.value()));
  const auto is_last = [&](const std::string& file) { return !last.empty() && fs::path(file).filename() == last; };
  std::sort(files.begin(), files.end(), [&](const std::string& a, const std::string& b) {
    return std::pair(is_last(a), a) < std::pair(is_last(b), b);
  });
  uint64_t mark = 0;
  for (const std::string& file : files) mark = TRY(put(file));
  return mark;
}

uint64_t Replicator::link(const std::string& path, const std::string& target) {
  const std::lock_guard lock(mutex_);
  const uint64_t mark = source_.link(path, target);
  poke(work_wake_.get());
  return mark;
}

uint64_t Replicator::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const uint64_t mark = source_.remove(path);
  poke(work_wake_.get());
  return mark;
}

bool Replicator::covers(uint64_t mark) const {
  const std::lock_guard lock(mutex_);
  return source_.covers(mark);
}

Status Replicator::check() const {
  const std::lock_guard lock(mutex_);
  if (source_.state() != Source::State::kFenced) return {};
  return Status::unfit(fmt::format("the run was taken over at {}: it has epoch {} there, and this is epoch {}",
                                   source_.fence().holder, source_.fence().epoch, settings_.epoch));
}

Status Replicator::wait(uint64_t mark) const {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return source_.covers(mark) || is_cancelled_ || source_.state() == Source::State::kFenced; });
    if (source_.covers(mark)) return {};
    if (is_cancelled_) return Status::cancelled("the process ends, and the standby has not answered");
  }
  return check();
}

Status Replicator::meet(Duration patience) const {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return source_.has_answered() || is_cancelled_; });
  }
  return check();
}

std::vector<std::string> Replicator::news() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

void Replicator::cancel() {
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
  }
  changed_.notify_all();
}

bool Replicator::is_waited_for() const {
  const std::lock_guard lock(mutex_);
  return source_.state() == Source::State::kLost && source_.held() < source_.last_mark() && !settings_.goes_on;
}

Json Replicator::report(double unix_now) const {
  const std::lock_guard lock(mutex_);
  Json json = {{"host", name_of(settings_.address)},
               {"state", source_.shown_state()},
               {"since", unix_now - to_seconds(SystemClock().now() - state_since_)},
               {"whole", source_.held() >= source_.last_mark()},
               {"folder", source_.folder()}};
  if (!source_.trouble().ok()) json["trouble"] = source_.trouble().message();
  return json;
}

std::optional<std::string> Replicator::read_part(const std::string& path, uint64_t offset, uint64_t bytes) const {
  const fs::path at = source_of(path);
  const FileDescriptor file(::open(at.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::string part(bytes, '\0');
  for (uint64_t have = 0; have < bytes;) {
    const ssize_t got = ::pread(file.get(), part.data() + have, bytes - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    have += static_cast<uint64_t>(got);
  }
  return part;
}

// Under the lock.
void Replicator::note(Source::Turn& turn, std::vector<Request>& requests) {
  for (std::string& line : turn.news) {
    if (settings_.keeps_news)
      news_.push_back(std::move(line));
    else
      spdlog::warn("{}", line);
  }
  std::move(turn.requests.begin(), turn.requests.end(), std::back_inserter(requests));
}

void Replicator::send(const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    std::optional<std::string> bytes = std::string();
    std::string path;
    if (const auto* extend = std::get_if<Extend>(&request.op))
      bytes = read_part(path = extend->path, extend->offset, extend->bytes);
    else if (const auto* put = std::get_if<Put>(&request.op))
      bytes = read_part(path = put->path, put->offset, put->bytes);
    if (!bytes) {
      spdlog::warn("{} went before the standby had it", path);
      const std::lock_guard lock(mutex_);
      std::vector<Request> later;  // sent with the next turn: the survey is asked for again
      auto turn = source_.unreadable(path, SystemClock().now());
      note(turn, later);
      return;
    }
    wire::Outgoing message;
    write_request(request, std::as_bytes(std::span(*bytes)), message.body().initCopyRequest());
    if (has_bytes(request.op)) message.add_bulk(std::as_bytes(std::span(*bytes)));
    (void)socket_->send("", message);  // what is lost is sent again
  }
}

void Replicator::work() {
  const SystemClock clock;
  zmq::context_t context;
  // A host serves many runs, so a stream's name has its run in it.
  const wire::Identity identity{.sender = fmt::format("{:016x}/{}", settings_.run_id, settings_.stream),
                                .epoch = settings_.start,
                                .run = settings_.run_id};
  if (auto socket = wire::Socket::connect(context, settings_.address, identity, &settings_.secret))
    socket_ = std::move(*socket);
  else
    spdlog::error("the standby {}: {}", settings_.address, socket.error().to_string());
  for (;;) {
    if (socket_) {
      wire::Socket* const sockets[] = {&*socket_};
      wire::wait(sockets, kTurn, work_wake_.get());
    } else {
      std::this_thread::sleep_for(kTurn);
    }
    uint64_t count = 0;
    (void)!::read(work_wake_.get(), &count, sizeof count);
    std::vector<Answer> answers;
    for (int i = 0; socket_ && i < 256; ++i) {
      auto message = socket_->receive();
      if (!message) break;
      if (message->body().isCopyAnswer()) answers.push_back(read_answer(message->body().getCopyAnswer()));
    }
    std::vector<Request> requests;
    bool has_changed = false;
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) break;
      const auto before = std::pair(source_.held(), source_.state());
      for (const Answer& answer : answers) {
        auto turn = source_.on(answer, clock.now());
        note(turn, requests);
      }
      auto turn = source_.tick(clock.now());
      note(turn, requests);
      has_changed = !answers.empty() || before != std::pair(source_.held(), source_.state());
      if (before.second != source_.state()) state_since_ = clock.now();
    }
    if (has_changed) {
      changed_.notify_all();
      poke(wake_.get());
    }
    if (socket_) send(requests);
  }
  socket_.reset();
}

}  // namespace tandem::standby
