// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(Tools, delete_file_deletes_one_file_and_says_so) {
  scratch_.put("src/a.py", "x\n");
  const auto outcome = call("delete_file", {{"target_file", "src/a.py"}, {"explanation", "not used"}});
  EXPECT_EQ(outcome.output, "Deleted src/a.py.");
  EXPECT_TRUE(outcome.changed_files);
  EXPECT_FALSE(fs::exists(scratch_.path / "src/a.py"));
  EXPECT_TRUE(fs::exists(scratch_.path / "src"));
}

TEST_F(Tools, delete_file_refuses_folders_and_files_that_are_not_there) {
  scratch_.put("src/server.py", "x\n");
  EXPECT_THAT(call("delete_file", {{"target_file", "src/"}}).output, HasSubstr("is a folder"));
  EXPECT_THAT(call("delete_file", {{"target_file", "."}}).output, HasSubstr("is a folder"));
  EXPECT_THAT(call("delete_file", {{"target_file", "/workspace"}}).output, HasSubstr("outside the workspace"));
  const auto missing = call("delete_file", {{"target_file", "server.py"}});
  EXPECT_FALSE(missing.ok);
  EXPECT_FALSE(missing.changed_files);
  EXPECT_THAT(missing.output, HasSubstr("did you mean \"src/server.py\""));
  EXPECT_FALSE(call("delete_file", {{"target_file", std::string("src/server.py\0x", 15)}}).ok);
  EXPECT_TRUE(fs::exists(scratch_.path / "src/server.py"));
}

TEST_F(Tools, delete_file_deletes_a_link_and_never_what_it_names) {
  Scratch outside;
  outside.put("kept", "x\n");
  scratch_.put("here", "x\n");
  fs::create_symlink(outside.path / "kept", scratch_.path / "away");
  fs::create_symlink("here", scratch_.path / "near");
  fs::create_directory_symlink(outside.path, scratch_.path / "folder");
  EXPECT_TRUE(call("delete_file", {{"target_file", "away"}}).ok);
  EXPECT_TRUE(call("delete_file", {{"target_file", "near"}}).ok);
  EXPECT_FALSE(call("delete_file", {{"target_file", "folder/kept"}}).ok);
  EXPECT_TRUE(fs::exists(outside.path / "kept"));
  EXPECT_TRUE(fs::exists(scratch_.path / "here"));
  EXPECT_FALSE(fs::is_symlink(scratch_.path / "away") || fs::is_symlink(scratch_.path / "near"));
}

class GlobFileSearch : public Tools {
 protected:
  // Files in the order given, each changed a second after the one before.
  void put_in_order(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      scratch_.put(name, "x\n");
      const timespec times[2] = {{++second_, 0}, {second_, 0}};
      utimensat(AT_FDCWD, (scratch_.path / name).c_str(), times, 0);
    }
  }
  std::string find(const std::string& pattern, const std::string& folder = ".") {
    return call("glob_file_search", {{"glob_pattern", pattern}, {"target_directory", folder}}).output;
  }
  time_t second_ = 1'000'000;
};

TEST_F(GlobFileSearch, finds_files_at_any_depth_those_changed_last_first) {
  put_in_order({"a.py", "src/deep/b.py", "src/c.js", ".hidden.py"});
  EXPECT_EQ(find("*.py"), ".hidden.py\nsrc/deep/b.py\na.py\n");
  EXPECT_EQ(find("*.{js,ts}"), "src/c.js\n");
  EXPECT_EQ(find("src/*"), "src/c.js\n");
  EXPECT_EQ(find("src/**"), "src/c.js\nsrc/deep/b.py\n");
  EXPECT_EQ(find("*.py", "src"), "src/deep/b.py\n");
  EXPECT_EQ(find("/workspace/*.py"), ".hidden.py\na.py\n");
  EXPECT_EQ(find("*.rs"), "No files match \"**/*.rs\".");
}

TEST_F(GlobFileSearch, leaves_out_what_git_ignores) {
  put_in_order({".gitignore", "kept.py", "build/made.py", ".git/config.py"});
  scratch_.put(".gitignore", "build/\n");
  EXPECT_EQ(find("*.py"), "kept.py\n");
}

TEST_F(GlobFileSearch, rules_of_folders_hold_where_they_stand_whatever_folder_is_searched) {
  put_in_order({".git/config", "web/x.py", "web/y.py", "web/sub/z.py", "foo/a.py", "docs/src/a.py"});
  scratch_.put(".gitignore", "web/x.py\n[a\nb\\\n");
  scratch_.put("web/.gitignore", "/sub\n");
  scratch_.put("foo/.gitignore", "foo/*\n");
  scratch_.put("docs/.gitignore", "docs/*\n");
  EXPECT_EQ(find("*.py"), "docs/src/a.py\nfoo/a.py\nweb/y.py\n");
  EXPECT_EQ(find("*.py", "web"), "web/y.py\n");
  EXPECT_EQ(call("grep", {{"pattern", "x"}, {"type", "py"}, {"output_mode", "files_with_matches"}}).output,
            "docs/src/a.py\nfoo/a.py\nweb/y.py\n");
  EXPECT_EQ(call("grep", {{"pattern", "x"}, {"path", "web"}}).output,
            "web/y.py:1:x\n... files or rules of ignore files that cannot be read were passed over\n");
  EXPECT_EQ(call("grep", {{"pattern", "x"}, {"path", "web/x.py"}}).output, "web/x.py:1:x\n");
  EXPECT_EQ(call("grep", {{"pattern", "nothing"}}).output, "No matches for \"nothing\".");
}

TEST_F(GlobFileSearch, refuses_what_it_cannot_look_for_and_says_why) {
  EXPECT_THAT(find("a[b"), HasSubstr("not closed by \"]\""));
  EXPECT_THAT(find("a{b"), HasSubstr("not closed by \"}\""));
  EXPECT_THAT(find("../*"), HasSubstr("leads outside"));
  EXPECT_THAT(find("/etc/*"), HasSubstr("leads outside"));
  EXPECT_THAT(find("*", "nowhere"), HasSubstr("there is no folder \"nowhere\""));
  EXPECT_THAT(find("*", "/etc"), HasSubstr("outside the workspace"));
  EXPECT_THAT(find("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"), HasSubstr("alternatives"));
}

TEST_F(GlobFileSearch, shows_five_hundred_files_and_counts_the_rest) {
  for (int i = 0; i < 503; ++i) scratch_.put("f" + std::to_string(i), "");
  context_.output_limit = 20'000;
  EXPECT_THAT(find("f*"), testing::EndsWith("\n... 3 more files\n"));
}

}  // namespace
}  // namespace tandem::envs
