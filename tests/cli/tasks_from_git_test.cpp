// `tandem tasks from-git` on a repository of every kind of commit, by the real program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "envs/tools/process.h"
#include "tests/envs/scratch.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

// `save` commits all that is there; `code` and `check` add a function and its test.
constexpr const char* kGitBegin = R"SH(set -e
export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.example GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.example
save() { git add -A; git commit -q --allow-empty-message -m "$1"; }
code() { printf '\n\ndef %s(text):\n    return %s\n' "$1" "$2" >> words.py; }
check() { printf '\n    def test_%s(self):\n        self.assertEqual(%s, %s)\n' "$1" "$2" "$3" >> tests/test_words.py; }
)SH";

constexpr const char* kHistory = R"SH(
git init -q -b main .
mkdir tests
touch tests/__init__.py
echo '"""Words of texts."""' > words.py
code first 'text.split()[0]'
printf 'import unittest\nimport words\n\n\nclass Words(unittest.TestCase):\n' > tests/test_words.py
check first 'words.first("a b")' '"a"'
save 'Begin with the first word'
code last 'text.split()[-1]'
check last 'words.last("a b")' '"b"'
save 'Add last, the last word of a text (#12)

Signed-off-by: A <a@b.example>'
git checkout -q -b side
echo side > notes.cfg
save 'Take notes beside the work'
git checkout -q main
code longest 'max(text.split(), key=len)'
check longest 'words.longest("a bb")' '"bb"'
save 'Find the word with the most letters'
git merge -q --no-ff -m 'Merge the notes of the side' side
code same 'text'
check same_first 'words.first("a")' '"a"'
save 'Add a test that passed before this'
code wrong 'text'
check wrong 'words.wrong("a")' '"b"'
save 'Add wrong, which never passes at all'
sed -i '/test_wrong/,$d' tests/test_words.py
save 'Only change tests and nothing besides'
echo '# more' >> words.py
save 'Only change source and nothing besides'
code quiet 'text'
check quiet 'words.quiet("a")' '"a"'
save ''
code shortly 'text'
check shortly 'words.shortly("a")' '"a"'
save 'Fix it'
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do code "number$i" 'text'; check "number$i" "words.number$i('a')" "'a'"; done
save 'Add many functions at the same time'
git mv notes.cfg other.cfg
check renamed '1' '1'
save 'Give the notes another name today'
printf 'a\0b' > data.bin
check binary '1' '1'
save 'Add data that is no text at all'
git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),module
mkdir module
check module '1' '1'
save 'Add a module of another repository'
git rm -q --cached module
rmdir module
save 'Take the module away once again'
ln -s words.py link.py
check link '1' '1'
save 'Add a link to the only module'
rm link.py
save 'Take the link away once again'
chmod +x words.py
check mode '1' '1'
save 'Let the module be a program, too'
for i in $(seq 30);
do echo $i > "part$i.py"; done
check parts '1' '1'
save 'Add very many parts all at once'
printf 'import os\nimport unittest\n\n\nclass Any(unittest.TestCase):\n    pass\n\n\nif hasattr(__import__("words"), "unsure"):\n' > tests/test_any.py
printf '    setattr(Any, "test_" + os.urandom(8).hex(), lambda self: None)\n' >> tests/test_any.py
code unsure 'text'
save 'Add unsure, with tests of any name'
printf '[tool.pytest.ini_options]\naddopts = "-q"\n' > pyproject.toml
printf 'import unittest\n\n\nclass Settings(unittest.TestCase):\n    def test_settings(self):\n' > tests/test_settings.py
printf '        self.assertIn("addopts", open("pyproject.toml").read())\n' >> tests/test_settings.py
save 'Add settings that a grader leaves out: pyproject addopts'
git rm -q part3.py
code total 'len(text.split())'
check total 'words.total("a b")' '2'
printf '#!/bin/sh\n' > tool
chmod +x tool
save 'Add total, and a tool; remove a part'
printf 'x = 1\n' > "$(printf 'a\001b.py')"
check control '1' '1'
save 'Add a file of a strange name'
code after 'text'
check after 'words.after("a")' '"a"'
save 'Add after, in a strange tree'
#Whatever could make git run something.
printf '* filter=evil diff=evil\n' > .gitattributes
for key in filter.evil.smudge filter.evil.clean filter.evil.process diff.evil.command diff.evil.textconv diff.external \
  core.fsmonitor core.pager core.sshCommand gpg.program core.editor;
do git config $key "touch $EVIL; cat"; done
git config log.showSignature true
for hook in post-checkout pre-commit post-index-change reference-transaction;
do
  printf '#!/bin/sh\ntouch %s\n' "$EVIL" > .git/hooks/$hook
  chmod +x .git/hooks/$hook
done
)SH";

class TasksFromGit : public testing::Test {
 protected:
  // What a script prints in the repository, both streams; a failure where it fails.
  std::string git(const std::string& script) {
    std::filesystem::create_directories(scratch_.path / "repo");
    const auto result = envs::run_process(
        {.argv = {"/bin/bash", "-c", kGitBegin + script},
         .directory = scratch_.path / "repo",
         .environment = {"PATH=/usr/bin:/bin", "EVIL=" + evil().string(), "XDG_CACHE_HOME=" + scratch_.path.string()}});
    EXPECT_TRUE(result.has_value());
    EXPECT_EQ(result->exit_code, 0) << result->output;
    return result->output;
  }
  // What `tandem tasks ARGUMENTS` prints, and its exit code.
  std::pair<std::string, int> tasks(const std::string& arguments) {
    const auto result = envs::run_process(
        {.argv = {"/bin/bash", "-c", "'" TANDEM_BINARY "' tasks " + arguments},
         .directory = scratch_.path,
         .environment = {"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "XDG_CACHE_HOME=" + scratch_.path.string()},
         .time_limit_s = 500});
    return result ? std::pair(result->output, result->exit_code) : std::pair(result.error().message(), -1);
  }
  // Decisions by subject.
  static std::map<std::string, Json> decisions(const std::string& lines) {
    std::map<std::string, Json> result;
    for (const auto line : split(std::string_view(lines), '\n')) {
      if (!line.starts_with('{')) continue;
      const auto json = parse_json(line);
      EXPECT_TRUE(json.has_value()) << line;
      if (json && json->contains("subject")) result[json->at("subject").get<std::string>()] = *json;
    }
    return result;
  }
  std::filesystem::path evil() const { return scratch_.path / "evil"; }

  envs::Scratch scratch_;
  const std::string command_ = "from-git repo --out made --command 'python3 -m unittest -v {tests}'";
};

TEST_F(TasksFromGit, every_commit_is_a_task_or_says_why_and_a_killed_call_goes_on) {
  git(kHistory);
  std::filesystem::remove(evil());
  // Killed as soon as it has decided something.
  const auto killed = tasks(command_ +
                            " --json > first 2>&1 & pid=$!; for i in $(seq 3000); do "
                            "[ \"$(cat made/commits.log 2> /dev/null | wc -l)\" -gt 3 ] && break; sleep 0.1; done; "
                            "kill -9 $pid; wait $pid 2> /dev/null; wc -l < made/commits.log");
  EXPECT_GT(std::stoi(killed.first), 3) << killed.first;
  std::ofstream(scratch_.path / "made/commits.log", std::ios::app) << "{\"commit\": \"12";  // killed while it wrote
  const auto rest = tasks(command_ + " --json");
  EXPECT_EQ(rest.second, 0) << rest.first;
  EXPECT_THAT(rest.first, HasSubstr("commits are in made already"));
  const auto decided = decisions(scratch_.get("made/commits.log"));
  EXPECT_EQ(std::to_string(decided.size()) + "\n", git("git rev-list --count main"));

  const std::map<std::string, std::string> refused = {
      {"Begin with the first word", "first"},
      {"Take notes beside the work", "no_tests"},
      {"Merge the notes of the side", "merge"},
      {"Add a test that passed before this", "nothing_fails"},
      {"Add wrong, which never passes at all", "nothing_fails"},
      {"Only change tests and nothing besides", "no_source"},
      {"Only change source and nothing besides", "no_tests"},
      {"", "no_message"},
      {"Fix it", "short_message"},
      {"Add many functions at the same time", "too_little_said"},
      {"Give the notes another name today", "rename"},
      {"Add data that is no text at all", "binary"},
      {"Add a module of another repository", "submodule"},
      {"Add a link to the only module", "symlink"},
      {"Let the module be a program, too", "mode"},
      {"Add very many parts all at once", "too_large"},
      {"Add unsure, with tests of any name", "flaky"},
      {"Add settings that a grader leaves out: pyproject addopts", "proof"},
      {"Add a file of a strange name", "path"},
      {"Add after, in a strange tree", "tree"},
  };
  for (const auto& [subject, why] : refused) {
    ASSERT_TRUE(decided.contains(subject)) << subject;
    EXPECT_EQ(decided.at(subject).at("why"), why) << decided.at(subject).dump(2);
    EXPECT_NE(decided.at(subject).at("detail"), "") << subject;
  }
  for (const char* subject : {"Add last, the last word of a text (#12)", "Find the word with the most letters",
                              "Add total, and a tool; remove a part"}) {
    ASSERT_TRUE(decided.contains(subject)) << subject;
    EXPECT_EQ(decided.at(subject).at("why"), Json()) << decided.at(subject).dump(2);
    EXPECT_EQ(decided.at(subject).at("fail_to_pass"), 1) << subject;
  }
  EXPECT_EQ(decided.at("Find the word with the most letters").at("told"), Json({"longest"}));

  const auto table = tasks(command_);
  EXPECT_EQ(table.second, 0) << table.first;
  EXPECT_THAT(table.first, HasSubstr("rename                 1  files are renamed"));
  EXPECT_THAT(table.first, HasSubstr("3 tasks of " + std::to_string(decided.size()) + " commits"));
  const auto other = tasks(command_ + " --most-names 3");
  EXPECT_EQ(other.second, 2);
  EXPECT_THAT(other.first, HasSubstr("is of another repository, another command or other rules"));

  // The set moves: nothing of it is needed but the folder itself.
  std::filesystem::rename(scratch_.path / "made", scratch_.path / "moved");
  std::filesystem::rename(scratch_.path / "repo", scratch_.path / "gone");
  const auto proved = tasks("validate moved --repeats 1");
  EXPECT_EQ(proved.second, 0) << proved.first;
  EXPECT_THAT(proved.first, HasSubstr("3 tasks in"));
  const auto name = decided.at("Add total, and a tool; remove a part").at("task").get<std::string>();
  const auto seen = tasks("try moved " + name + " <<'END'\nls -A\ncat tests/test_words.py\nexit\nEND");
  EXPECT_EQ(seen.second, 1);
  EXPECT_THAT(seen.first, HasSubstr("part3.py"));
  EXPECT_THAT(seen.first, Not(HasSubstr(".git\n")));
  EXPECT_THAT(seen.first.substr(0, seen.first.find("\nreward ")), Not(HasSubstr("words.total")));
  const auto shown =
      tasks("show moved " + decided.at("Add last, the last word of a text (#12)").at("task").get<std::string>());
  EXPECT_THAT(shown.first, HasSubstr("Add last, the last word of a text\n"));
  EXPECT_THAT(shown.first, Not(HasSubstr("Signed-off-by")));
  EXPECT_FALSE(std::filesystem::exists(evil())) << "git ran something of the repository";
}

TEST_F(TasksFromGit, commits_that_cannot_be_read_or_tested_say_so) {
  git(R"SH(git init -q -b main .
mkdir tests
printf 'import unittest, words\n\n\nclass Words(unittest.TestCase):\n' > tests/test_words.py
echo 'x = 1' > words.py
save 'Begin with nothing but a number'
code broken 'text +'
check broken 'words.broken("a")' '"a"'
save 'Add broken, which nobody can read'
echo 'import time; time.sleep(3600)' > words.py
sed -i 's/broken/number/g' tests/test_words.py
save 'Wait for number an hour at least'
echo 'y = 1' > words.py
check number 'words.y' '1'
save 'Begin once again with another number'
rm -f .git/objects/$(git rev-parse HEAD:words.py | sed 's,^..,&/,')
)SH");
  const auto all = tasks(command_ + " --json --seconds 10");
  EXPECT_EQ(all.second, 1) << "no task";
  const auto decided = decisions(all.first);
  ASSERT_EQ(decided.size(), 4u) << all.first;
  EXPECT_EQ(decided.at("Add broken, which nobody can read").at("why"), "tests_fail");
  EXPECT_EQ(decided.at("Wait for number an hour at least").at("why"), "slow");
  EXPECT_EQ(decided.at("Begin once again with another number").at("why"), "unreadable");
}

TEST_F(TasksFromGit, any_command_counts_by_its_end_and_a_limit_stops_early) {
  git(R"SH(git init -q -b main .
mkdir spec
echo 'echo 1' > one.sh
echo 'test "$(sh one.sh)" = 1' > spec/one.spec
save 'Begin with the number one alone'
echo 'echo 2' > one.sh
echo 'test "$(sh one.sh)" = 2' > spec/one.spec
save 'Say two where one was said'
echo 'echo 3' > one.sh
echo 'test "$(sh one.sh)" = 3' > spec/one.spec
save 'Say three where two was said'
)SH");
  const std::string command =
      "from-git repo --out made --tests 'spec/**' --command 'sh -e spec/one.spec' --by-exit --json";
  const auto one = tasks(command + " --limit 1 --threads 1");
  EXPECT_EQ(one.second, 0) << one.first;
  EXPECT_THAT(one.first, HasSubstr("1 task of 1 commits"));
  const auto all = tasks(command);
  EXPECT_THAT(all.first, HasSubstr("2 tasks of 3 commits"));
  EXPECT_EQ(tasks("validate made --repeats 1").second, 0);
}

TEST_F(TasksFromGit, what_is_asked_for_wrongly_is_one_clear_error) {
  git("git init -q -b main .; echo 1 > a; save 'Begin with a single file'");
  const auto none = tasks("from-git nowhere --out made");
  EXPECT_NE(none.second, 0);
  EXPECT_THAT(none.first, HasSubstr("there is no git repository at nowhere"));
  EXPECT_THAT(tasks(command_ + " --commits=--all").first, HasSubstr("is no range of commits"));
  EXPECT_THAT(tasks(command_ + " --commits v9").first, HasSubstr("git says"));
  EXPECT_THAT(tasks(command_ + " --kind 'a b'").first, HasSubstr("may have letters"));
  EXPECT_THAT(tasks(command_ + " --tests 'spec/['").first, HasSubstr("--tests"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path / "made"));
  scratch_.put("full/notes.txt", "mine");
  EXPECT_THAT(tasks("from-git repo --out full --command 'true'").first, HasSubstr("holds something else"));
}

// The program that builds a benchmark, on an archive that is there already, so that it needs no network.
TEST_F(TasksFromGit, a_recipe_becomes_tasks_of_four_kinds_that_are_proved) {
  scratch_.put("gadget-1/gadget.py", R"PY("""Numbers of gadgets."""


def parse_number(text):
    """The number in a text; ValueError for another text."""
    if not text.isdigit():
        raise ValueError("this is no number at all")
    return int(text)


def total_of(texts):
    """The sum of the numbers in texts, of those below a hundred."""
    total = 0
    for text in texts:
        number = parse_number(text)
        if number < 100:
            total = total + number
    return total
)PY");
  scratch_.put("gadget-1/test_gadget.py", R"PY(import unittest

import gadget


class Gadget(unittest.TestCase):
    def test_number(self):
        self.assertEqual(gadget.parse_number("12"), 12)

    def test_total(self):
        self.assertEqual(gadget.total_of(["1", "99", "100"]), 100)
)PY");
  const auto run = [&](const std::string& script) {
    const auto result = envs::run_process(
        {.argv = {"/bin/bash", "-c", script},
         .directory = scratch_.path,
         .environment = {"PATH=/usr/bin:/bin", "XDG_CACHE_HOME=" + scratch_.path.string(), "PYTHONDONTWRITEBYTECODE=1"},
         .time_limit_s = 500});
    return result ? std::pair(result->output, result->exit_code) : std::pair(result.error().message(), -1);
  };
  ASSERT_EQ(run("mkdir -p set.work/archives; tar -czf set.work/archives/gadget-1.tar.gz gadget-1").second, 0);
  const auto digest = run("sha256sum < set.work/archives/gadget-1.tar.gz | cut -c1-64").first;
  const std::string recipe =
      "[most]\nfeature = 1\nbug = 1\nrefactor = 1\nexplain = 1\n[[project]]\nname = \"gadget\"\nversion = \"1\"\n"
      "command = \"python3 -m unittest -v\"\ntests = \".\"\nkeep = [\"gadget.py\", \"test_gadget.py\"]\n";
  scratch_.put("recipe.toml", recipe + "sha256 = \"" + std::string(trim(digest)) + "\"\n");
  scratch_.put("wrong.toml", recipe + "digest = \"" + std::string(trim(digest)) + "\"\n");
  const std::string build =
      "python3 " TANDEM_SOURCE_DIR "/examples/bench/build set --tandem " TANDEM_BINARY " --recipe ";
  const auto wrong = run(build + "wrong.toml");
  EXPECT_EQ(wrong.second, 2);
  EXPECT_THAT(wrong.first, HasSubstr("gadget has the unknown key digest"));
  const auto made = run(build + "recipe.toml");
  EXPECT_EQ(made.second, 0) << made.first;
  EXPECT_THAT(made.first, HasSubstr("4 tasks. Next: tandem tasks validate set"));
  const auto proved = tasks("validate set --repeats 1");
  EXPECT_EQ(proved.second, 0) << proved.first;
  for (const char* kind : {"feature  ", "bug  ", "refactor  ", "explain  "})
    EXPECT_THAT(proved.first, HasSubstr("\n" + std::string(kind))) << proved.first;
  const auto again = run(build + "recipe.toml");
  EXPECT_EQ(again.second, 0) << again.first;
  EXPECT_THAT(again.first, HasSubstr("4 tasks. Next"));
}

}  // namespace
}  // namespace tandem
