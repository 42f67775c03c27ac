// The Model Context Protocol over two descriptors: one message a line, one client, until its input ends.
#pragma once

#include <atomic>

#include "base/status.h"
#include "envs/mcp_server/mcp_peer.h"

namespace tandem::envs {

// Answers what comes on `in` until it ends; then the calls that are under way run to their end, as long as somebody
// reads `out`. `stop` ends everything at once. kUnavailable where nobody reads `out`, kDeadline where the client takes
// nothing for a minute. The descriptors stay the caller's; they may be pipes, sockets, terminals or files.
Status serve_mcp_stdio(const McpServing& serving, int in, int out, const std::atomic<bool>& stop);

}  // namespace tandem::envs
