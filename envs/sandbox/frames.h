// Messages over a stream socket: length, then bytes; bounded in size and in time.
//
// Thread safety: one thread sends and one receives at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace tandem::envs {

inline constexpr size_t kLargestFrame = size_t{64} << 20;

// kDeadline when `deadline` passes first, kUnavailable when the other side is gone, kCorrupt for a length out of
// bounds. After any error the stream is not usable any more.
Status send_frame(int socket, std::string_view bytes, Time deadline);
Result<std::string> receive_frame(int socket, Time deadline);

}  // namespace tandem::envs
