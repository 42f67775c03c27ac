// The commands as a script meets them: exit codes and what they print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "synthetic_run.h"

namespace tandem::dashboard {
namespace {

using testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

Outcome tandem(const std::string& arguments) {
  Outcome outcome;
  std::FILE* pipe = ::popen((std::string("'" TANDEM_BINARY "' ") + arguments + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.output.append(buffer, n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

TEST(Commands, a_folder_that_is_no_run_is_a_usage_error_that_names_it) {
  for (const char* command : {"episodes", "view"}) {
    const Outcome outcome = tandem(std::string(command) + " /proc");
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("\"/proc\" is not a run directory"));
    EXPECT_EQ(tandem(command).exit_code, 2);
  }
}

TEST(Commands, a_run_directory_with_a_broken_config_is_an_error_that_names_the_file) {
  SyntheticRun run(two_kinds());
  ASSERT_TRUE(write_file(run.dir() / "config.resolved.json", R"({"run": {"steps": "three"}})").ok());
  const Outcome outcome = tandem("episodes " + run.dir().string());
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("config.resolved.json"));
}

TEST(Commands, doctor_says_of_every_check_how_it_stands_and_ends_with_3_where_a_required_one_fails) {
  const Outcome outcome = tandem("doctor --json");
  const auto json = parse_json(outcome.output);
  ASSERT_TRUE(json) << outcome.output;
  EXPECT_EQ(outcome.exit_code, (*json)["fit"].get<bool>() ? 0 : 3);
  bool failed = false;
  std::vector<std::string> names;
  for (const Json& check : (*json)["checks"]) {
    names.push_back(check["name"].get<std::string>());
    failed = failed || check["level"] == "failed";
    EXPECT_FALSE(check["found"].get<std::string>().empty()) << check["name"];
    EXPECT_EQ(check["level"] == "ok", check["mend"].get<std::string>().empty()) << check["name"];
  }
  EXPECT_EQ(failed, !(*json)["fit"].get<bool>());
  EXPECT_THAT(names, testing::IsSupersetOf({"cores", "instruction sets", "memory", "disk", "sandbox", "GPU"}));
}

}  // namespace
}  // namespace tandem::dashboard
