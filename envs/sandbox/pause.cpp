#include "envs/sandbox/pause.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "envs/sandbox/process_fields.h"

namespace tandem::envs {
namespace {

// A process that waits for a device in the kernel may take longer; nothing waits for it.
constexpr int kMostRounds = 500, kRoundMicroseconds = 200;

std::vector<pid_t> processes() {
  std::vector<pid_t> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const pid_t process = atoi(entry.path().filename().c_str());
    if (process > 1) all.push_back(process);
  }
  return all;
}

// 'T' where it is stopped, 'Z' where it has ended.
char state_of(pid_t process) {
  const auto fields = process_fields(std::to_string(process));
  return fields.empty() || fields[0].empty() ? 'Z' : fields[0][0];
}

bool goes_on(pid_t process) { return std::string_view("TZX").find(state_of(process)) == std::string_view::npos; }

// A signal takes a moment to arrive: until the process leaves a system call, or the core that it runs on hears of it.
void wait_until_stopped() {
  for (int round = 0; round < kMostRounds; ++round) {
    const auto all = processes();
    if (std::none_of(all.begin(), all.end(), goes_on)) return;
    usleep(kRoundMicroseconds);
  }
}

}  // namespace

void Pause::begin() {
  if (++depth_ > 1) return;
  stopped_before_ = processes();
  std::erase_if(stopped_before_, [](pid_t process) { return state_of(process) != 'T'; });
  kill(-1, SIGSTOP);
  wait_until_stopped();
}

void Pause::end() {
  if (depth_ == 0 || --depth_ > 0) return;
  for (const pid_t process : processes()) {
    const bool stays = std::find(stopped_before_.begin(), stopped_before_.end(), process) != stopped_before_.end();
    if (!stays) kill(process, SIGCONT);
  }
}

}  // namespace tandem::envs
