// Runs of the real binary on the tiny model, and what is looked at from outside while they are on and after they ended.
//
// Everything that waits has a deadline: a process that does not end is killed and reported, a state that is not reached
// fails the test that waited for it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "run/layout.h"
#include "tests/within.h"

namespace tandem {

using Arguments = std::vector<std::string>;

inline std::string text(const fs::path& path) { return read_file(path).value_or(""); }
inline Json json(const fs::path& path) {
  auto parsed = parse_json(text(path));
  return parsed && parsed->is_object() ? *parsed : Json::object();
}

// A child that ends with the test.
class Process {
 public:
  static constexpr int kTooLong = -1000;  // as a result of wait

  Process(const Arguments& arguments, const fs::path& output, const std::vector<std::string>& environment = {}) {
    std::vector<char*> raw;
    for (const auto& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
    raw.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const auto& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
      // One description for both, so that neither writes over the other.
      const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
      if (::dup2(file, STDOUT_FILENO) < 0 || ::dup2(file, STDERR_FILENO) < 0) ::_exit(126);
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) signal(SIGKILL), wait();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);  // -1 would be everybody
  }
  bool running() {
    if (pid_ <= 0) return false;
    if (::waitpid(pid_, &status_, WNOHANG) == 0) return true;
    pid_ = -1;
    return false;
  }
  // The exit code, or the signal that ended it, negative.
  int wait(std::chrono::milliseconds limit = 240s) {
    if (!within(limit, [&] { return !running(); })) {
      signal(SIGKILL);
      ::waitpid(pid_, &status_, 0);
      pid_ = -1;
      return kTooLong;
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
};

class RunTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  static const fs::path& root();                       // of everything that these tests write
  static fs::path output() { return root() / "out"; }  // of the last process

  // `tandem run` of the tiny job, in batches so small that a step takes a moment.
  static Arguments command(const Arguments& overrides, const fs::path& run_dir, bool resume = false);
  static int run(const Arguments& overrides, const fs::path& run_dir, bool resume = false);
  static int tandem(Arguments arguments);

  static std::vector<Json> episodes(const fs::path& run_dir, bool tokens = false);
  static Digest export_digest(const fs::path& run_dir) {
    return digest_of(text(run_dir / "export" / "model.safetensors"));
  }
  static std::string logs(const fs::path& run_dir);  // of all roles and attempts

  // The last step that was trained, by metrics.jsonl, for status.json is a second late: a run may be over by then.
  static int step_of(const fs::path& run_dir);
  // Waits for a run to have trained `step` steps; false where it ended or was too slow.
  static bool has_trained(Process& process, const fs::path& run_dir, int step);
  // And to have a trainer by status.json, which is a second late: a fast machine makes fifty steps in the meantime.
  static bool reaches_step(Process& process, const fs::path& run_dir, int step);
  // The process of a role that the supervisor takes for well, or 0.
  static pid_t pid_of(const fs::path& run_dir, const std::string& name, int rank = 0);
  // Sends a signal to a process of this run, and to no other: a number that is stale or none must not hit a stranger.
  static bool signal(const fs::path& run_dir, pid_t pid, int number);

  // admitted = trained + dropped + in flight, by every account there is: summary, ledger, trajectories. A trained
  // episode has a reward and its tokens are on disk, except where `lost` says that trajectories were damaged.
  static void expect_books_to_agree(const fs::path& run_dir, bool lost = false);
  // Trainer and sampler computed the same logprob of every token that was compared, and some were. A run of few steps
  // has such tokens for certain only with kWithSignal.
  static void expect_same_logprobs(const fs::path& run_dir);
  // Groups whose rewards are all equal are replaced: of those no token is compared.
  static constexpr const char* kWithSignal = "trainer.dynamic_sampling=20";
  // Two steps of a warm start from `model` leave a model at root()/warm.
  void expect_warm_start_of(const fs::path& model);
  // Two steps of a run from `model` in which sampler and trainer agree to the bit; what it exports is verified and new.
  void expect_exact_run_of(const fs::path& model);
  // Every step was trained once, by the last word of metrics.jsonl, and in one batch an episode.
  static void expect_nothing_trained_twice(const fs::path& run_dir);
  // No process, socket, control group, mount, shared memory or temporary folder is left.
  static void expect_nothing_left(const fs::path& run_dir);
};

}  // namespace tandem
