// Stands between the listening socket of a role and whoever connects from now on, and flips bytes on the way.
//
// Speaks ZeroMQ's framing (ZMTP 3: a greeting of 64 bytes, then frames of flags, size and bytes) just as far as to hit
// the middle of bulk frames: a message whose header or control part were hit would be another matter.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace tandem {

// Follows one direction of one connection.
class FrameCorrupter {
 public:
  // One frame of each message, the first of at least `smallest` bytes, is hit as long as `left` lasts: what is refused
  // is the message, so two hits in one would be one refusal.
  FrameCorrupter(size_t smallest, std::atomic<int>& left) : smallest_(smallest), left_(left) {}
  void pass(std::string& bytes);

 private:
  const size_t smallest_;
  std::atomic<int>& left_;
  uint64_t greeting_ = 64, body_ = 0, hit_in_ = UINT64_MAX;
  std::string head_;
  bool is_hit_ = false;  // the message of which frames are passing
};

class CorruptingProxy {
 public:
  struct Hits {
    size_t smallest = 0;  // bytes of a frame
    int count = 0;
  };
  // Moves the socket file aside and listens in its place.
  CorruptingProxy(fs::path socket, Hits from_role, Hits to_role);
  ~CorruptingProxy();

  // How many messages are still to be hit.
  int left_from_role() const { return left_from_role_; }
  int left_to_role() const { return left_to_role_; }

 private:
  void serve(int client);
  const fs::path socket_, real_;
  const Hits from_role_, to_role_;
  std::atomic<int> left_from_role_, left_to_role_;
  std::atomic<bool> stop_{false};
  FileDescriptor listener_;
  std::vector<std::thread> connections_;
  std::thread accepting_;
};

}  // namespace tandem
