#include "envs/mcp_server/mcp_stdio.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "envs/mcp/line_splitter.h"

namespace tandem::envs {
namespace {

constexpr int kMcpStdioCallThreads = 8;
constexpr int kMcpStdioTurnMilliseconds = 100;   // in which `stop` is seen
constexpr size_t kMostOutput = size_t{8} << 20;  // bytes that wait to be read; beyond, no more is taken in
constexpr auto kSlowestClient = std::chrono::seconds(60);
// A pipe that can be written to takes so many bytes without blocking.
constexpr size_t kPiece = 4096;

class Lines {
 public:
  Lines(const McpServing& serving, int in, int out)
      : in_(in), out_(out), queue_(kMcpStdioCallThreads, McpSession::kMostCalls) {
    peer_ = McpPeer::create(serving, queue_, [this](const McpReply& reply) {
      if (reply.kind == McpReply::Kind::kNothing) return;
      output_.push_back(reply.text + "\n");
      output_bytes_ += output_.back().size();
    });
  }

  Status run(const std::atomic<bool>& stop) {
    while (!stop && (open_ || peer_->busy() || !output_.empty())) TRY(turn());
    return {};
  }

 private:
  Status turn() {
    const bool reading = open_ && output_bytes_ < kMostOutput;
    if (output_.empty()) taken_at_ = clock_.now();
    // Without an event to wait for, poll still tells that nobody reads any more.
    std::array<pollfd, 3> waits = {
        pollfd{reading ? in_ : -1, POLLIN, 0},
        pollfd{out_, static_cast<short>(output_.empty() ? 0 : POLLOUT), 0},
        pollfd{queue_.wake_fd(), POLLIN, 0},
    };
    if (poll(waits.data(), waits.size(), kMcpStdioTurnMilliseconds) < 0) {
      if (errno == EINTR) return {};
      return Status::from_errno("poll", errno);
    }
    if (waits[2].revents != 0) queue_.run_completions();
    if ((waits[1].revents & (POLLERR | POLLNVAL)) != 0) return Status::unavailable("nobody reads the answers any more");
    if ((waits[1].revents & POLLOUT) != 0) TRY(write_piece());
    if (clock_.now() - taken_at_ > kSlowestClient) return Status::deadline("the client has read nothing for a minute");
    if (waits[0].revents != 0) TRY(read_piece());
    return {};
  }

  Status write_piece() {
    const auto rest = std::string_view(output_.front()).substr(written_);
    const ssize_t count = write(out_, rest.data(), std::min(rest.size(), kPiece));
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      return Status::unavailable("nobody reads the answers any more");
    }
    if (count <= 0) return {};
    taken_at_ = clock_.now();
    written_ += static_cast<size_t>(count);
    output_bytes_ -= static_cast<size_t>(count);
    if (written_ == output_.front().size()) {
      output_.pop_front();
      written_ = 0;
    }
    return {};
  }

  Status read_piece() {
    std::array<char, 65536> buffer;
    const ssize_t count = read(in_, buffer.data(), buffer.size());
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) return {};
      return Status::from_errno("reading requests", errno);
    }
    // The last line counts without an end, too.
    lines_.append(count == 0 ? std::string_view("\n") : std::string_view(buffer.data(), static_cast<size_t>(count)));
    open_ = count != 0;
    while (const auto line = lines_.next()) peer_->receive(next_exchange_++, *line);
    return {};
  }

  const SystemClock clock_;
  const int in_, out_;
  bool open_ = true;
  Time taken_at_{};
  LineSplitter lines_{kLargestRpcFrame};
  std::deque<std::string> output_;  // lines that wait to be read
  size_t output_bytes_ = 0;         // of them, less what is written of the first
  size_t written_ = 0;
  uint64_t next_exchange_ = 1;
  WorkQueue queue_;
  std::shared_ptr<McpPeer> peer_;  // goes first: it cancels what the queue waits for
};

}  // namespace

Status serve_mcp_stdio(const McpServing& serving, int in, int out, const std::atomic<bool>& stop) {
  return Lines(serving, in, out).run(stop);
}

}  // namespace tandem::envs
