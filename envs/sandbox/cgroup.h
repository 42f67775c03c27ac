// Limits on all processes of a sandbox together, where this machine lets us make control groups.
//
// Version 1 (pids and memory hierarchies) and version 2. Groups are named tandem-PID-N, reused, since making them is
// slow, and removed when the spawner ends; groups that a killed spawner left are swept by the next one. Where no group
// can be made, rlimits stand alone. Thread safety: none; owned by the spawner.
//
// A process that moves into a group can make every fork of the machine wait for 20 ms. So each group has a maker: a
// process that was moved there once, stays, and makes the sandboxes that are to be in it (envs/sandbox/spawner.cpp).
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

  struct Group {
    std::vector<std::string> folders;
    FileDescriptor maker;  // the socket of the process that makes sandboxes in it; invalid where there is none
    FileDescriptor user;   // a pidfd; readable when the sandbox that used it has ended
    uint64_t memory_bytes = 0;
    int processes = 0;
  };

  // A group that nobody uses, with the limits of the spec; null where there is none. Good until the next call.
  Group* take(const SandboxSpec& spec);
  // Moves a process into it.
  static void enter(const Group& group, pid_t process);
  // The process whose pidfd this is uses the group from now on; when it has ended the group is free.
  static void give(Group& group, int pidfd);
  void clear();

  // Whether groups can be made here: "v1", "v2" or empty.
  static std::string available();

 private:
  Group* free_group();
  bool set(Group& group, const SandboxSpec& spec);

  std::string kind_;
  std::vector<std::string> parents_;  // where folders are made, one of each hierarchy
  std::vector<Group> groups_;
  int made_ = 0;
};

}  // namespace tandem::envs
