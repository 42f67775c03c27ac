// Workspaces that begin on a base without a copy: what is told as changed, what grading sees, and where nothing is
// shared.
#include "envs/sandbox/base_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "envs/episodes/base_copies.h"
#include "envs/episodes/episode.h"
#include "envs/sandbox/caching_backend.h"
#include "envs/tasks/cheats.h"
#include "envs/tasks/task_base.h"
#include "envs/tasks/task_set.h"
#include "envs/tools/process.h"
#include "tests/envs/cache_of.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

// A backend that cannot share files of the machine.
class Unsharing final : public SandboxBackend {
 public:
  explicit Unsharing(SandboxBackend& inner) : inner_(inner) {}
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override {
    if (spec.base) return fail(Status::unfit("it cannot be had"));
    return inner_.create(spec);
  }

 private:
  SandboxBackend& inner_;
};

class Base : public SandboxTest {
 protected:
  void SetUp() override {
    SandboxTest::SetUp();
    if (!sandbox_) return;
    cache_.emplace(scratch_.path / "cache");
    scratch_.put("repo/src/a.py", "a = 1\n");
    scratch_.put("repo/src/b.py", "b = 2\n");
    scratch_.put("repo/other/a.py", "x = 3\n");
    scratch_.put("repo/tool.sh", "echo tool\n");
    scratch_.put("repo/conftest.py", "# of the task\n");
    scratch_.put("repo/.git/config", "hidden\n");
    fs::permissions(scratch_.path / "repo/tool.sh", fs::perms::owner_exec, fs::perm_options::add);
    fs::create_symlink("src", scratch_.path / "repo/link");
  }
  BaseTree tree() {
    const auto found = find_task_base(TaskBase::Kind::kFolder, scratch_.path / "repo");
    EXPECT_TRUE(found.has_value()) << found.error().to_string();
    const auto prepared = prepare_base(*found);
    EXPECT_TRUE(prepared.has_value()) << prepared.error().to_string();
    return prepared.value_or(BaseTree());
  }
  std::unique_ptr<Sandbox> on(SandboxBackend& backend, const BaseTree& base) {
    SandboxSpec spec = spec_;
    spec.base = base;
    auto sandbox = backend.create(spec);
    EXPECT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    return sandbox ? std::move(*sandbox) : nullptr;
  }
  static std::string shell_in(Sandbox& sandbox, const std::string& command) {
    return sandbox.call("run_terminal_cmd", {{"command", command}})->output;
  }
  // Whether files of this machine can be shared here at all.
  bool is_shared(const BaseTree& base) {
    SandboxSpec spec = spec_;
    spec.base = base;
    const auto made = backend_->create(spec);
    EXPECT_TRUE(made || made.error().code() == Code::kUnfit) << made.error().to_string();
    return made.has_value();
  }

  Scratch scratch_;
  std::optional<CacheOf> cache_;
};

TEST_F(Base, a_workspace_on_it_tells_what_changed_and_nothing_else) {
  fs::remove(scratch_.path / "repo/link");  // a copy has no links
  const BaseTree base = tree();
  EXPECT_EQ(base.files, 5u);
  Unsharing unsharing(*backend_);
  BaseCopies sharing(*backend_), copying(unsharing);
  for (SandboxBackend* backend : {static_cast<SandboxBackend*>(&sharing), static_cast<SandboxBackend*>(&copying)}) {
    const auto sandbox = on(*backend, base);
    ASSERT_TRUE(sandbox);
    const auto before = sandbox->collect();
    ASSERT_TRUE(before.has_value());
    EXPECT_THAT(before->files, IsEmpty());
    EXPECT_THAT(before->removed, IsEmpty());
    EXPECT_EQ(shell_in(*sandbox, "ls -A; ./tool.sh; cat src/a.py"), "conftest.py\nother\nsrc\ntool.sh\ntool\na = 1\n");
    shell_in(*sandbox,
             "echo 'a = 9' > src/a.py; rm src/b.py; mkdir new; echo n > new/n; chmod -x tool.sh; touch conftest.py");
    const auto after = sandbox->collect();
    ASSERT_TRUE(after.has_value());
    EXPECT_TRUE(after->complete);
    EXPECT_THAT(after->removed, ElementsAre("src/b.py"));
    EXPECT_EQ(after->files.at("src/a.py"), "a = 9\n");
    EXPECT_EQ(after->files.at("new/n"), "n\n");
    EXPECT_TRUE(after->files.contains("tool.sh")) << "it cannot be run any more";
    EXPECT_FALSE(after->programs.contains("tool.sh"));
    EXPECT_FALSE(after->files.contains("other/a.py"));
  }
  const auto another = on(sharing, base);
  EXPECT_EQ(shell_in(*another, "cat src/a.py src/b.py; ls new"),
            "a = 1\nb = 2\nls: cannot access 'new': No such file or "
            "directory\n[exit code 2]\n");
}

TEST_F(Base, what_is_changed_cannot_be_hidden_by_the_times_of_files) {
  const BaseTree base = tree();
  if (!is_shared(base)) GTEST_SKIP() << "files of the machine cannot be shared here";
  const auto sandbox = on(*backend_, base);
  shell_in(*sandbox,
           "touch -r src/a.py /tmp/stamp; printf 'a = 7\\n' > src/a.py; touch -r /tmp/stamp src/a.py;"
           "mv src x; mv other src; mv x other");
  const auto after = sandbox->collect();
  ASSERT_TRUE(after.has_value());
  EXPECT_THAT(after->files, UnorderedElementsAre(Pair("src/a.py", "x = 3\n"), Pair("other/a.py", "a = 7\n"),
                                                 Pair("other/b.py", "b = 2\n")));
  EXPECT_THAT(after->removed, ElementsAre("src/b.py"));
}

TEST_F(Base, is_a_layer_below_what_a_setup_has_made) {
  const BaseTree base = tree();
  if (!is_shared(base)) GTEST_SKIP() << "files of the machine cannot be shared here";
  spec_.sealable = true;
  auto sandbox = on(*backend_, base);
  shell_in(*sandbox, "echo made > made; rm tool.sh");
  const auto sealed = seal(*sandbox);
  ASSERT_TRUE(sealed.has_value()) << sealed.error().to_string();
  SandboxSpec spec = spec_;
  spec.base = base;
  const auto next = begin_again(*backend_, spec, *sealed);
  ASSERT_TRUE(next.has_value()) << next.error().to_string();
  EXPECT_EQ(shell_in(**next, "cat made src/a.py; ls link tool.sh 2>/dev/null"),
            "made\na = 1\nlink:\na.py\nb.py\n[exit code 2]\n");
  const auto after = (*next)->collect();
  ASSERT_TRUE(after.has_value());
  EXPECT_THAT(after->files, ElementsAre(Pair("made", "made\n")));
  EXPECT_THAT(after->removed, ElementsAre("tool.sh"));
}

TEST_F(Base, answers_about_one_are_not_answers_about_another) {
  const BaseTree base = tree();
  if (!is_shared(base)) GTEST_SKIP() << "files of the machine cannot be shared here";
  ReadCache cache(1 << 20);
  CachingBackend caching(*backend_, cache);
  const auto read = [](Sandbox& sandbox) { return sandbox.call("read_file", {{"target_file", "src/a.py"}})->output; };
  EXPECT_THAT(read(*on(caching, base)), HasSubstr("a = 1"));
  scratch_.put("repo/src/a.py", "a = 5\n");
  EXPECT_THAT(read(*on(caching, tree())), HasSubstr("a = 5"));
}

constexpr const char* kBaseTask = R"yaml(
instruction: Let a be 2.
base: {folder: repo}
check:
  files: {tests/test_a.py: "import sys; sys.path.insert(0, '.'); from src.a import a; print(a)"}
  commands:
    - {run: python3 tests/test_a.py, output: "2"}
    - {run: cat conftest.py, output: "# of the task"}
  files_after: {src/b.py: "b = 2\n"}
)yaml";

TEST_F(Base, of_a_task_is_graded_with_what_was_left_behind_over_it) {
  scratch_.put("task.yaml", kBaseTask);
  const auto set = TaskSet::read(scratch_.path / "task.yaml");
  ASSERT_TRUE(set.has_value()) << set.error().to_string();
  const auto reward_after = [&](const std::string& command) {
    const auto episode = Episode::open(set->tasks()[0], *backend_);
    EXPECT_TRUE(episode.has_value()) << episode.error().to_string();
    if (!episode) return -1.0;
    const auto words = (*episode)->opening(ToolListing::kByTemplate).messages[1].content;
    EXPECT_THAT(words, HasSubstr("conftest.py\nlink\nother/\nsrc/\ntool.sh\n(6 files in all)"));
    EXPECT_THAT(words, Not(HasSubstr(".git")));
    EXPECT_TRUE((*episode)->call("run_terminal_cmd", {{"command", command}}).has_value());
    const auto grade = (*episode)->score("");
    EXPECT_TRUE(grade.has_value()) << grade.error().to_string();
    return grade ? grade->reward : -1;
  };
  if (!is_shared(tree())) GTEST_SKIP() << "files of the machine cannot be shared here";
  EXPECT_EQ(reward_after("true"), 0);
  EXPECT_EQ(reward_after("echo 'a = 2' > src/a.py"), 1);
  EXPECT_EQ(reward_after("echo 'a = 2' > src/a.py; echo cheat > conftest.py"), 1) << "it is as it was";
  EXPECT_EQ(reward_after("echo 'a = 2' > src/a.py; rm conftest.py; echo x > tests"), 1);
  EXPECT_EQ(reward_after("echo 'a = 2' > src/a.py; rm src/b.py"), 0);
  EXPECT_EQ(reward_after("mv src x; mkdir src; echo 'a = 2' > src/a.py; cp x/b.py src"), 1);
  EXPECT_EQ(reward_after("rm -rf src; echo 'a = 2' > src"), 0);
  // Each of these was an error, with which an episode that failed had no reward.
  EXPECT_EQ(reward_after("rm conftest.py; mkdir conftest.py; echo x > conftest.py/x"), 0);
  EXPECT_EQ(reward_after("echo 'a = 2' > src/a.py; rm conftest.py; mkdir conftest.py; echo x > conftest.py/x"), 1);
  EXPECT_EQ(reward_after("echo > $'q\\xff'; chmod +x $'q\\xff'"), 0);
  EXPECT_EQ(reward_after("mkdir some-long-name; cd some-long-name; seq -f a-file-of-many-%g 5000 | xargs touch; "
                         "chmod +x *"),
            0);
}

TEST_F(Base, comes_from_a_commit_or_an_archive_too) {
  const auto run = [&](const std::string& line) {
    scratch_.put("line", line);
    const auto shell = "cd " + scratch_.path.string() +
                       " && env -i PATH=/usr/bin:/bin HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 bash line > log 2>&1";
    ASSERT_EQ(system(shell.c_str()), 0) << scratch_.get("log");
  };
  run("rm -r repo/.git && tar -caf repo.tar.gz repo && cd repo && git init -q && git add -A && git -c user.name=t -c "
      "user.email=t@t commit -qm one && echo 'a = 8' > src/a.py && git add -A && git -c user.name=t -c "
      "user.email=t@t "
      "commit -qm two");
  for (const auto& [kind, source, commit, a] : {std::tuple{TaskBase::Kind::kArchive, "repo.tar.gz", "", "a = 1\n"},
                                                std::tuple{TaskBase::Kind::kGit, "repo", "HEAD", "a = 8\n"},
                                                std::tuple{TaskBase::Kind::kGit, "repo", "HEAD~1", "a = 1\n"}}) {
    SCOPED_TRACE(std::string(source) + commit);
    const auto found = find_task_base(kind, scratch_.path / source, commit);
    ASSERT_TRUE(found.has_value()) << found.error().to_string();
    const auto base = prepare_base(*found);
    ASSERT_TRUE(base.has_value()) << base.error().to_string();
    EXPECT_EQ(base->files, 6u);
    EXPECT_EQ(read_base_file(*base, "src/a.py").value_or(""), a);
    EXPECT_EQ(read_base_file(*base, "link/a.py").value_or(""), a);
    EXPECT_EQ(read_base_file(*base, "../manifest").error().code(), Code::kNotFound);
    EXPECT_EQ(fs::status(base->tree() / "tool.sh").permissions() & fs::perms::owner_exec, fs::perms::owner_exec);
    EXPECT_EQ(fs::read_symlink(base->tree() / "link"), "src");
    EXPECT_EQ(prepare_base(*found)->digest, base->digest) << "the second time it is there";
  }
  const auto none = find_task_base(TaskBase::Kind::kGit, scratch_.path / "repo", "nosuch");
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().to_string(), HasSubstr("repo has no commit \"nosuch\""));
}

// A base may hold links that lead out of it: grading reads its files on the host.
TEST_F(Base, is_never_left_by_a_link) {
  fs::create_symlink("/etc", scratch_.path / "repo/out");
  fs::create_symlink("../..", scratch_.path / "repo/src/up");
  const BaseTree base = tree();
  for (const char* path : {"out/passwd", "src/up/manifest", "out", "link", "../manifest", "/etc/passwd", ""}) {
    EXPECT_EQ(read_base_file(base, path).error().code(), Code::kNotFound) << path;
  }
  EXPECT_FALSE(mode_in_base(base, "out/passwd").has_value());
  EXPECT_EQ(read_base_file(base, "link/a.py").value_or(""), "a = 1\n");
}

TEST_F(Base, of_two_folders_that_differ_in_content_alone_is_not_the_same) {
  scratch_.put("twin/a", "one");
  scratch_.put("twice/a", "two");
  fs::last_write_time(scratch_.path / "twice/a", fs::last_write_time(scratch_.path / "twin/a"));
  const auto one = find_task_base(TaskBase::Kind::kFolder, scratch_.path / "twin");
  const auto two = find_task_base(TaskBase::Kind::kFolder, scratch_.path / "twice");
  ASSERT_TRUE(one && two);
  EXPECT_NE(one->digest, two->digest);
  scratch_.put("twice/a", "one");
  EXPECT_EQ(find_task_base(TaskBase::Kind::kFolder, scratch_.path / "twice")->digest, one->digest);
}

// A file system notes times by the tick of a clock, so two changes may have one time.
TEST_F(Base, that_is_changed_again_at_once_is_not_taken_for_what_it_was) {
  std::set<std::string> digests;
  for (int i = 0; i < 20; ++i) {
    scratch_.put("quick/a", std::to_string(10 + i));
    const auto base = find_task_base(TaskBase::Kind::kFolder, scratch_.path / "quick");
    ASSERT_TRUE(base.has_value()) << base.error().to_string();
    digests.insert(base->digest);
  }
  EXPECT_EQ(digests.size(), 20u);
}

TEST_F(Base, that_cannot_be_had_is_told_with_its_place) {
  scratch_.put("none/a.yaml", "instruction: x\ncheck: {answer: y}\nbase: {folder: nowhere}\n");
  scratch_.put("none/b.yaml", "instruction: x\ncheck: {answer: y}\nbase: {git: ../repo}\n");
  scratch_.put("none/c.yaml", "instruction: x\ncheck: {answer: y}\nbase: {git: ../repo/src, commit: main}\n");
  scratch_.put("none/d.yaml", "instruction: x\ncheck: {answer: y}\nbase: {archive: nothing.tar}\n");
  scratch_.put("none/e.yaml", "instruction: x\ncheck: {answer: y}\nimage: debian:12\nbase: {folder: ../repo}\n");
  const auto set = TaskSet::read(scratch_.path / "none");
  ASSERT_FALSE(set.has_value());
  const auto all = set.error().to_string();
  for (const char* part :
       {"a.yaml:3: base: there is no folder", "b.yaml:3: base is one of {folder: DIR}",
        "c.yaml:3: base: there is no git repository", "d.yaml:3: base: ", "leave out base or image"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
  scratch_.put("broken.tar", "not an archive");
  const auto broken = find_task_base(TaskBase::Kind::kArchive, scratch_.path / "broken.tar");
  ASSERT_TRUE(broken.has_value());
  EXPECT_THAT(prepare_base(*broken).error().to_string(), HasSubstr("broken.tar cannot be unpacked"));
  const auto moving = find_task_base(TaskBase::Kind::kFolder, scratch_.path / "repo");
  scratch_.put("repo/more", "more");
  EXPECT_THAT(prepare_base(*moving).error().to_string(), HasSubstr("has changed since the task was read"));
}

TEST_F(Base, a_manifest_of_others_is_refused_and_nothing_is_taken_for_unchanged) {
  for (const char* text :
       {"", "tandem-base-2", "tandem-base-2 1 1 1", "tandem-base-1 0 0 0\n", "tandem-base-2 1 1 1 0\n",
        "tandem-base-2 1 1 9 5\n5 - a", "tandem-base-2 1 1 9 5\nx - a", "tandem-base-2 0 0 0 9\n"}) {
    EXPECT_FALSE(collect_changes(scratch_.path / "repo", text).complete) << text;
  }
}

// Each of these gave every episode a reward of 0, or the same error for ever.
TEST_F(Base, that_is_not_as_it_was_made_is_made_again) {
  const BaseTree base = tree();
  const auto expect_made_again = [&](const char* what) {
    SCOPED_TRACE(what);
    EXPECT_EQ(open_base_tree(base.folder, base.digest).error().code(), Code::kCorrupt);
    EXPECT_EQ(tree().files, base.files);
    EXPECT_TRUE(open_base_tree(base.folder, base.digest).has_value());
    EXPECT_EQ(read_base_file(base, "src/a.py").value_or(""), "a = 1\n");
  };
  EXPECT_TRUE(open_base_tree(base.folder, base.digest).has_value());
  fs::resize_file(base.manifest(), fs::file_size(base.manifest()) - 1);
  expect_made_again("the manifest is cut off");
  fs::rename(base.folder, scratch_.path / "moved");
  fs::copy(scratch_.path / "moved", base.folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  expect_made_again("it is a copy");
  fs::remove_all(base.tree());
  expect_made_again("all of it is gone");
}

TEST_F(Base, files_whose_names_are_not_text_are_graded_as_they_were_left) {
  scratch_.put("repo/b\xff", "there\n");
  scratch_.put("task.yaml",
               "instruction: Remove it.\nbase: {folder: repo}\ncheck: {commands: [{run: \"test ! -e b?\"}]}\n");
  if (!is_shared(tree())) GTEST_SKIP() << "files of the machine cannot be shared here";
  const auto set = TaskSet::read(scratch_.path / "task.yaml");
  ASSERT_TRUE(set.has_value()) << set.error().to_string();
  for (const auto& [command, reward] : {std::pair{"true", 0.0}, std::pair{"rm b?", 1.0}}) {
    const auto episode = Episode::open(set->tasks()[0], *backend_);
    ASSERT_TRUE(episode.has_value()) << episode.error().to_string();
    EXPECT_TRUE((*episode)->call("run_terminal_cmd", {{"command", command}}).has_value());
    const auto grade = (*episode)->score("");
    ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
    EXPECT_EQ(grade->reward, reward) << command;
  }
}

TEST_F(Base, a_signed_commit_is_read_without_the_program_that_its_repository_names_for_signatures) {
  const auto marker = scratch_.path / "run";
  const auto made = run_process(
      {.argv = {"/bin/bash", "-c",
                "set -e; rm -rf .git link; git init -q .; git add -A; tree=$(git write-tree)\n"
                "commit=$(printf 'tree %s\\nauthor a <a@b.example> 1 +0000\\ncommitter a <a@b.example> 1 +0000\\n"
                "gpgsig -----BEGIN PGP SIGNATURE-----\\n \\n x\\n -----END PGP SIGNATURE-----\\n\\nsigned\\n' $tree | "
                "git hash-object -t commit -w --stdin)\n"
                "git update-ref HEAD $commit; git config log.showSignature true\n"
                "printf '#!/bin/sh\\ntouch %s\\n' $MARKER > .git/evil; chmod +x .git/evil\n"
                "git config gpg.program $PWD/.git/evil; git show -s HEAD; test -e $MARKER; rm $MARKER"},
       .directory = scratch_.path / "repo",
       .environment = {"PATH=/usr/bin:/bin", "HOME=/nonexistent", "MARKER=" + marker.string()}});
  ASSERT_TRUE(made.has_value());
  ASSERT_EQ(made->exit_code, 0) << made->output;
  const auto found = find_task_base(TaskBase::Kind::kGit, scratch_.path / "repo", "HEAD");
  ASSERT_TRUE(found.has_value()) << found.error().to_string();
  EXPECT_TRUE(prepare_base(*found).has_value());
  EXPECT_FALSE(fs::exists(marker));
}

TEST_F(Base, a_cheat_keeps_the_code_of_the_base_that_it_is_put_in_front_of) {
  Task task;
  task.base.emplace();
  task.base->tree = tree();
  task.solution.turns = {{{"write", {{"file_path", "src/a.py"}, {"contents", "a = 2\n"}}}}};
  for (const auto cheat : {Cheat::kExitsEarly, Cheat::kForgesReport}) {
    const auto commands = commands_of(cheat, task);
    ASSERT_EQ(commands.size(), 1u);
    EXPECT_THAT(commands[0],
                testing::AnyOf(HasSubstr("os._exit(0)\na = 1\n"), HasSubstr("raise SystemExit(0)\na = 1\n")));
  }
}

}  // namespace
}  // namespace tandem::envs
