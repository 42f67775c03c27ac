// The grader's own channel for reports of unittest and pytest, beside what tests print.
//
// Each Python process of a command takes a key that no other one gets, and says signed what its tests came to, once, at
// its end. So neither prints of the code under test nor an early end of its process can pass for a report. What no
// channel is proof against is code that was written to change the process that tests it from within; changes of
// unittest's and pytest's own functions, of the test that runs and of the tests' own code are noticed. In a sandbox the
// system's Pythons find the channel by themselves, whatever a command sets; elsewhere PYTHONPATH and PATH lead them to
// it. Where a command runs Python's runner and nothing is heard of it there is no verdict. What is not Python knows
// nothing of the channel: then what is printed counts.
//
// Values. Thread safety: none needed; a channel serves one command.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tasks/runner.h"
#include "envs/tasks/test_report.h"

namespace tandem::envs {

class ReportChannel {
 public:
  ReportChannel();  // of fresh keys

  // Lets `command`, the last one of `check`, report from a sandbox that begins with `place`.
  void open_for(const CommandCheck& check, Place& place, CheckCommand& command);

  struct Reading {
    TestReport report;
    std::string printed;  // the output without what is the channel's
    std::string why;      // where the tests did not come to their end, or were changed: nothing has passed then
    std::string unheard;  // why what was printed as a report is none: there is no verdict then
  };
  Reading read(std::string_view output) const;

 private:
  std::vector<std::string> keys_;
  bool names_python_ = false;  // the command, which runs it then
  bool names_runner_ = false;  // of Python; the command or a script that the check brings
};

}  // namespace tandem::envs
