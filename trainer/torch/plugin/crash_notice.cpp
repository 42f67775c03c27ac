#include "trainer/torch/plugin/crash_notice.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

namespace tandem::torch_plugin {

namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t kStackBytes =
    64 * 1024;  // of the handler: a function that has used up its own stack gets a notice, too

thread_local const char* file_of_call = nullptr;
std::array<struct sigaction, kSignals.size()> actions_before;

void say(const char* text) { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text)); }

// Only what POSIX allows in a handler. The signal then has the effect that it had before.
void on_crash(int signal) {
  if (file_of_call != nullptr) {
    say(file_of_call);
    say(signal == SIGABRT ? ": the function ended the process (SIGABRT): an assertion, or an exception that left it\n"
                          : ": the function crashed, and with it this process: a fault of its code\n");
  }
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signal) ::sigaction(signal, &actions_before[i], nullptr);
  }
  ::raise(signal);  // delivered when the handler returns
}

bool install() {
  struct sigaction action = {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &actions_before[i]);
  return true;
}

// The stack of this thread's handlers.
class HandlerStack {
 public:
  HandlerStack() : bytes_(new char[kStackBytes]) {
    stack_t stack = {};
    stack.ss_sp = bytes_.get();
    stack.ss_size = kStackBytes;
    ::sigaltstack(&stack, &before_);
  }
  ~HandlerStack() { ::sigaltstack(&before_, nullptr); }
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;

 private:
  std::unique_ptr<char[]> bytes_;
  stack_t before_ = {};
};

}  // namespace

CrashNotice::CrashNotice(const char* file) {
  [[maybe_unused]] static const bool installed = install();
  [[maybe_unused]] thread_local const HandlerStack stack;
  file_of_call = file;
}

CrashNotice::~CrashNotice() { file_of_call = nullptr; }

}  // namespace tandem::torch_plugin
