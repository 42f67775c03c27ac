#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/sandbox/namespace_backend.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = NamespaceBackend::start();
    ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
    backend_ = std::move(*backend);
    spec_.call_time_limit_s = 10;
    make();
  }
  void make() {
    auto sandbox = backend_->create(spec_);
    ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    sandbox_ = std::move(*sandbox);
  }
  std::string shell(const std::string& command) {
    const auto outcome = sandbox_->call("run_terminal_cmd", {{"command", command}});
    EXPECT_TRUE(outcome.has_value()) << outcome.error().to_string();
    return outcome ? outcome->output : "";
  }
  std::unique_ptr<NamespaceBackend> backend_;
  SandboxSpec spec_;
  std::unique_ptr<Sandbox> sandbox_;
};

TEST_F(SandboxTest, runs_a_command_in_an_empty_workspace) {
  EXPECT_EQ(shell("pwd; ls -A; id -u; python3 -c 'print(6 * 7)'; awk 'BEGIN {print 1}'; hostname"),
            "/workspace\n1000\n42\n1\ntandem\n");
}

}  // namespace
}  // namespace tandem::envs
