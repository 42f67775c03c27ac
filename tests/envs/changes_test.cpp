// What an agent changed in a copy of a folder: seen, carried over, and taken back.
// GCC 12 sees endless copies in strings that are replaced in part (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/text.h"
#include "envs/changes/folder_copy.h"
#include "envs/changes/undo_store.h"
#include "envs/changes/unified_diff.h"
#include "envs/changes/write_back.h"
#include "envs/tools/process.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<TreeEntry> tree_of(const fs::path& folder) { return *read_tree(*pack_tree(folder)); }

std::string mode_of(const fs::path& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? std::to_string(info.st_mode & 0777) : "gone";
}

// Two folders: the user's, and a copy that is changed by hand where an agent would do it.
class Changes : public testing::Test {
 protected:
  Changes() {
    user_.put("a.txt", "one\ntwo\nthree\n");
    user_.put("dir/b.txt", "b\n");
    user_.put("dir/c.txt", "c\n");
    user_.put("run.sh", "#!/bin/sh\n");
    fs::permissions(user_.path / "run.sh", fs::perms(0755));
    fs::permissions(user_.path / "a.txt", fs::perms(0640));
    start();
  }
  void start() {
    before_ = tree_of(user_.path);
    EXPECT_TRUE(unpack_tree(copy_.path, *pack_tree(user_.path)).ok());
  }
  std::vector<Change> changes() { return changes_between(before_, tree_of(copy_.path)); }
  std::vector<std::string> kinds() {
    std::vector<std::string> found;
    for (const auto& change : changes()) found.push_back(fmt::format("{} {}", kind_of(change), change.path));
    return found;
  }
  // What became of each change, in words.
  std::vector<std::string> written(const std::vector<Change>& all) {
    const auto outcomes = write_back(user_.path, all, {}, batches_);
    EXPECT_TRUE(outcomes) << outcomes.error().message();
    std::vector<std::string> found;
    for (size_t i = 0; i < all.size(); ++i)
      found.push_back(fmt::format("{} {}", all[i].path, to_string((*outcomes)[i].outcome)));
    return found;
  }
  // Folders hold the same, but for times.
  void expect_user_has_the_copy() { EXPECT_THAT(changes_between(tree_of(user_.path), tree_of(copy_.path)), IsEmpty()); }

  Scratch user_, copy_;
  std::vector<TreeEntry> before_;
  WriteBatches batches_;
};

TEST_F(Changes, each_is_found_by_its_kind_and_times_are_none) {
  copy_.put("a.txt", "one\n2\nthree\n");
  copy_.put("new/n.txt", "n\n");
  fs::remove(copy_.path / "dir/b.txt");
  fs::permissions(copy_.path / "run.sh", fs::perms(0644));
  fs::last_write_time(copy_.path / "dir/c.txt", fs::file_time_type::clock::now());
  EXPECT_THAT(kinds(), ElementsAre("changed a.txt", "deleted dir/b.txt", "new folder new", "new new/n.txt",
                                   "mode 755 -> 644 run.sh"));
}

TEST_F(Changes, are_carried_over_with_their_modes) {
  copy_.put("a.txt", "other\n");
  copy_.put("x/y/new.sh", "#!/bin/sh\n");
  fs::permissions(copy_.path / "x/y/new.sh", fs::perms(0750));
  fs::permissions(copy_.path / "x/y", fs::perms(0555));
  fs::create_symlink("y/new.sh", copy_.path / "x/link");
  fs::remove_all(copy_.path / "dir");
  for (const auto& outcome : written(changes())) EXPECT_THAT(outcome, HasSubstr(" written"));
  expect_user_has_the_copy();
  EXPECT_EQ(user_.get("a.txt"), "other\n");
  EXPECT_EQ(mode_of(user_.path / "a.txt"), std::to_string(0640));
  EXPECT_EQ(fs::read_symlink(user_.path / "x/link"), "y/new.sh");
  for (const auto& entry : fs::recursive_directory_iterator(user_.path))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tandem-")));
  fs::permissions(user_.path / "x/y", fs::perms(0755));
  fs::permissions(copy_.path / "x/y", fs::perms(0755));
}

TEST_F(Changes, a_file_becomes_a_folder_and_a_folder_a_file_and_both_come_back) {
  fs::remove(copy_.path / "a.txt");
  copy_.put("a.txt/inside", "i\n");
  fs::remove_all(copy_.path / "dir");
  copy_.put("dir", "a file now\n");
  const auto all = changes();
  for (const auto& outcome : written(all)) EXPECT_THAT(outcome, HasSubstr(" written"));
  expect_user_has_the_copy();
  for (const auto& outcome : written(inverse(all))) EXPECT_THAT(outcome, HasSubstr(" written"));
  EXPECT_THAT(changes_between(before_, tree_of(user_.path)), IsEmpty());
}

TEST_F(Changes, what_somebody_else_changed_meanwhile_is_left_as_it_is) {
  copy_.put("a.txt", "of the agent\n");
  copy_.put("new.txt", "of the agent\n");
  fs::remove(copy_.path / "dir/b.txt");
  copy_.put("dir/c.txt", "of the agent\n");
  const auto all = changes();
  user_.put("a.txt", "of somebody\n");
  user_.put("new.txt", "of somebody\n");
  user_.put("dir/b.txt", "of somebody\n");
  EXPECT_THAT(written(all),
              ElementsAre("a.txt conflict", "dir/b.txt conflict", "dir/c.txt written", "new.txt conflict"));
  for (const char* name : {"a.txt", "new.txt", "dir/b.txt"}) EXPECT_EQ(user_.get(name), "of somebody\n") << name;
  EXPECT_EQ(user_.get("dir/c.txt"), "of the agent\n");
}

TEST_F(Changes, a_folder_in_which_somebody_put_something_stays) {
  fs::remove_all(copy_.path / "dir");
  const auto all = changes();
  user_.put("dir/d.txt", "of somebody\n");
  EXPECT_THAT(written(all), ElementsAre("dir conflict", "dir/b.txt written", "dir/c.txt written"));
  EXPECT_EQ(user_.get("dir/d.txt"), "of somebody\n");
}

TEST_F(Changes, no_link_of_the_user_is_followed) {
  Scratch outside;
  outside.put("a.txt", "one\ntwo\nthree\n");
  outside.put("b.txt", "b\n");
  copy_.put("a.txt", "of the agent\n");
  copy_.put("dir/b.txt", "of the agent\n");
  const auto all = changes();
  fs::remove(user_.path / "a.txt");
  fs::create_symlink(outside.path / "a.txt", user_.path / "a.txt");
  fs::remove_all(user_.path / "dir");
  fs::create_directory_symlink(outside.path, user_.path / "dir");
  EXPECT_THAT(written(all), ElementsAre("a.txt conflict", "dir/b.txt conflict"));
  EXPECT_EQ(outside.get("a.txt"), "one\ntwo\nthree\n");
  EXPECT_EQ(outside.get("b.txt"), "b\n");
}

TEST_F(Changes, links_that_lead_out_pipes_and_what_git_runs_stay_in_the_sandbox) {
  fs::create_symlink("/etc/passwd", copy_.path / "absolute");
  fs::create_symlink("dir/../../up", copy_.path / "up");
  fs::create_symlink("../a.txt", copy_.path / "dir/fine");
  ASSERT_EQ(mkfifo((copy_.path / "pipe").c_str(), 0600), 0);
  copy_.put(".git/hooks/pre-commit", "#!/bin/sh\n");
  copy_.put("dir/.GIT/config", "[core]\n");
  std::vector<std::string> refused, fine;
  for (const auto& change : changes()) (change.refused.empty() ? fine : refused).push_back(change.path);
  EXPECT_THAT(fine, ElementsAre("dir/fine"));
  EXPECT_THAT(refused, ElementsAre(".git", ".git/hooks", ".git/hooks/pre-commit", "absolute", "dir/.GIT",
                                   "dir/.GIT/config", "pipe", "up"));
  written(changes());
  EXPECT_FALSE(fs::exists(user_.path / ".git"));
  EXPECT_FALSE(fs::is_symlink(user_.path / "absolute"));
  EXPECT_TRUE(fs::is_symlink(user_.path / "dir/fine"));
}

// `a/b/l` leads to the folder itself, and is fine; what leads out by it is not, though its steps seem to stay inside.
TEST_F(Changes, links_that_lead_out_by_other_links_stay_in_the_sandbox) {
  copy_.put("a/b/c", "");
  fs::create_symlink("../..", copy_.path / "a/b/l");
  fs::create_symlink("a/b/l/../up", copy_.path / "out");
  std::vector<std::string> refused;
  for (const auto& change : changes()) {
    if (!change.refused.empty()) refused.push_back(change.path);
  }
  EXPECT_THAT(refused, ElementsAre("out"));
}

TEST_F(Changes, what_has_the_place_of_the_folder_by_now_is_not_written_to) {
  const auto begun = identity_of_folder(user_.path / "dir");
  ASSERT_TRUE(begun);
  const std::vector<Change> all = {
      {"n", std::nullopt, TreeEntry{.mode = S_IFREG | 0644, .path = "n", .content = "n\n"}, ""}};
  fs::rename(user_.path / "dir", user_.path / "moved");
  fs::create_directory_symlink(copy_.path, user_.path / "dir");
  const auto refused = write_back(user_.path / "dir", all, *begun);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().to_string(), HasSubstr("another folder by now"));
  EXPECT_FALSE(fs::exists(copy_.path / "n"));
  EXPECT_TRUE(write_back(user_.path / "moved", all, *begun));
  EXPECT_EQ(user_.get("moved/n"), "n\n");
}

TEST_F(Changes, a_pipe_of_the_user_s_stays_since_it_could_not_be_put_back) {
  for (const char* name : {"gone", "file"}) ASSERT_EQ(mkfifo((user_.path / name).c_str(), 0600), 0);
  start();
  fs::remove(copy_.path / "gone");
  fs::remove(copy_.path / "file");
  copy_.put("file", "of the agent\n");
  EXPECT_THAT(written(changes()), ElementsAre("file refused", "gone refused"));
  for (const char* name : {"gone", "file"}) EXPECT_TRUE(fs::is_fifo(user_.path / name)) << name;
}

TEST_F(Changes, what_has_the_name_of_a_temporary_file_stays) {
  const auto taken = fmt::format(".a.txt.tandem-{}-0", getpid());
  user_.put(taken, "of the user\n");
  copy_.put("a.txt", "of the agent\n");
  EXPECT_THAT(written(changes_between(before_, tree_of(copy_.path))), ElementsAre("a.txt written"));
  EXPECT_EQ(user_.get("a.txt"), "of the agent\n");
  EXPECT_EQ(user_.get(taken), "of the user\n");
}

TEST_F(Changes, what_cannot_be_read_any_more_is_not_taken_for_deleted) {
  auto after = tree_of(copy_.path);
  for (auto& entry : after) {
    if (entry.path == "a.txt") entry.mode &= 07777;  // as a tree has it that was packed by who may not read it
    if (entry.path == "dir") entry.mode = S_IFDIR | 0300;
  }
  std::erase_if(after, [](const TreeEntry& entry) { return entry.path.starts_with("dir/"); });
  std::vector<std::string> paths;
  for (const auto& change : changes_between(before_, after)) paths.push_back(change.path);
  EXPECT_THAT(paths, ElementsAre("dir"));  // its mode
}

TEST_F(Changes, writing_the_same_twice_changes_nothing_and_is_no_conflict) {
  copy_.put("a.txt", "other\n");
  copy_.put("new/n.txt", "n\n");
  fs::remove(copy_.path / "dir/b.txt");
  const auto all = changes();
  written(all);
  for (const auto& outcome : written(all)) EXPECT_THAT(outcome, HasSubstr(" written"));
  expect_user_has_the_copy();
}

TEST_F(Changes, any_changes_are_carried_over_and_taken_back_whole) {
  Random random(6);
  const std::string names[] = {"a.txt", "dir", "dir/b.txt", "dir/c.txt", "n", "n/m", "n/m/o", "run.sh"};
  for (int round = 0; round < 60; ++round) {
    batches_ = round % 2 == 0 ? WriteBatches{} : WriteBatches{.few = 0, .files = 3, .bytes = 3};
    for (int edit = 0; edit < 6; ++edit) {
      const auto path = copy_.path / random.pick(names);
      std::error_code ignored;
      if (random.chance(0.4)) fs::remove_all(path, ignored);
      if (random.chance(0.5)) fs::create_directories(path, ignored);
      if (random.chance(0.7) && !fs::is_directory(path, ignored)) {
        fs::create_directories(path.parent_path(), ignored);
        std::ofstream(path) << random.below(5);
      }
    }
    const auto all = changes();
    for (const auto& outcome : written(all)) EXPECT_THAT(outcome, HasSubstr(" written"));
    expect_user_has_the_copy();
    Scratch state;
    const UndoStore store(state.path / "s");
    const auto name = store.write({.workspace = user_.path, .unix_seconds = 5, .task = "t", .changes = all});
    ASSERT_TRUE(name) << name.error().message();
    for (const auto& outcome : written(inverse(UndoStore::read(*name)->changes)))
      EXPECT_THAT(outcome, HasSubstr(" written"));
    EXPECT_THAT(changes_between(before_, tree_of(user_.path)), IsEmpty());
    written(all);
    start();
  }
}

TEST_F(Changes, of_a_folder_the_newest_records_are_kept_and_damage_is_seen) {
  copy_.put("a.txt", "other\n");
  Scratch state;
  const UndoStore store(state.path / "deep" / "state");
  for (int i = 0; i < 25; ++i)
    ASSERT_TRUE(store.write(
        {.workspace = user_.path, .unix_seconds = 9990.0 + i, .task = std::to_string(i), .changes = changes()}));
  const auto records = store.records(user_.path);
  ASSERT_EQ(records.size(), UndoStore::kMostRecords);
  EXPECT_EQ(UndoStore::read(records.front())->task, "5");
  EXPECT_EQ(UndoStore::read(records.back())->task, "24");
  EXPECT_THAT(store.records("/elsewhere"), IsEmpty());
  EXPECT_EQ(mode_of(state.path / "deep" / "state"), std::to_string(0700));
  auto bytes = *read_file(records.back());
  for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    auto damaged = bytes;
    damaged[at] ^= 1;
    ASSERT_TRUE(write_file(records.back(), damaged));
    EXPECT_EQ(UndoStore::read(records.back()).error().code(), Code::kCorrupt);
  }
}

TEST_F(Changes, the_difference_is_what_git_applies) {
  copy_.put("a.txt", "one\n2\nthree\nfour");
  copy_.put("new.txt", "n\n");
  copy_.put("two\nlines \"and\" \\ ü", "n\n");
  fs::remove(copy_.path / "dir/b.txt");
  fs::permissions(copy_.path / "run.sh", fs::perms(0644));
  user_.put("diff", diff_of(changes(), 1 << 20));
  const auto git = find_program("git");
  if (git.empty()) GTEST_SKIP() << "git is not installed";
  const auto applied = run_process({{git, "apply", "diff"}, user_.path.string(), {"PATH=/usr/bin:/bin"}, 60});
  ASSERT_TRUE(applied);
  EXPECT_EQ(applied->exit_code, 0) << applied->output;
  fs::remove(user_.path / "diff");
  fs::permissions(user_.path / "a.txt", fs::perms(0640));
  expect_user_has_the_copy();
}

TEST_F(Changes, the_difference_is_printable_and_bounded_and_names_what_is_no_text) {
  copy_.put("binary", std::string("a\0b", 3));
  copy_.put("escape\x1b[31m", "\x1b]0;title\x07red\n");
  const auto diff = diff_of(changes(), 1 << 20);
  EXPECT_THAT(diff, HasSubstr("Binary files /dev/null and b/binary differ"));
  EXPECT_EQ(diff.find('\x1b'), std::string::npos);
  copy_.put("long", std::string(5000, '\n'));
  const auto cut = diff_of(changes(), 2000);
  EXPECT_LT(cut.size(), 2200u);
  EXPECT_THAT(cut, HasSubstr("[... the rest of long and 0 more left out ...]"));
}

TEST(UnifiedDiff, any_two_texts_differ_in_edits_that_make_one_of_the_other) {
  Random random(9);
  for (int round = 0; round < 1500; ++round) {
    std::vector<std::string> words = {"a", "b", "c", "d"};
    const auto text = [&] {
      std::vector<std::string_view> lines(random.below(30));
      for (auto& line : lines) line = random.pick(words);
      return lines;
    };
    const auto before = text(), after = text();
    std::vector<std::string_view> made;
    size_t line = 0;
    for (const auto& edit : line_edits(before, after)) {
      ASSERT_LE(line, edit.old_begin);
      ASSERT_LE(edit.old_end, before.size());
      for (; line < edit.old_begin; ++line) made.push_back(before[line]);
      ASSERT_EQ(made.size(), edit.new_begin);
      for (size_t i = edit.new_begin; i < edit.new_end; ++i) made.push_back(after.at(i));
      line = edit.old_end;
    }
    for (; line < before.size(); ++line) made.push_back(before[line]);
    EXPECT_EQ(made, after);
  }
}

TEST(UnifiedDiff, hunks_have_three_lines_around_and_say_where_the_last_line_is_open) {
  std::string before, after;
  for (int i = 1; i <= 30; ++i) before += fmt::format("{}\n", i);
  after = before;
  after.replace(after.find("\n5\n"), 3, "\nfive\n");
  after.replace(after.find("\n20\n"), 4, "\n");
  EXPECT_EQ(
      unified_hunks(before, after),
      "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n@@ -17,7 +17,6 @@\n 17\n 18\n 19\n-20\n 21\n 22\n 23\n");
  EXPECT_EQ(unified_hunks("", "a"), "@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n");
  EXPECT_EQ(unified_hunks("a\n", "a"), "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
  EXPECT_EQ(unified_hunks("a\n", "a\n"), "");
}

TEST(UnifiedDiff, texts_that_have_nothing_in_common_are_compared_in_bounded_time) {
  std::string before = "same\n", after = before;
  for (int i = 0; i < 20'000; ++i) before += fmt::format("a{}\n", i), after += fmt::format("b{}\n", i);
  EXPECT_THAT(unified_hunks(before, after), testing::StartsWith("@@ -1,20001 +1,20001 @@\n same\n-a0\n"));
}

class FolderCopies : public SandboxTest {
 protected:
  Scratch user_;
};

TEST_F(FolderCopies, a_sandbox_has_the_files_and_what_is_done_there_is_told) {
  user_.put("a.txt", "one\n");
  user_.put("node_modules/x/y", "large\n");
  user_.put("bin/tool", "#!/bin/sh\necho works\n");
  fs::permissions(user_.path / "bin/tool", fs::perms(0755));
  const auto copy = copy_folder(user_.path, *leaves_out_of({"node_modules/"}), *sandbox_);
  ASSERT_TRUE(copy) << copy.error().to_string();
  EXPECT_EQ(shell("ls; bin/tool"), "a.txt\nbin\nworks\n");
  shell("echo two >> a.txt; mkdir -p node_modules/x; echo z > node_modules/x/z; chmod 000 bin/tool");
  const auto changes = changes_in(*sandbox_, *copy);
  ASSERT_TRUE(changes) << changes.error().to_string();
  std::vector<std::string> found;
  for (const auto& change : *changes)
    found.push_back(fmt::format("{} {} {}", kind_of(change), change.path, change.refused));
  // The tool that nobody can read any more was not deleted.
  EXPECT_THAT(found, ElementsAre("changed a.txt ", "new folder node_modules it was left out by --exclude",
                                 "new folder node_modules/x it was left out by --exclude",
                                 "new node_modules/x/z it was left out by --exclude"));
  EXPECT_EQ(user_.get("a.txt"), "one\n");
}

TEST_F(FolderCopies, what_is_too_large_is_refused_by_name_and_git_alone_stays_behind) {
  user_.put("a.txt", "one\n");
  user_.put(".git/objects/pack", std::string(49 << 20, 'x'));
  const auto copy = copy_folder(user_.path, *leaves_out_of({}), *sandbox_);
  ASSERT_TRUE(copy) << copy.error().to_string();
  EXPECT_THAT(copy->note, HasSubstr(".git"));
  EXPECT_EQ(shell("ls -A"), "a.txt\n");
  user_.put("build/large.bin", std::string(49 << 20, 'x'));
  const auto refused = copy_folder(user_.path, *leaves_out_of({}), *sandbox_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalid);
  EXPECT_THAT(refused.error().hint(), HasSubstr("build (51 MB)"));
}

TEST_F(FolderCopies, what_lies_in_tmp_at_the_end_does_not_count) {
  user_.put("a.txt", "one\n");
  const auto copy = copy_folder(user_.path, *leaves_out_of({}), *sandbox_);
  ASSERT_TRUE(copy);
  shell("head -c 60000000 /dev/zero > /tmp/large; echo two > a.txt");
  const auto changes = changes_in(*sandbox_, *copy);
  ASSERT_TRUE(changes) << changes.error().to_string();
  EXPECT_EQ(changes->size(), 1u);
}

TEST(Excludes, bare_names_are_meant_at_any_depth_and_folders_with_all_in_them) {
  const auto leaves_out = *leaves_out_of({"build/", "*.o", "docs/*.md"});
  for (const char* path : {"build", "a/build", "a/build/x", "x.o", "a/b/x.o", "docs/a.md"})
    EXPECT_TRUE(leaves_out(path)) << path;
  for (const char* path : {"builds", "a", "x.oo", "docs", "a/docs/a.md", "a.md"})
    EXPECT_FALSE(leaves_out(path)) << path;
  EXPECT_FALSE(leaves_out_of({"[a"}).has_value());
}

}  // namespace
}  // namespace tandem::envs
