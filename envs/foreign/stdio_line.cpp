#include "envs/foreign/stdio_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "envs/foreign/environment_answers.h"
#include "envs/mcp/line_splitter.h"
#include "envs/sandbox/keeper.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr size_t kKeptErrorBytes = 4096;
constexpr double kSecondsToEnd = 1;
constexpr size_t kMostPassedOver = 10'000;

class StdioLine final : public EnvironmentLine {
 public:
  StdioLine(int process, FileDescriptor socket, FileDescriptor errors)
      : process_(process), socket_(std::move(socket)), errors_(std::move(errors)), lines_(kLargestEnvironmentAnswer) {}

  ~StdioLine() override {
    ::shutdown(socket_.get(), SHUT_WR);
    const Time end = clock_.now() + from_seconds(is_broken_ ? 0 : kSecondsToEnd);
    siginfo_t info{};
    while (clock_.now() < end) {
      if (::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0)
        break;
      pollfd wait = {socket_.get(), POLLIN, 0};
      ::poll(&wait, 1, 10);
      if (wait.revents != 0 && !take_output()) ::poll(nullptr, 0, 1);
    }
    ::kill(-process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  Result<Json> ask(const std::string& method, const Json& params, double seconds) override {
    std::unique_lock lock(mutex_, std::chrono::duration<double>(seconds));
    if (!lock) {
      return fail(Status::exhausted(fmt::format("questions of other episodes took the {} s that {} may wait for its "
                                                "turn",
                                                seconds, method))
                      .hint("raise env.external_programs, or env.external_seconds"));
    }
    if (is_broken_) return fail(Status::cancelled("its program was ended, after a failure of another episode"));
    bool is_answered = false;
    auto answer = answer_to(method, params, seconds, is_answered);
    is_broken_ = !is_answered;
    if (is_answered) send_told();
    return answer;
  }

  void tell(const std::string& method, const Json& params) override {
    {
      std::lock_guard lock(told_mutex_);
      told_.push_back({.id = ++last_id_, .line = {}});
      told_.back().line = line_of(told_.back().id, method, params);
    }
    // Else who asks now sends it.
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock && !is_broken_) send_told();
  }
  bool is_broken() const override { return is_broken_; }

 private:
  static std::string line_of(uint64_t id, const std::string& method, const Json& params) {
    return dump_json({{"id", id}, {"method", method}, {"params", params}}) + "\n";
  }

  // What nobody waits for an answer to. One that does not read has its line broken: what is half sent cannot be left.
  void send_told() {
    std::vector<Told> told;
    {
      std::lock_guard lock(told_mutex_);
      told.swap(told_);
    }
    const Time deadline = clock_.now() + from_seconds(kSecondsToTell);
    for (const Told& each : told) {
      passed_over_.insert(each.id);
      for (size_t sent = 0; sent < each.line.size();) {
        const double left = to_seconds(deadline - clock_.now());
        pollfd wait = {socket_.get(), POLLIN | POLLOUT, 0};
        if (left > 0) ::poll(&wait, 1, static_cast<int>(std::ceil(left * 1000)));
        if ((wait.revents & POLLIN) != 0) (void)take_output();  // it may wait for room to write before it reads
        const ssize_t count =
            ::send(socket_.get(), each.line.data() + sent, each.line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) sent += static_cast<size_t>(count);
        if (left > 0 && (count > 0 || errno == EAGAIN || errno == EINTR)) continue;
        if (sent == each.line.size()) break;
        is_broken_ = true;
        return;
      }
    }
    // A program may answer nothing that it is told.
    while (passed_over_.size() > kMostPassedOver) passed_over_.erase(passed_over_.begin());
  }

  // The next line that is no answer to what was told.
  std::optional<std::string> next_line() {
    while (auto line = lines_.next()) {
      if (passed_over_.empty() || line->size() > kLargestEnvironmentAnswer) return line;
      const auto json = parse_json(*line);
      const bool has_id = json && json->is_object() && json->contains("id") && json->at("id").is_number_unsigned();
      if (!has_id || passed_over_.erase(json->at("id").get<uint64_t>()) == 0) return line;
    }
    return std::nullopt;
  }

  // `is_answered`: what came back is the answer to this question, be it an error.
  Result<Json> answer_to(const std::string& method, const Json& params, double seconds, bool& is_answered) {
    if (next_line()) return fail(Status::corrupt("it answered what nobody had asked"));
    const uint64_t id = ++last_id_;
    std::string out = line_of(id, method, params);
    const Time deadline = clock_.now() + from_seconds(seconds);
    size_t sent = 0;
    for (;;) {
      if (auto line = next_line()) return read(*line, id, is_answered);
      const double left = to_seconds(deadline - clock_.now());
      if (left <= 0) return fail(Status::deadline(fmt::format("did not answer {} within {} s", method, seconds)));
      std::array<pollfd, 2> waits = {
          pollfd{socket_.get(), static_cast<short>(sent < out.size() ? POLLIN | POLLOUT : POLLIN), 0},
          pollfd{errors_.get(), POLLIN, 0}};
      ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(left * 1000)));
      if (waits[1].revents != 0) take_errors();
      if ((waits[0].revents & POLLOUT) != 0) {
        const ssize_t count = ::send(socket_.get(), out.data() + sent, out.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) sent += static_cast<size_t>(count);
        if (count < 0 && errno != EAGAIN && errno != EINTR) return fail(has_ended());
      }
      if ((waits[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !take_output()) {
        if (auto line = next_line()) return read(*line, id, is_answered);
        return fail(has_ended());
      }
    }
  }

  // False at the end of its output.
  bool take_output() {
    std::array<char, 65536> buffer;
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) lines_.append({buffer.data(), static_cast<size_t>(count)});
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }

  void take_errors() {
    std::array<char, 4096> buffer;
    const ssize_t count = ::read(errors_.get(), buffer.data(), buffer.size());
    if (count > 0) {
      said_.append(buffer.data(), static_cast<size_t>(count));
      if (said_.size() > kKeptErrorBytes) said_.erase(0, said_.size() - kKeptErrorBytes);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      errors_.reset();
    }
  }

  Status has_ended() {
    for (int i = 0; i < 16 && errors_; ++i) {
      pollfd wait = {errors_.get(), POLLIN, 0};
      if (::poll(&wait, 1, 50) <= 0) break;
      take_errors();
    }
    const auto lines = split_lines(trim(said_));
    return Status::unavailable(
        fmt::format("its program has ended: {}", lines.empty() ? std::string("nothing on standard error")
                                                               : replace_invalid_utf8(trim(lines.back()))));
  }

  static Result<Json> read(const std::string& line, uint64_t id, bool& is_answered) {
    if (line.size() > kLargestEnvironmentAnswer)
      return fail(Status::exhausted(fmt::format("answered more than {} bytes", kLargestEnvironmentAnswer)));
    auto answer = parse_json(line);
    if (!answer) return fail(Status::corrupt("answered no JSON: " + answer.error().message()));
    if (!answer->is_object() || !answer->contains("id"))
      return fail(Status::corrupt("answered no {\"id\": NUMBER, \"result\": {...}}"));
    if (answer->at("id") != Json(id))
      return fail(Status::corrupt(fmt::format("answered to id {}, asked was {}", dump_json(answer->at("id")), id)));
    is_answered = true;
    if (answer->contains("error") && !answer->at("error").is_null()) {
      const Json& error = answer->at("error");
      return fail(Status::unavailable("said: " +
                                      (error.is_object() && error.contains("message") && error.at("message").is_string()
                                           ? error.at("message").get<std::string>()
                                           : dump_json(error))));
    }
    if (!answer->contains("result")) return fail(Status::corrupt("answered neither a result nor an error"));
    return answer->at("result");
  }

  const SystemClock clock_;
  const int process_;
  FileDescriptor socket_, errors_;
  LineSplitter lines_;
  std::string said_;  // the end of its standard error
  struct Told {
    uint64_t id = 0;
    std::string line;
  };
  std::mutex told_mutex_;
  std::vector<Told> told_;          // not sent yet
  std::set<uint64_t> passed_over_;  // ids of what was told and not answered
  std::atomic<uint64_t> last_id_{0};
  std::timed_mutex mutex_;  // of one question at a time
  std::atomic<bool> is_broken_{false};
};

}  // namespace

Result<std::unique_ptr<EnvironmentLine>> open_stdio_line(const EnvironmentSpec& spec) {
  std::array<int, 2> ends{}, pipe{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(Status::from_errno("socketpair", errno));
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return fail(Status::from_errno("pipe", errno));
  FileDescriptor errors(pipe[0]), writer(pipe[1]);
  ::fcntl(errors.get(), F_SETFL, O_NONBLOCK);
  std::error_code error;
  ProcessSpec process{.argv = kept({"/bin/sh", "-c", spec.command}),
                      .directory = fs::current_path(error),
                      .environment = {"LANG=C.UTF-8", "PYTHONUNBUFFERED=1"}};
  for (const char* name : {"PATH", "HOME"}) {
    if (const char* value = std::getenv(name)) process.environment.push_back(fmt::format("{}={}", name, value));
  }
  const int id = TRY(start_process(process, theirs.get(), writer.get()));
  return std::make_unique<StdioLine>(id, std::move(ours), std::move(errors));
}

}  // namespace tandem::envs
