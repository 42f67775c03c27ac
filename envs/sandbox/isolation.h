// How a spawner keeps a sandbox apart from the rest of the machine: by namespaces that it makes itself, or by
// bubblewrap.
//
// A sandbox begins as one new process of the spawner, which becomes its first process or starts that; the first process
// goes no further than the namespaces of its own until the spawner lets it go on. Thread safety: none;
// used in the spawner and its makers, which have one thread each.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/status.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

enum class IsolatedBy { kNamespaces, kBubblewrap };

struct NewProcess {
  pid_t process = -1;
  FileDescriptor handle;  // a pidfd
};

// Descriptors that the new process of a sandbox gets.
struct InnerEnds {
  int socket = -1;  // that it serves at
  int go = -1;      // a socket too: one byte comes from it where the process may go on, none where it must end
  // Where speaks():
  int errors = -1;  // a file for what goes wrong
  int first = -1;   // a pipe, both of its ends, for which process is the first: writing to it never fails
  int there = -1;   // the folder that is bound, or where its trees come from (build_root); -1 where it is neither
};

class Isolation {
 public:
  virtual ~Isolation() = default;

  virtual uint64_t clone_flags() const = 0;
  // In a maker, once, before it makes the first.
  virtual void prepare() {}
  // Whether the new process says which one is the first and what went wrong. Else it is the first itself, and that says
  // what went wrong in its first message.
  virtual bool speaks() const { return false; }
  // Processes of ours that are in the control group of each sandbox.
  virtual int processes_beside() const = 0;

  // In the new process.
  [[noreturn]] virtual void begin(const SandboxSpec& spec, const InnerEnds& ends) = 0;

  // The rest in the spawner, with the other ends. kUnavailable where the process was killed.
  virtual Result<NewProcess> first_process(NewProcess made, int first) = 0;
  virtual Status let_go(const NewProcess& first, const SandboxSpec& spec, int socket, int go) = 0;
};

// kUnfit, with what is missing.
Result<std::unique_ptr<Isolation>> isolate_by_namespaces(std::string filter);
// `label` is shown in the command line of each sandbox.
Result<std::unique_ptr<Isolation>> isolate_by_bubblewrap(std::string filter, std::string label);

}  // namespace tandem::envs
