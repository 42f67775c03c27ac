// The revisions of the Model Context Protocol that are spoken.
#pragma once

#include <array>
#include <string_view>

namespace tandem::envs {

// Revisions that begin with initialize, the newest first.
inline constexpr std::array<std::string_view, 3> kMcpRevisions = {"2025-11-25", "2025-06-18", "2025-03-26"};

// The one without a beginning: each request says its revision and client in `_meta`, and server/discover what a server
// speaks.
inline constexpr std::string_view kStatelessRevision = "2026-07-28";
inline constexpr const char* kRevisionKey = "io.modelcontextprotocol/protocolVersion";

}  // namespace tandem::envs
