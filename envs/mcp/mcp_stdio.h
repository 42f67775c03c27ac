// The Model Context Protocol over two descriptors: one message a line, one client, until its input ends.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "envs/mcp/mcp_peer.h"

namespace tandem::envs {

// Bytes as they come, as lines. No more than limit + 1 bytes of a line are kept: whoever reads it sees that it is too
// long. Empty lines are passed over.
class LineSplitter {
 public:
  explicit LineSplitter(size_t limit) : limit_(limit) {}
  void append(std::string_view bytes);
  std::optional<std::string> next();

 private:
  const size_t limit_;
  std::string line_;  // whose end has not come yet
  std::deque<std::string> lines_;
};

// Answers what comes on `in` until it ends; then the calls that are under way run to their end, as long as somebody
// reads `out`. `stop` ends everything at once. kUnavailable where nobody reads `out`, kDeadline where the client takes
// nothing for a minute. The descriptors stay the caller's; they may be pipes, sockets, terminals or files.
Status serve_mcp_stdio(const McpServing& serving, int in, int out, const std::atomic<bool>& stop);

}  // namespace tandem::envs
