// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/episode.h"
#include "envs/sandbox/host_backend.h"
#include "envs/tasks/workspace/kinds.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

// What a model that was trained on the prompt has been told about names that are not in it.
constexpr std::string_view kSix = "; the tools are read_file, search_replace, write, grep, list_dir, run_terminal_cmd";

TEST(OfferedTools, an_episode_has_the_tools_that_its_prompt_names_and_no_others) {
  HostBackend backend;
  const auto episode = Episode::open(*make_task({"set", Split::kTrain, 1}), backend);
  ASSERT_TRUE(episode.has_value()) << episode.error().to_string();
  const auto system = (*episode)->opening(ToolListing::kInMessages).messages.front().content;
  for (const auto& tool : tools()) {
    const bool prompted = system.find("\n" + std::string(tool.name) + "(") != std::string::npos;
    const auto outcome = (*episode)->call(tool.name, Json::object());
    ASSERT_TRUE(outcome.has_value());
    const auto unknown = "Error: there is no tool \"" + std::string(tool.name) + "\"" + std::string(kSix);
    EXPECT_EQ(outcome->output == unknown, !prompted) << tool.name << ": " << outcome->output;
  }
}

TEST(OfferedTools, a_tool_that_is_not_offered_does_not_exist) {
  Scratch scratch;
  const ToolContext context{.root = scratch.path, .tools = {"read_file", "grep"}};
  EXPECT_EQ(run_tool(context, "write", {{"file_path", "a"}, {"contents", "x"}}).output,
            "Error: there is no tool \"write\"; the tools are read_file, grep");
  EXPECT_THAT(run_tool(context, "gerp", Json::object()).output, HasSubstr("did you mean \"grep\""));
  EXPECT_FALSE(std::filesystem::exists(scratch.path / "a"));
}

TEST(OfferedTools, later_calls_of_a_sandbox_have_the_tools_they_are_given) {
  HostBackend backend;
  const auto sandbox = backend.create({.tools = {"list_dir"}});
  ASSERT_TRUE(sandbox.has_value());
  EXPECT_FALSE((*sandbox)->call("grep", {{"pattern", "a"}})->ok);
  (*sandbox)->set_call_limits({.tools = {"grep"}});
  EXPECT_TRUE((*sandbox)->call("grep", {{"pattern", "a"}})->ok);
}

}  // namespace
}  // namespace tandem::envs
