#include "run/layout.h"

#include <gmock/gmock.h>

#include "base/json.h"
#include "run/checks.h"
#include "tests/run/temporary_run.h"

namespace tandem::run {
namespace {

using testing::HasSubstr;

class RunLayoutTest : public TemporaryRun {};

TEST_F(RunLayoutTest, a_run_has_one_number_from_its_first_start_on) {
  EXPECT_EQ(RunLayout::open(dir()).error().code(), Code::kNotFound);
  const auto first = RunLayout::establish(dir());
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_NE(first->run_id(), 0u);
  EXPECT_EQ(RunLayout::establish(dir())->run_id(), first->run_id());
  EXPECT_EQ(RunLayout::open(dir())->run_id(), first->run_id());
  EXPECT_EQ(RunLayout::open(dir() / "")->socket_folder(), first->socket_folder());
  EXPECT_EQ(first->address({wire::Role::kRollout, 3}).path(), first->socket_folder() / "rollout-3");
  EXPECT_EQ(name_of_run(dir() / ""), dir().filename());
}

TEST_F(RunLayoutTest, sockets_lie_in_the_folder_for_temporary_files_that_the_last_start_found) {
  const char* const before = ::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  const fs::path folder = fs::path("/tmp") / ("sockets-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const auto parent = [&](const std::string& temporary) {
    ::setenv("TMPDIR", temporary.c_str(), 1);
    const auto layout = RunLayout::establish(dir());
    EXPECT_TRUE(layout);
    ::setenv("TMPDIR", "/nowhere", 1);  // of another shell, or a role of another host
    EXPECT_EQ(RunLayout::open(dir())->socket_folder(), layout->socket_folder());
    return layout->socket_folder().parent_path();
  };
  EXPECT_EQ(parent(folder), folder);
  const uint64_t id = RunLayout::open(dir())->run_id();
  EXPECT_EQ(parent("/tmp"), "/tmp");
  EXPECT_EQ(parent(folder.string() + "/"), folder);
  EXPECT_EQ(parent("relative"), "/tmp");
  EXPECT_EQ(parent("/nowhere"), "/tmp");
  EXPECT_EQ(parent(folder.string() + "/" + std::string(60, 'x')), "/tmp") << "no socket has so long a path";
  EXPECT_EQ(RunLayout::open(dir())->run_id(), id);
  fs::remove_all(folder);
  kept.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
}

TEST_F(RunLayoutTest, a_start_with_another_folder_for_temporary_files_removes_what_was_left_in_the_one_before) {
  const char* const before = ::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  const fs::path folder = fs::path("/tmp") / ("left-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  ::setenv("TMPDIR", folder.c_str(), 1);
  const fs::path left = RunLayout::establish(dir())->socket_folder();
  fs::create_directories(left / "of-a-killed-run");
  EXPECT_EQ(RunLayout::establish(dir())->socket_folder(), left);
  EXPECT_TRUE(fs::exists(left)) << "the sweep of a start tells of it";
  ::setenv("TMPDIR", "/tmp", 1);
  EXPECT_EQ(RunLayout::establish(dir())->socket_folder().parent_path(), "/tmp");
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
  kept.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
}

TEST_F(RunLayoutTest, a_run_that_is_reached_by_another_path_is_the_same) {
  const auto first = RunLayout::establish(dir());
  ASSERT_TRUE(first);
  fs::create_directory_symlink(dir(), root() / "link");
  EXPECT_EQ(RunLayout::open(root() / "link")->run_id(), first->run_id());
  EXPECT_EQ(RunLayout::establish(root() / "link")->run_id(), first->run_id());
}

TEST_F(RunLayoutTest, a_copy_has_a_number_of_its_own_and_leaves_the_first_its) {
  const auto first = RunLayout::establish(dir());
  ASSERT_TRUE(first);
  fs::copy(dir(), root() / "copy", fs::copy_options::recursive);
  const auto unstarted = RunLayout::open(root() / "copy");
  ASSERT_FALSE(unstarted) << "a role of it would join the first run";
  EXPECT_EQ(unstarted.error().code(), Code::kInvalid);
  EXPECT_THAT(unstarted.error().to_string(), HasSubstr("is a copy of the run in " + dir().string()));
  const auto copy = RunLayout::establish(root() / "copy");
  ASSERT_TRUE(copy) << copy.error().to_string();
  EXPECT_NE(copy->run_id(), first->run_id());
  EXPECT_NE(copy->socket_folder(), first->socket_folder());
  EXPECT_EQ(RunLayout::establish(dir())->run_id(), first->run_id());
  EXPECT_EQ(RunLayout::establish(root() / "copy")->run_id(), copy->run_id());

  // Put in the place of the first, it is still another directory than that was.
  fs::rename(dir(), root() / "away");
  fs::copy(root() / "away", dir(), fs::copy_options::recursive);
  EXPECT_NE(RunLayout::establish(dir())->run_id(), first->run_id());
}

TEST_F(RunLayoutTest, a_role_is_one_process_at_a_time) {
  const auto layout = RunLayout::establish(dir());
  ASSERT_TRUE(layout);
  const wire::Peer trainer{wire::Role::kTrainer, 0}, other{wire::Role::kTrainer, 1};
  EXPECT_EQ(claim_role(*layout, trainer).error().code(), Code::kUnavailable) << "the run is not on";
  ASSERT_TRUE(fs::create_directory(layout->socket_folder()));
  {
    const auto first = claim_role(*layout, trainer);
    ASSERT_TRUE(first) << first.error().to_string();
    EXPECT_TRUE(claim_role(*layout, other));
    const auto second = claim_role(*layout, trainer);
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message(), HasSubstr("trainer-0 of this run is on already"));
  }
  EXPECT_TRUE(claim_role(*layout, trainer)) << "the first has ended";
  fs::remove_all(layout->socket_folder());
}

TEST_F(RunLayoutTest, what_is_no_identity_is_named) {
  for (const char* text :
       {"", "[]", "{}", R"({"format":1,"id":"0","path":"/a","inode":1})",
        R"({"format":1,"id":"12xy","path":"/a","inode":1})", R"({"format":1,"id":7,"path":"/a","inode":1})",
        R"({"format":1,"id":"7","path":"/a","inode":1,"temporary":5})",
        R"({"format":1,"id":"7","path":"/a","inode":1,"home":"yes"})",
        R"({"format":1,"id":"7","path":"/a","inode":1,"epoch":-1})"}) {
    ASSERT_TRUE(write_file(dir() / "identity.json", text));
    for (const auto& layout : {RunLayout::open(dir()), RunLayout::establish(dir())}) {
      ASSERT_FALSE(layout) << text;
      EXPECT_EQ(layout.error().code(), Code::kCorrupt) << text;
      EXPECT_THAT(layout.error().to_string(), HasSubstr("identity.json")) << text;
    }
  }
  ASSERT_TRUE(write_file(dir() / "identity.json", R"({"format":2})"));
  EXPECT_THAT(RunLayout::open(dir()).error().to_string(), HasSubstr("2"));
}

}  // namespace
}  // namespace tandem::run
