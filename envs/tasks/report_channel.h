// The grader's own channel for reports of unittest and pytest, beside what tests print.
//
// Each Python process of a command takes a key that no other one gets, and says signed what its tests came to, once, at
// its end. So neither prints of the code under test nor an early end of its process can pass for a report. What no
// channel is proof against is code that was written to change the process that tests it from within; changes of
// unittest's and pytest's own functions are noticed. What is not Python, and Python by another path than PATH that was
// told to look at no variables (-I, -E), knows nothing of the channel: then what is printed counts.
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

  // Lets `command`, in a sandbox that begins with `place`, report.
  void open_for(Place& place, CheckCommand& command) const;

  struct Reading {
    TestReport report;
    std::string printed;  // the output without what is the channel's
    std::string why;      // where the tests did not come to their end, or were changed: nothing has passed then
  };
  Reading read(std::string_view output) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace tandem::envs
