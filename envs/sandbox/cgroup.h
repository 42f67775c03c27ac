// Limits on all processes of a sandbox together, where this machine lets us make control groups.
//
// Version 1 (pids and memory hierarchies) and version 2. Groups are named tandem-PID-N, reused, since making them is
// slow, and removed when the spawner ends; groups that a killed spawner left are swept by the next one. Where no group
// can be made, rlimits stand alone. Thread safety: none; owned by the spawner.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class CgroupPool {
 public:
  CgroupPool();
  ~CgroupPool() { clear(); }

  // Puts a fresh process into a group with the limits of the spec. `process` is watched to know when the group is free.
  void place(pid_t process, int pidfd, const SandboxSpec& spec);
  void clear();

  // Whether groups can be made here: "v1", "v2" or empty.
  static std::string available();

 private:
  struct Group {
    std::vector<std::string> folders;
    FileDescriptor user;  // a pidfd; readable when the sandbox that used it has ended
    uint64_t memory_bytes = 0;
    int processes = 0;
  };
  Group* free_group();
  bool set(Group& group, const SandboxSpec& spec);

  std::string kind_;
  std::vector<std::string> parents_;  // where folders are made, one of each hierarchy
  std::vector<Group> groups_;
  int made_ = 0;
};

}  // namespace tandem::envs
