// Two sides of processes that take turns: a trainer that computes on a device, and engines that sleep meanwhile.
//
// A file with two ranges, which the kernel locks for each open file (fcntl(2), open file description locks): what a
// process holds is free when it ends, however it ends. The trainers' side goes first. Any number of processes of one
// side have their turn at once.
//
// Thread safety: one thread at a time. The file must lie on a file system of this machine alone, or be named for it.
#pragma once

#include "base/file.h"

namespace tandem {

class Turns {
 public:
  // Makes the file where there is none. kUnfit where its file system has no locks.
  static Result<Turns> open(const fs::path& file);

  // ---- The side that goes first ----
  // From now on no process of the other side wakes; waits until all that are awake sleep.
  Status take();
  void give_back();

  // ---- The side that makes way ----
  // Whether a process of the first side has its turn or waits for it.
  bool is_wanted() const;
  // Whether this process is awake now; false where the turn is the first side's.
  bool wake();
  // Awake once it is not: waits.
  Status wake_when_free();
  void sleep();

 private:
  explicit Turns(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;
};

}  // namespace tandem
