// The revisions of the Model Context Protocol that are spoken.
#pragma once

#include <array>
#include <string_view>

namespace tandem::envs {

// The newest first.
inline constexpr std::array<std::string_view, 3> kMcpRevisions = {"2025-11-25", "2025-06-18", "2025-03-26"};

}  // namespace tandem::envs
