// Descriptors that go with a message over a Unix socket.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tandem::envs {

inline constexpr size_t kMostDescriptors = 2;  // beside one message

// `text`, which is not empty, in one message with the descriptors; they stay the caller's.
Status send_descriptors(int socket, std::string_view text, std::initializer_list<int> descriptors);

struct Received {
  std::string text;
  std::vector<FileDescriptor> descriptors;
};

// One message, `limit` bytes of it at most; waits for it. Empty where the other side is gone.
Received receive(int socket, size_t limit);

}  // namespace tandem::envs
