// Control groups: limits on all processes of a sandbox together, where this machine permits them.
//
// Version 1 (pids and memory hierarchies) and version 2. Groups are named tandem-OWNER-N (owner.h), reused, since
// making them is slow, and removed when the spawner ends or when more of them are idle than were in use of late; groups
// that a killed spawner left are swept by the next one. Where no group can be made, rlimits stand alone. Thread safety:
// none; owned by the spawner.
//
// A process that moves into a group can make every fork of the machine wait for 20 ms. So each group has a maker: a
// process that was moved there once, stays, and makes the sandboxes that are to be in it (envs/sandbox/spawner.cpp).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "envs/sandbox/recent_use.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class CgroupPool {
 public:
  // Each group is for a sandbox and for so many processes of ours beside it.
  explicit CgroupPool(int beside = 1);
  ~CgroupPool() { clear(); }

  struct Group {
    std::vector<std::string> folders;
    FileDescriptor maker;  // the socket of the process that makes sandboxes in it; invalid where there is none
    uint64_t system = 0;   // state_of_system() when that began
    FileDescriptor user;   // a pidfd; readable when the sandbox that used it has ended
    uint64_t memory_bytes = 0;
    int processes = 0;
    bool sealable = false;  // its sandbox may have left files in memory that others are on
  };

  // A group that nobody uses, with the limits of the spec; null where there is none. Good until the next call.
  Group* take(const SandboxSpec& spec, Time now);
  // Moves a process into it.
  static void enter(const Group& group, pid_t process);
  // The process whose pidfd this is uses the group from now on; when it has ended the group is free.
  static void give(Group& group, int pidfd);
  // Lets go of idle groups that a burst of a while ago has left, with their makers, and removes folders of groups that
  // are no more as soon as the last process has gone. When to call again though nothing happens, if ever.
  std::optional<Time> tidy(Time now);
  void clear();

  // Whether groups can be made here: "v1", "v2" or empty.
  static std::string available();

 private:
  Group* free_group();
  bool holds_files(const Group& group) const;
  void let_go(size_t index);
  bool set(Group& group, const SandboxSpec& spec);
  void sweep(const std::string& parent);
  void remove_leaving();

  const int beside_;
  std::string kind_;
  std::vector<std::string> parents_;  // where folders are made, one of each hierarchy
  std::vector<Group> groups_;         // the first that is free is taken, so that those at the end fall idle
  std::vector<std::string> leaving_;  // folders to remove as soon as they are empty
  RecentUse use_;                     // how many groups from the first on
  Time next_exec_{};
  int made_ = 0;
};

}  // namespace tandem::envs
