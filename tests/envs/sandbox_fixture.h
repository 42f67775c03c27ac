// A sandbox for a test, and what tests look at outside of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/namespace_backend.h"
#include "tests/within.h"

namespace tandem::envs {
// Processes whose parent is `parent`, by name.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto stat = read_file(entry.path() / "stat");
    if (!stat || !std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0]))) continue;
    const auto rest = stat->substr(stat->rfind(')') + 2);  // "S PPID ..."
    if (rest[0] != 'Z' && atoi(rest.c_str() + 2) == parent) found.push_back(atoi(entry.path().filename().c_str()));
  }
  return found;
}

inline std::string name_of(pid_t process) {
  return read_file("/proc/" + std::to_string(process) + "/comm").value_or("");
}

// The first processes of a spawner's sandboxes: children that are not a control group's maker, or the child of one
// that is bubblewrap.
inline std::vector<pid_t> sandboxes_of(pid_t spawner) {
  std::vector<pid_t> found;
  for (const pid_t child : children_of(spawner)) {
    const auto name = name_of(child);
    if (name.empty() || name == "tandem-maker\n") continue;
    const auto first = name == "bwrap\n" ? children_of(child) : std::vector<pid_t>{child};
    found.insert(found.end(), first.begin(), first.end());
  }
  return found;
}

// The folders of control groups that a spawner has made.
inline std::vector<std::string> groups_of(pid_t spawner) {
  std::vector<std::string> found;
  for (const char* folder : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const auto name = entry.path().filename().string();
      if (name.starts_with("tandem-") && name.find("." + std::to_string(spawner) + ".") != std::string::npos)
        found.push_back(entry.path());
    }
  }
  return found;
}

// A process that has ended counts as gone, whether or not somebody has asked how: the first process of a container may
// never do so.
inline bool is_gone(pid_t process) {
  const auto stat = read_file("/proc/" + std::to_string(process) + "/stat");
  return !stat || stat->at(stat->rfind(')') + 2) == 'Z';
}

// All that is mounted, but for what container engines of other tests mount meanwhile.
inline std::vector<std::string> mounts_here() {
  const auto text = read_file("/proc/self/mounts").value_or("");
  std::vector<std::string> mounts;
  for (const auto line : split(text, '\n')) {
    if (line.find("/engine-") == std::string_view::npos) mounts.emplace_back(line);
  }
  return mounts;
}

inline size_t count_entries(const char* folder) {
  std::error_code error;
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder, error), fs::directory_iterator()));
}

class SandboxTest : public testing::Test {
 protected:
  explicit SandboxTest(IsolatedBy isolated_by = IsolatedBy::kNamespaces) : isolated_by_(isolated_by) {}
  void SetUp() override {
    if (isolated_by_ == IsolatedBy::kBubblewrap && !fs::exists("/usr/bin/bwrap")) GTEST_SKIP() << "no bubblewrap";
    auto backend = NamespaceBackend::start(isolated_by_);
    ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
    backend_ = std::move(*backend);
    spec_.call_time_limit_s = 10;
    spec_.output_limit = 20'000;
    make();
  }
  void make() {
    auto sandbox = backend_->create(spec_);
    ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    sandbox_ = std::move(*sandbox);
  }
  ToolOutcome call(const char* name, const Json& arguments) {
    const auto outcome = sandbox_->call(name, arguments);
    EXPECT_TRUE(outcome.has_value()) << outcome.error().to_string();
    return outcome ? *outcome : ToolOutcome{};
  }
  std::string shell(const std::string& command) { return call("run_terminal_cmd", {{"command", command}}).output; }
  // The output of a Python program.
  std::string python(const std::string& program) { return shell("python3 - <<'END'\n" + program + "\nEND\n"); }

  const IsolatedBy isolated_by_;
  std::unique_ptr<NamespaceBackend> backend_;
  SandboxSpec spec_;
  std::unique_ptr<Sandbox> sandbox_;
};

// What holds for sandboxes of both kinds.
class EitherSandbox : public SandboxTest, public testing::WithParamInterface<IsolatedBy> {
 protected:
  EitherSandbox() : SandboxTest(GetParam()) {}
};

inline std::string name_of_kind(const testing::TestParamInfo<IsolatedBy>& info) {
  return info.param == IsolatedBy::kBubblewrap ? "by_bubblewrap" : "by_namespaces";
}

#define FOR_BOTH_KINDS_OF_SANDBOXES(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values(IsolatedBy::kNamespaces, IsolatedBy::kBubblewrap), name_of_kind)

}  // namespace tandem::envs
