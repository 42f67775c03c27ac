// Unix sockets: connections by their path, and descriptors that go with a message.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tandem::envs {

// A stream socket that listens at `path`, for anybody who can reach it, and one that is connected there. kInvalid where
// the path is too long for a socket.
Result<FileDescriptor> listen_at(const std::string& path);
Result<FileDescriptor> connect_to(const std::string& path);

inline constexpr size_t kMostDescriptors = 8;  // beside one message

// `text`, which is not empty, in one message with the descriptors; they stay the caller's. Those
// below 0 are none.
Status send_descriptors(int socket, std::string_view text, std::span<const int> descriptors);
Status send_descriptors(int socket, std::string_view text, std::initializer_list<int> descriptors);

struct Received {
  std::string text;
  std::vector<FileDescriptor> descriptors;
  bool cut = false;  // some did not come: this process may open no more files (`ulimit -n`)
};

// One message, `limit` bytes of it at most; waits for it. Empty where the other side is gone.
Received receive(int socket, size_t limit);

// The content of a file, independent of its offset; the first 1000 bytes, trimmed.
std::string written_to(const FileDescriptor& file);

}  // namespace tandem::envs
