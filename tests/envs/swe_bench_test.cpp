#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "envs/episodes/validate.h"
#include "envs/tasks/git_tree.h"
#include "envs/tasks/task_set.h"
#include "envs/tools/process.h"
#include "tests/envs/cache_of.h"
#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kBroken = "def shout(text):\n    return text.upper()\n\n\ndef whisper(text):\n    return text\n";
constexpr const char* kMended =
    "def shout(text):\n    return text.upper()\n\n\ndef whisper(text):\n    return text.lower()\n";
constexpr const char* kSweBenchTests =
    "import unittest\n\nfrom voice import shout, whisper\n\n\nclass Voice(unittest.TestCase):\n"
    "    def test_shout(self):\n        self.assertEqual(shout(\"a\"), \"A\")\n";
constexpr const char* kMoreTests = "\n    def test_whisper(self):\n        self.assertEqual(whisper(\"A\"), \"a\")\n";

// A repository with an issue at one commit, its fix at the next, and what a line of the data set says of it.
class SweBench : public SandboxTest {
 protected:
  SweBench() {
    scratch_.put(kRepository + "/voice.py", kBroken);
    scratch_.put(kRepository + "/tests/test_voice.py", kSweBenchTests);
    scratch_.put(kRepository + "/tests/__init__.py", "");
    scratch_.put(kRepository + "/tests/old.txt", "old\n");
    git("init -q . && git add -A && git commit -qm base");
    base_ = git("rev-parse HEAD").substr(0, 40);
    scratch_.put(kRepository + "/voice.py", kMended);
    scratch_.put(kRepository + "/tests/test_voice.py", std::string(kSweBenchTests) + kMoreTests);
    git("rm -q tests/old.txt && git add -A && git commit -qm fix");
    row_ = {{"repo", "owner/voice"},
            {"instance_id", "owner__voice-7"},
            {"base_commit", base_},
            {"patch", git("diff HEAD~ -- voice.py")},
            {"test_patch", git("diff HEAD~ -- tests")},
            {"problem_statement", "whisper does not whisper.\n"},
            {"hints_text", "lower()"},
            {"created_at", "2020-01-01"},
            {"version", "1.0"},
            {"FAIL_TO_PASS", "[\"test_whisper (tests.test_voice.Voice)\"]"},
            {"PASS_TO_PASS", {"test_shout (tests.test_voice.Voice)"}},
            {"environment_setup_commit", base_},
            {"test_cmd", "python3 -m unittest -v tests.test_voice"}};
  }
  std::string git(const std::string& words) {
    const auto result = run_process(
        {.argv = {"/bin/sh", "-c", "git " + words},
         .directory = scratch_.path / kRepository,
         .environment = {"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a",
                         "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}});
    EXPECT_TRUE(result.has_value());
    EXPECT_EQ(result->exit_code, 0) << result->output;
    return result->output;
  }
  Result<Task> task() {
    scratch_.put("swe.jsonl", row_.dump() + "\n");
    return only_task(scratch_.path / "swe.jsonl");
  }
  std::string mistake() {
    const auto read = task();
    return read ? "" : read.error().message();
  }
  Grade play(const std::string& command) { return play_commands(*task(), *backend_, {command}, last_output_); }
  const std::string kRepository = "swe.files/owner/voice";
  Scratch scratch_;
  std::string base_, last_output_;
  Json row_;
};

TEST_F(SweBench, a_line_is_a_task_that_passes) {
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->name, "owner__voice-7");
  EXPECT_EQ(read->spec.kind, "owner__voice");
  EXPECT_THAT(read->instruction, HasSubstr("whisper does not whisper."));
  EXPECT_THAT(read->instruction, Not(HasSubstr("lower()")));
  const auto v = validate(*read, *backend_, 2);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
}

TEST_F(SweBench, the_model_meets_the_tree_without_its_history_and_its_future) {
  play("git log 2>&1; ls -A; cat voice.py tests/test_voice.py tests/old.txt");
  EXPECT_THAT(last_output_, HasSubstr("return text\n"));
  EXPECT_THAT(last_output_, HasSubstr("old\n"));
  EXPECT_THAT(last_output_, HasSubstr("not a git repository"));
  EXPECT_THAT(last_output_, Not(HasSubstr("test_whisper")));
}

TEST_F(SweBench, what_failed_must_pass_and_what_passed_still_must) {
  const std::string mend = "sed -i 's/return text$/return text.lower()/' voice.py; ";
  EXPECT_EQ(play(mend).reward, 1);
  EXPECT_EQ(play("true").reward, 0);
  const auto broken = play(mend + "sed -i 's/upper/title/; s/\"A\"/\"a\"/' voice.py; echo 'shout = None' >> voice.py");
  EXPECT_EQ(broken.reward, 0);
  EXPECT_THAT(broken.why, HasSubstr("test_shout (tests.test_voice.Voice) failed"));
}

TEST_F(SweBench, tests_that_the_model_edits_do_not_count) {
  EXPECT_EQ(play("echo > tests/test_voice.py").reward, 0);
  EXPECT_EQ(play("rm -r tests; mkdir -p tests/test_voice.py; sed -i 's/return text$/return text.lower()/' voice.py;"
                 "touch tests/__init__.py")
                .reward,
            1);
  row_["test_cmd"] = "test ! -e tests/old.txt && python3 -m unittest -v tests.test_voice";
  EXPECT_EQ(play_solution(*task(), *backend_)->reward, 1) << "a file that the test patch takes away is gone";
}

// Trees of more than 8,000 files were refused.
TEST_F(SweBench, a_large_tree_is_the_base_of_its_tasks) {
  const CacheOf cache(scratch_.path / "cache");
  git("reset -q --hard " + base_);
  for (int i = 0; i < 8'100; ++i) scratch_.put(fmt::format("{}/data/{}/{}", kRepository, i % 90, i), "x\n");
  git("add -A && git commit -qm large");
  row_["base_commit"] = git("rev-parse HEAD").substr(0, 40);
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  ASSERT_TRUE(read->base.has_value());
  EXPECT_TRUE(read->files.empty());
  SandboxSpec on_base;
  on_base.base = *prepare_base(*read->base);
  if (const auto made = backend_->create(on_base); !made) {
    ASSERT_EQ(made.error().code(), Code::kUnfit) << made.error().to_string();
    GTEST_SKIP() << "files of the machine cannot be shared here";
  }
  EXPECT_EQ(play("true").reward, 0);
  EXPECT_EQ(play("ls data/1 | wc -l; rm tests/old.txt; sed -i 's/return text$/return text.lower()/' voice.py").reward,
            1);
  EXPECT_EQ(last_output_, "90\n");
  EXPECT_EQ(play_solution(*read, *backend_)->reward, 1);
}

TEST_F(SweBench, what_is_installed_is_there_for_the_model_and_for_the_tests) {
  row_["install"] = {"mkdir -p built", "echo built > built/note"};
  row_["test_commands"] = {"cat built/note && python3 -m unittest -v tests.test_voice"};
  EXPECT_EQ(play("cat built/note; rm -r built; sed -i 's/return text$/return text.lower()/' voice.py").reward, 1);
  EXPECT_EQ(last_output_, "built\n");
}

TEST_F(SweBench, without_a_test_command_pytest_runs_the_modules_of_the_test_patch) {
  row_.erase("test_cmd");
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_THAT(read->expectation.commands->commands[0].command,
              HasSubstr("python3 -m pytest -rA -p no:cacheprovider 'tests/test_voice.py'"));
  EXPECT_THAT(read->needs, Contains("pytest"));
}

TEST_F(SweBench, repositories_are_found_bare_by_one_name_or_by_a_path) {
  git("clone -q --bare . ../../owner__voice.git && rm -rf ../voice");
  EXPECT_EQ(mistake(), "");
  row_["repo"] = "./swe.files/owner__voice.git";
  EXPECT_EQ(mistake(), "");
  EXPECT_EQ(task()->spec.kind, "swe.files__owner__voice.git");
}

TEST_F(SweBench, hooks_filters_and_replacements_of_a_repository_have_no_say) {
  git("config filter.x.smudge 'touch ran; cat' && git config core.fsmonitor 'touch ran' && "
      "echo '*.py filter=x' > .git/info/attributes");
  git("replace " + base_ + " HEAD");
  EXPECT_EQ(task()->files.at("voice.py"), kBroken);
  EXPECT_FALSE(fs::exists(scratch_.path / kRepository / "ran"));
}

TEST_F(SweBench, wrong_lines_are_told_with_their_number_and_what_is_wrong) {
  const auto with = [&](const char* key, Json value) {
    const Json before = row_;
    row_[key] = std::move(value);
    const auto said = mistake();
    row_ = before;
    EXPECT_THAT(said, HasSubstr("swe.jsonl:1: "));
    return said;
  };
  EXPECT_THAT(with("repo", "owner/other"), HasSubstr("swe.files/owner/other; clone owner/other there"));
  EXPECT_THAT(with("repo", "owner/../../x"), HasSubstr("neither owner/name nor a path"));
  EXPECT_THAT(with("base_commit", "--output=x"), HasSubstr("\"base_commit\" must be 7 to 64"));
  EXPECT_THAT(with("base_commit", std::string(40, '0')), HasSubstr("git says: "));
  EXPECT_THAT(with("instance_id", "a/b"), HasSubstr("\"instance_id\" may have"));
  EXPECT_THAT(with("FAIL_TO_PASS", "[1]"), HasSubstr("\"FAIL_TO_PASS\" must be a list of texts"));
  EXPECT_THAT(with("FAIL_TO_PASS", "[\"a\""), HasSubstr("\"FAIL_TO_PASS\": "));
  EXPECT_THAT(with("FAIL_TO_PASS", Json::array()), HasSubstr("names no test"));
  EXPECT_THAT(with("problem_statement", " "), HasSubstr("is empty"));
  EXPECT_THAT(with("patch", "--- a/voice.py\n+++ b/voice.py\n@@ -1 +1 @@\n-no\n+yes\n"),
              HasSubstr("\"patch\": line 3 of the patch: line 1 of the file is not \"no\""));
  EXPECT_THAT(with("test_patch", 5), HasSubstr("\"test_patch\" must be text"));
  row_.erase("PASS_TO_PASS");
  EXPECT_THAT(mistake(), HasSubstr("lacks \"PASS_TO_PASS\""));
}

TEST_F(SweBench, a_repository_of_some_size_is_a_task) {
  git("checkout -q " + base_);
  for (int i = 0; i < 3000; ++i)
    scratch_.put(kRepository + "/lib/" + std::to_string(i / 50) + "/" + std::to_string(i), std::string(3000, 'x'));
  git("add -A && git commit -qm large");
  row_["base_commit"] = git("rev-parse HEAD").substr(0, 40);
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_GT(read->files.size(), 3000U);
  EXPECT_EQ(play("sed -i 's/return text$/return text.lower()/' voice.py").reward, 1);
}

TEST_F(SweBench, links_are_copies_where_they_lead_to_files_of_the_tree) {
  git("checkout -q " + base_ + " && ln -s ../voice.py tests/link.py && git add -A && git commit -qm link");
  const auto read = read_git_tree(scratch_.path / kRepository, git("rev-parse HEAD").substr(0, 40));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->files.at("tests/link.py"), kBroken);
  git("rm -q tests/link.py && ln -s /etc/passwd out && git add -A && git commit -qm out");
  const auto out = read_git_tree(scratch_.path / kRepository, git("rev-parse HEAD").substr(0, 40));
  ASSERT_FALSE(out.has_value());
  EXPECT_THAT(out.error().message(), HasSubstr("the link out leads to /etc/passwd"));
}

}  // namespace
}  // namespace tandem::envs
