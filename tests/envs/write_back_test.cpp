// Write-backs of many files: in batches, killed, on a full disk, two at once; and what files have beside their content.
#include "envs/changes/write_back.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/file.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

constexpr size_t kManyFiles = 600;

class WriteBacks : public testing::Test {
 protected:
  static std::string path_of(size_t i) { return fmt::format("dir-{}/file-{:04}", i / 100, i); }
  static std::string old_of(size_t i) { return fmt::format("old {} {}\n", i, std::string(300, 'o')); }
  static std::string new_of(size_t i) { return fmt::format("new {} {}\n", i, std::string(3000, 'n')); }
  static TreeEntry file(const std::string& path, std::string content, mode_t mode = 0644) {
    return {.mode = S_IFREG | mode, .path = path, .content = std::move(content)};
  }
  void put_old(const fs::path& root) {
    for (size_t i = 0; i < kManyFiles; ++i) {
      fs::create_directories((root / path_of(i)).parent_path());
      std::ofstream(root / path_of(i)) << old_of(i);
    }
  }
  static std::vector<Change> all_new() {
    std::vector<Change> changes;
    for (size_t i = 0; i < kManyFiles; ++i)
      changes.push_back(
          {.path = path_of(i), .before = file(path_of(i), old_of(i)), .after = file(path_of(i), new_of(i))});
    return changes;
  }
  static std::string text_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // How many are as they were to be; each must be that or as it was.
  static size_t count_new(const fs::path& root) {
    size_t count = 0;
    for (size_t i = 0; i < kManyFiles; ++i) {
      const auto text = text_of(root / path_of(i));
      EXPECT_TRUE(text == old_of(i) || text == new_of(i)) << path_of(i) << " has " << text.size() << " bytes";
      count += text == new_of(i);
    }
    return count;
  }
  static std::vector<std::string> in_root(const fs::path& root) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root)) {
      const auto name = entry.path().filename().string();
      if (!name.starts_with("dir-")) names.push_back(name);
    }
    return names;
  }
  Scratch user_;
};

TEST_F(WriteBacks, of_many_files_leave_nothing_beside_them) {
  put_old(user_.path);
  const auto outcomes = write_back(user_.path, all_new(), {}, {.few = 4, .files = 50});
  ASSERT_TRUE(outcomes.has_value()) << outcomes.error().to_string();
  for (const auto& one : *outcomes) EXPECT_EQ(one.outcome, WriteOutcome::kWritten) << one.why;
  EXPECT_EQ(count_new(user_.path), kManyFiles);
  EXPECT_THAT(in_root(user_.path), testing::IsEmpty());
}

TEST_F(WriteBacks, that_are_killed_at_any_moment_leave_each_file_whole_and_go_on) {
  for (const size_t until : {size_t{0}, size_t{1}, kManyFiles / 2, kManyFiles - 1}) {
    Scratch user;
    put_old(user.path);
    auto changes = all_new();
    for (int i = 0; i < 20; ++i) {
      const auto path = fmt::format("dir-0/fresh-{}", i);
      changes.push_back({.path = path, .before = {}, .after = TreeEntry{.mode = S_IFDIR | 0755, .path = path}});
    }
    std::ranges::sort(changes, {}, &Change::path);
    const pid_t child = ::fork();
    if (child == 0) {
      (void)write_back(user.path, changes, {}, {.few = 0, .files = 7}).has_value();
      ::_exit(0);
    }
    // Killed as soon as this one is new, wherever the others are.
    int state = 0;
    while (text_of(user.path / path_of(until)) != new_of(until) && ::waitpid(child, &state, WNOHANG) == 0) {
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, &state, 0);
    EXPECT_GT(count_new(user.path), 0u);
    int unlike = 0;  // folders that undoing would not know again: the one that was being made
    for (int i = 0; i < 20; ++i) {
      struct stat info {};
      unlike +=
          ::stat((user.path / fmt::format("dir-0/fresh-{}", i)).c_str(), &info) == 0 && (info.st_mode & 0777) != 0755;
    }
    EXPECT_LE(unlike, 1);
    const auto outcomes = write_back(user.path, changes);
    ASSERT_TRUE(outcomes.has_value());
    for (const auto& one : *outcomes) EXPECT_EQ(one.outcome, WriteOutcome::kWritten) << one.why;
    EXPECT_EQ(count_new(user.path), kManyFiles);
    EXPECT_THAT(in_root(user.path), testing::IsEmpty()) << "what was left behind is gone";
  }
}

TEST_F(WriteBacks, remove_what_was_left_behind_and_nothing_of_the_user_s_or_of_others) {
  user_.put(".tandem-write-back-1-0/0", "left");
  user_.put(".tandem-write-back-1-1/mine.txt", "of the user");
  user_.put(".tandem-write-back-x/0", "of the user");
  user_.put(".tandem-write-back-2-0/0", "of one that runs");
  fs::create_directory_symlink("dir", user_.path / ".tandem-write-back-3-0");
  user_.put("dir/0", "of the user");
  const int held = ::open((user_.path / ".tandem-write-back-2-0").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  remove_left_behind(user_.path);
  EXPECT_FALSE(fs::exists(user_.path / ".tandem-write-back-1-0"));
  EXPECT_EQ(user_.get(".tandem-write-back-1-1/mine.txt"), "of the user");
  EXPECT_EQ(user_.get(".tandem-write-back-x/0"), "of the user");
  EXPECT_EQ(user_.get(".tandem-write-back-2-0/0"), "of one that runs");
  EXPECT_EQ(user_.get("dir/0"), "of the user");
  ::close(held);
}

TEST_F(WriteBacks, on_a_full_disk_leave_each_file_whole_and_say_which_are_not_written) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", user_.path.c_str(), "tmpfs", 0, "size=3400k") != 0)
      ::_exit(77);
    put_old(user_.path);  // 600 files of a page, and new ones of the same: room for 250 more
    std::vector<Change> changes = all_new();
    for (auto& change : changes) change.after->content += std::string(6000, 'n');
    const auto outcomes = write_back(user_.path, changes, {}, {.few = 0, .files = 100});
    if (!outcomes) ::_exit(1);
    size_t written = 0, failed = 0;
    for (size_t i = 0; i < kManyFiles; ++i) {
      const bool is_written = (*outcomes)[i].outcome == WriteOutcome::kWritten;
      written += is_written;
      failed += (*outcomes)[i].outcome == WriteOutcome::kFailed &&
                (*outcomes)[i].why.find("No space left") != std::string::npos;
      if (text_of(user_.path / path_of(i)) != (is_written ? changes[i].after->content : old_of(i))) ::_exit(2);
    }
    if (!in_root(user_.path).empty()) ::_exit(3);
    ::_exit(written > 0 && failed > 0 && written + failed == kManyFiles ? 0 : 4);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  if (WIFEXITED(state) && WEXITSTATUS(state) == 77) GTEST_SKIP() << "nothing can be mounted";
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
}

TEST_F(WriteBacks, of_two_at_once_one_has_each_file_and_the_other_a_conflict_or_the_same) {
  put_old(user_.path);
  auto other = all_new();
  for (auto& change : other) change.after->content = "of the other\n";
  const pid_t child = ::fork();
  if (child == 0) {
    (void)write_back(user_.path, other, {}, {.few = 0, .files = 7}).has_value();
    ::_exit(0);
  }
  const auto outcomes = write_back(user_.path, all_new(), {}, {.few = 0, .files = 7});
  int state = 0;
  ::waitpid(child, &state, 0);
  ASSERT_TRUE(outcomes.has_value());
  for (size_t i = 0; i < kManyFiles; ++i) {
    const auto text = text_of(user_.path / path_of(i));
    EXPECT_TRUE(text == new_of(i) || text == "of the other\n") << path_of(i);
    if ((*outcomes)[i].outcome == WriteOutcome::kConflict) {
      EXPECT_EQ(text, "of the other\n");
    }
  }
  EXPECT_THAT(in_root(user_.path), testing::IsEmpty());
}

// What a list of POSIX has on disk: the owner, user 1234, the group, what all but the owner have at most, others.
const std::string kList = [] {
  std::string bytes("\2\0\0\0", 4);
  const auto add = [&](int tag, int may, uint32_t who) {
    bytes += {static_cast<char>(tag), 0, static_cast<char>(may), 0};
    bytes.append(reinterpret_cast<const char*>(&who), sizeof who);
  };
  add(0x01, 6, UINT32_MAX), add(0x02, 4, 1234), add(0x04, 4, UINT32_MAX), add(0x10, 4, UINT32_MAX),
      add(0x20, 0, UINT32_MAX);
  return bytes;
}();

class WriteBackAttributes : public WriteBacks, public testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    user_.put("file", "old");
    const auto path = (user_.path / "file").string();
    if (::setxattr(path.c_str(), "user.note", "kept", 4, 0) != 0) GTEST_SKIP() << "files have no attributes here";
  }
  static std::string attribute(const fs::path& path, const char* name) {
    std::string value(1000, '\0');
    const ssize_t size = ::getxattr(path.c_str(), name, value.data(), value.size());
    return size < 0 ? "none" : value.substr(0, static_cast<size_t>(size));
  }
  static mode_t mode(const fs::path& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }
  void write(const std::string& path, mode_t before, mode_t after) {
    std::vector<Change> changes = {
        {.path = path, .before = file(path, "old", before), .after = file(path, "newer", after)}};
    const auto outcomes = write_back(user_.path, changes, {}, {.few = GetParam()});
    ASSERT_TRUE(outcomes.has_value());
    ASSERT_EQ((*outcomes)[0].outcome, WriteOutcome::kWritten) << (*outcomes)[0].why;
    EXPECT_EQ(user_.get(path), "newer");
  }
};

TEST_P(WriteBackAttributes, of_a_file_stay_where_its_content_alone_is_another_one) {
  const auto path = user_.path / "file";
  ASSERT_EQ(::chmod(path.c_str(), 06751), 0);
  write("file", 0751, 0751);
  EXPECT_EQ(attribute(path, "user.note"), "kept");
  EXPECT_EQ(mode(path), 06751u);
}

TEST_P(WriteBackAttributes, of_setuid_go_where_the_permissions_change) {
  const auto path = user_.path / "file";
  ASSERT_EQ(::chmod(path.c_str(), 04711), 0);
  write("file", 0711, 0755);
  EXPECT_EQ(attribute(path, "user.note"), "kept");
  EXPECT_EQ(mode(path), 0755u);
}

TEST_P(WriteBackAttributes, of_access_control_stay_and_new_files_have_those_of_their_folder) {
  const auto path = user_.path / "file";
  if (::setxattr(path.c_str(), "system.posix_acl_access", kList.data(), kList.size(), 0) != 0)
    GTEST_SKIP() << "no access control lists here";
  write("file", 0640, 0640);
  EXPECT_EQ(attribute(path, "system.posix_acl_access"), kList);

  user_.put("dir/x", "");
  const auto dir = user_.path / "dir";
  ASSERT_EQ(::setxattr(dir.c_str(), "system.posix_acl_default", kList.data(), kList.size(), 0), 0);
  std::vector<Change> changes = {{.path = "dir/new", .before = {}, .after = file("dir/new", "n", 0640)}};
  ASSERT_EQ((*write_back(user_.path, changes, {}, {.few = GetParam()}))[0].outcome, WriteOutcome::kWritten);
  EXPECT_EQ(attribute(dir / "new", "system.posix_acl_access"), kList);
  EXPECT_EQ(mode(dir / "new"), 0640u);
}

TEST_P(WriteBackAttributes, of_a_folder_hand_its_group_down) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives groups away";
  user_.put("dir/x", "");
  ASSERT_EQ(::chown((user_.path / "dir").c_str(), static_cast<uid_t>(-1), 1234), 0);
  ASSERT_EQ(::chmod((user_.path / "dir").c_str(), 02775), 0);
  std::vector<Change> changes = {{.path = "dir/new", .before = {}, .after = file("dir/new", "n", 0640)}};
  ASSERT_EQ((*write_back(user_.path, changes, {}, {.few = GetParam()}))[0].outcome, WriteOutcome::kWritten);
  struct stat info {};
  ASSERT_EQ(::stat((user_.path / "dir/new").c_str(), &info), 0);
  EXPECT_EQ(info.st_gid, 1234u);
}

INSTANTIATE_TEST_SUITE_P(Changes, WriteBackAttributes, testing::Values(0, 16),
                         [](const auto& info) { return info.param == 0 ? "in_batches" : "one_by_one"; });

}  // namespace
}  // namespace tandem::envs
