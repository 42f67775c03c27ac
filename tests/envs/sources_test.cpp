// Which files of a folder are searched, what has changed in them, and the tree that says so.
#include "envs/sandbox/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "envs/sandbox/ignore_rules.h"
#include "envs/search/merkle_tree.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> paths(const SourceChanges& changes) {
  std::vector<std::string> found;
  for (const auto& source : changes.changed) {
    if (source.now.left_out == LeftOut::kNot) found.push_back(source.now.path);
  }
  return found;
}

std::vector<KnownSource> known_of(const SourceChanges& changes) {
  std::vector<KnownSource> known;
  for (const auto& source : changes.changed) known.push_back(source.now);
  return known;
}

uint64_t count(const SourceChanges& changes, LeftOut why) { return changes.left_out[static_cast<size_t>(why)]; }

TEST(IgnoreRules, say_what_git_says) {
  IgnoreRules rules;
  rules.add("", "# comment\n*.o\nbuild/\n/top.txt\ndocs/*.pdf\n!keep.o\na/**/z\n\\#odd\nspace\\ \n{x}.c\n*.py[co]\r\n");
  EXPECT_TRUE(rules.ignores("src/a.o", false));
  EXPECT_FALSE(rules.ignores("src/keep.o", false));
  EXPECT_TRUE(rules.ignores("src/build", true));
  EXPECT_FALSE(rules.ignores("src/build", false));
  EXPECT_TRUE(rules.ignores("top.txt", false));
  EXPECT_FALSE(rules.ignores("src/top.txt", false));
  EXPECT_TRUE(rules.ignores("docs/a.pdf", false));
  EXPECT_FALSE(rules.ignores("docs/b/a.pdf", false));
  EXPECT_TRUE(rules.ignores("a/b/c/z", false));
  EXPECT_TRUE(rules.ignores("#odd", false));
  EXPECT_TRUE(rules.ignores("{x}.c", false));
  EXPECT_FALSE(rules.ignores("x.c", false));
  EXPECT_TRUE(rules.ignores("m.pyc", false));
}

TEST(IgnoreRules, of_a_folder_hold_from_there) {
  IgnoreRules rules;
  rules.add("", "*.log\n");
  rules.add("sub", "/local\n!important.log\n");
  EXPECT_TRUE(rules.ignores("sub/local", false));
  EXPECT_FALSE(rules.ignores("sub/deep/local", false));
  EXPECT_FALSE(rules.ignores("sub/important.log", false));
  rules.drop_to(1);
  EXPECT_TRUE(rules.ignores("sub/important.log", false));
}

TEST(Sources, secrets_binaries_ignored_generated_and_large_files_are_left_out_and_counted) {
  Scratch scratch;
  scratch.put("src/a.py", "x = 1\n");
  scratch.put(".hidden/b.py", "y = 2\n");
  scratch.put(".gitignore", "out/\n*.tmp\n");
  scratch.put(".tandemignore", "private.txt\n");
  scratch.put("out/c.py", "z\n");
  scratch.put("d.tmp", "z\n");
  scratch.put("private.txt", "z\n");
  scratch.put(".git/config", "z\n");
  scratch.put(".env", "KEY=1\n");
  scratch.put(".env.example", "KEY=\n");
  scratch.put("deploy/server.pem", "z\n");
  scratch.put("notes.txt",
              "-----BEGIN RSA PRIVATE KEY-----\n" + std::string(64, 'A') + "\n-----END RSA PRIVATE KEY-----\n");
  scratch.put("reads_keys.py", "HEAD = '-----BEGIN RSA PRIVATE KEY-----'\n");
  scratch.put("image.bin", std::string("\x89PNG\0\0", 6));
  scratch.put("large.txt", std::string(kLargestSource + 1, 'a'));
  scratch.put("app.min.js", std::string(50'000, 'a'));
  scratch.put("yarn.lock", "z\n");
  const auto changes = changes_of_sources(scratch.path, {});
  ASSERT_TRUE(changes.has_value());
  EXPECT_THAT(paths(*changes), UnorderedElementsAre("src/a.py", ".hidden/b.py", ".gitignore", ".tandemignore",
                                                    ".env.example", "reads_keys.py"));
  EXPECT_EQ(changes->files, 6u);
  EXPECT_EQ(count(*changes, LeftOut::kIgnored), 4u);
  EXPECT_EQ(count(*changes, LeftOut::kSecret), 3u);
  EXPECT_THAT(changes->secrets, UnorderedElementsAre(".env", "deploy/server.pem", "notes.txt"));
  EXPECT_EQ(count(*changes, LeftOut::kBinary), 1u);
  EXPECT_EQ(count(*changes, LeftOut::kLarge), 1u);
  EXPECT_EQ(count(*changes, LeftOut::kGenerated), 2u);
}

TEST(Sources, no_link_is_followed_to_a_file_or_a_folder) {
  Scratch scratch, outside;
  outside.put("secret.py", "x\n");
  scratch.put("a.py", "x\n");
  fs::create_symlink(outside.path, scratch.path / "folder");
  fs::create_symlink(outside.path / "secret.py", scratch.path / "link.py");
  ASSERT_EQ(mkfifo((scratch.path / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(paths(*changes_of_sources(scratch.path, {})), ElementsAre("a.py"));
  const SourceLines wanted[] = {
      {"folder/secret.py", 1, 1}, {"link.py", 1, 1}, {"../" + outside.path.filename().string() + "/secret.py", 1, 1},
      {"/etc/passwd", 1, 1},      {"pipe", 1, 1},    {"a.py", 1, 1}};
  EXPECT_THAT(read_lines(scratch.path, wanted), ElementsAre("", "", "", "", "", "x\n"));
}

TEST(Sources, only_what_is_other_is_told_the_second_time) {
  Scratch scratch;
  scratch.put("a.py", "one\n");
  scratch.put("b.py", "two\n");
  scratch.put("c.bin", std::string("\0\0", 2));
  const auto known = known_of(*changes_of_sources(scratch.path, {}));
  EXPECT_EQ(known.size(), 3u);
  const auto same = changes_of_sources(scratch.path, known);
  for (const auto& source : same->changed) EXPECT_FALSE(source.has_content) << source.now.path;
  EXPECT_THAT(same->removed, IsEmpty());
  EXPECT_EQ(same->files, 2u);
  EXPECT_EQ(count(*same, LeftOut::kBinary), 1u);
  scratch.put("a.py", "uno\n");  // the same size, perhaps within the same tick of the clock
  fs::remove(scratch.path / "b.py");
  scratch.put("d.py", "new\n");
  const auto other = changes_of_sources(scratch.path, known);
  std::vector<std::string> with_content;
  for (const auto& source : other->changed) {
    if (source.has_content) with_content.push_back(source.now.path + "=" + source.content);
  }
  EXPECT_THAT(with_content, ElementsAre("a.py=uno\n", "d.py=new\n"));
  EXPECT_THAT(other->removed, ElementsAre("b.py"));
}

TEST(Sources, a_file_that_its_times_vouch_for_is_not_read_again) {
  Scratch scratch;
  scratch.put("a.py", "one\n");
  auto known = known_of(*changes_of_sources(scratch.path, {}));
  // Until its times are settled, it has no stamp and is read.
  for (int i = 0; i < 200 && known[0].stamp == 0; ++i) {
    usleep(10'000);
    known = known_of(*changes_of_sources(scratch.path, {}));
  }
  ASSERT_NE(known[0].stamp, 0u);
  EXPECT_THAT(changes_of_sources(scratch.path, known)->changed, IsEmpty());
  known[0].digest = {1, 2};  // believed, as long as the stamp holds
  EXPECT_THAT(changes_of_sources(scratch.path, known)->changed, IsEmpty());
}

TEST(Sources, much_content_comes_in_several_answers) {
  Scratch scratch;
  for (int i = 0; i < 10; ++i) scratch.put("f" + std::to_string(i), std::string(1000, 'a'));
  std::vector<KnownSource> known;
  int rounds = 0;
  for (bool more = true; more; ++rounds) {
    const auto changes = changes_of_sources(scratch.path, known, 2500);
    more = changes->more;
    for (const auto& source : changes->changed) {
      if (source.has_content) known.push_back(source.now);
    }
  }
  EXPECT_EQ(known.size(), 10u);
  EXPECT_EQ(rounds, 5);
}

TEST(Sources, messages_come_back_as_they_were_sent) {
  SourceChanges changes;
  changes.changed = {{{"a/b.py", {1, 2}, 3, LeftOut::kNot}, true, "text"},
                     {{"c", {4, 5}, 0, LeftOut::kBinary}, false, ""}};
  changes.removed = {"gone"};
  changes.left_out[2] = 7;
  changes.secrets = {".env"};
  changes.files = 9;
  changes.more = true;
  const auto back = decode_source_changes(encode(changes));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(encode(*back), encode(changes));
  const std::vector<KnownSource> known = {{"x", {1, 2}, 3, LeftOut::kSecret}};
  EXPECT_EQ(*decode_known_sources(encode(known)), known);
  EXPECT_FALSE(decode_source_changes(encode(changes).substr(0, 50)).has_value());
}

TEST(MerkleTree, finds_what_differs_and_is_the_same_for_the_same_files) {
  const MerkleTree before({{"a/b/c.py", {1, 1}}, {"a/d.py", {2, 2}}, {"e.py", {3, 3}}, {"f/g.py", {4, 4}}});
  const MerkleTree same({{"e.py", {3, 3}}, {"f/g.py", {4, 4}}, {"a/d.py", {2, 2}}, {"a/b/c.py", {1, 1}}});
  EXPECT_EQ(before.root(), same.root());
  EXPECT_THAT(changed_paths(before, same), IsEmpty());
  const MerkleTree after({{"a/b/c.py", {9, 9}}, {"a/d.py", {2, 2}}, {"f", {5, 5}}, {"h/i.py", {6, 6}}});
  EXPECT_NE(before.root(), after.root());
  EXPECT_THAT(changed_paths(before, after), UnorderedElementsAre("a/b/c.py", "e.py", "f/g.py", "f", "h/i.py"));
  // Where a thing lies counts, not only what there is.
  EXPECT_NE(MerkleTree({{"a/b", {1, 1}}}).root(), MerkleTree({{"ab", {1, 1}}}).root());
}

}  // namespace
}  // namespace tandem::envs
