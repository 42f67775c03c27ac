// A network namespace in which sandboxes are made one after the other, as long as none of them has used it.
//
// To make one and to end it is a third of what a sandbox costs, and most sandboxes use none. What a program did with it
// would be there for the next one: a port that is not free yet, a counter that is not zero. So it is looked at between
// two sandboxes, and one that anything was sent in is left for a new one. The sandboxes' user namespaces do not own it:
// nobody in them can configure it.
#pragma once

#include <string>

namespace tandem::envs {

// Belongs to the process that makes sandboxes, one at a time. Thread safety: none.
class QuietNetwork {
 public:
  // Moves this process into a new one, where the one that it is in was used or is not its own. False where it cannot
  // have one; then each sandbox must bring its own. No sandbox may be in the present one.
  bool ready();

 private:
  std::string unused_;  // what the kernel counts in it when it is new; empty where there is none
  bool possible_ = true;
};

}  // namespace tandem::envs
