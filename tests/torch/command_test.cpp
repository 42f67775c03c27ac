// The binary without LibTorch beside it, as on most machines.
#include <gmock/gmock.h>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class TorchCommand : public testing::Test {
 protected:
  // A second name of the binary in a folder of its own; where that is on another file system, a copy.
  void SetUp() override {
    ASSERT_TRUE(make_folder(folder_));
    std::error_code error;
    fs::create_hard_link(TANDEM_BINARY, binary_, error);
    if (error) fs::copy_file(TANDEM_BINARY, binary_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  int run(Arguments arguments) {
    arguments.insert(arguments.begin(), binary_.string());
    return Process(arguments, said_).wait(120s);
  }

  const fs::path folder_ = fs::temp_directory_path() / ("tandem-torch-command-" + std::to_string(::getpid()));
  const fs::path binary_ = folder_ / "tandem", said_ = folder_ / "said";
};

TEST_F(TorchCommand, a_config_that_needs_it_fails_at_the_dry_run_with_the_line_to_run) {
  const std::string config = TANDEM_SOURCE_DIR "/configs/tiny.yaml";
  const std::string script = TANDEM_SOURCE_DIR "/examples/losses/grpo.py";
  EXPECT_EQ(run({"run", config, "--dry-run", "algorithm.name=torch", "algorithm.script=" + script}), 3) << text(said_);
  EXPECT_THAT(text(said_), HasSubstr("scripts/with-torch"));
  EXPECT_EQ(run({"run", config, "--dry-run", "algorithm.name=torch"}), 2) << text(said_);
  EXPECT_THAT(text(said_), HasSubstr("algorithm.script or algorithm.library"));
  EXPECT_EQ(run({"run", config, "--dry-run"}), 0) << text(said_);
}

TEST_F(TorchCommand, the_oracle_is_unfit_with_the_line_to_run) {
  const fs::path lines = folder_ / "lines";
  ASSERT_TRUE(write_file(lines, R"({"tokens":[1,2,3]})"));
  const std::string model = TANDEM_SOURCE_DIR "/tests/golden/models/llama";
  EXPECT_EQ(run({"score", "--model", model, "--path", "torch", "--input", lines.string()}), 3) << text(said_);
  EXPECT_THAT(text(said_), HasSubstr("--path torch needs libtandem_torch.so"));
  EXPECT_THAT(text(said_), HasSubstr("scripts/with-torch"));
  EXPECT_EQ(run({"score", "--model", model, "--path", "trainer", "--input", lines.string()}), 0) << text(said_);
}

TEST_F(TorchCommand, the_doctor_says_that_it_is_not_there_and_finds_no_fault_in_that) {
  (void)run({"doctor", "--json"});
  const auto report = parse_json(text(said_));
  ASSERT_TRUE(report.has_value()) << text(said_);
  for (const Json& check : (*report)["checks"]) {
    if (check["name"] != "LibTorch") continue;
    EXPECT_EQ(check["level"], "ok");
    EXPECT_THAT(check["found"].get<std::string>(), HasSubstr("scripts/with-torch"));
    return;
  }
  FAIL() << text(said_);
}

}  // namespace
}  // namespace tandem
