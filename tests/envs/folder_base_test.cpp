// A user's folder below a sandbox's files: what is seen, what is told as changed, what becomes of a folder that changes
// meanwhile, and where a copy is made.
#include "envs/changes/folder_base.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "envs/changes/folder_work.h"
#include "envs/changes/write_back.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// A backend that makes no workspace over a folder.
class Overless final : public SandboxBackend {
 public:
  explicit Overless(SandboxBackend& inner) : inner_(inner) {}
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override {
    if (spec.below) return fail(Status::unfit("overlays are not to be had"));
    return inner_.create(spec);
  }

 private:
  SandboxBackend& inner_;
};

class FolderBases : public SandboxTest {
 protected:
  void SetUp() override {
    SandboxTest::SetUp();
    if (!sandbox_) return;
    user_.put("a.txt", "one\n");
    user_.put("src/b.py", "b = 1\n");
    user_.put("src/c.py", "c = 1\n");
    user_.put("deep/er/d.txt", "d\n");
    user_.put("bin/tool", "#!/bin/sh\necho works\n");
    fs::permissions(user_.path / "bin/tool", fs::perms(0755));
    fs::create_symlink("src", user_.path / "link");
    fs::create_symlink("/etc/hostname", user_.path / "out");
  }
  // False, with the test skipped, where overlays cannot be had here.
  bool begin(const std::vector<std::string>& excludes = {}) {
    auto begun = FolderWork::begin(*backend_, spec_, user_.path, *leaves_out_of(excludes));
    EXPECT_TRUE(begun) << begun.error().to_string();
    if (!begun) return false;
    work_.emplace(std::move(*begun));
    return !work_->is_copy();
  }
  std::string in(const std::string& command) {
    const auto outcome = work_->sandbox().call("run_terminal_cmd", {{"command", command}});
    EXPECT_TRUE(outcome) << outcome.error().to_string();
    return outcome ? outcome->output : "";
  }
  std::vector<Change> changes() {
    auto changes = work_->changes();
    EXPECT_TRUE(changes) << changes.error().to_string();
    return changes.value_or(std::vector<Change>());
  }
  static std::vector<std::string> told(const std::vector<Change>& changes) {
    std::vector<std::string> found;
    for (const auto& change : changes) {
      const auto& why = change.refused.empty() ? change.conflict : change.refused;
      found.push_back(kind_of(change) + " " + change.path + (why.empty() ? "" : ": " + why));
    }
    return found;
  }
  std::vector<std::string> written(const std::vector<Change>& changes) {
    const auto outcomes = write_back(user_.path, changes);
    EXPECT_TRUE(outcomes) << outcomes.error().message();
    std::vector<std::string> found;
    for (size_t i = 0; outcomes && i < changes.size(); ++i)
      found.push_back(fmt::format("{} {}", changes[i].path, to_string((*outcomes)[i].outcome)));
    return found;
  }

  Scratch user_;
  std::optional<FolderWork> work_;
};

#define BEGIN(...) \
  if (!begin(__VA_ARGS__)) GTEST_SKIP() << work_->note()

TEST_F(FolderBases, a_sandbox_sees_the_folder_and_every_kind_of_change_is_told_and_nothing_else) {
  BEGIN();
  EXPECT_THAT(work_->names(), ElementsAre("a.txt", "bin/tool", "deep/er/d.txt", "link", "out", "src/b.py", "src/c.py"));
  EXPECT_EQ(in("cat a.txt link/b.py; bin/tool; readlink out; stat -c %U a.txt"),
            "one\nb = 1\nworks\n/etc/hostname\nagent\n");
  EXPECT_THAT(told(changes()), IsEmpty());
  in("echo two >> a.txt; rm src/b.py; chmod 644 bin/tool; mkdir new; echo n > new/n; rm link; ln -s deep link; "
     "touch src/c.py; rm -r deep/er; mkdir deep/er; echo e > deep/er/e.txt");
  EXPECT_EQ(user_.get("a.txt"), "one\n");
  const auto all = changes();
  EXPECT_THAT(told(all),
              ElementsAre("changed a.txt", "mode 755 -> 644 bin/tool", "deleted deep/er/d.txt", "new deep/er/e.txt",
                          "changed link", "new folder new", "new new/n", "deleted src/b.py"));
  for (const auto& line : written(all)) EXPECT_THAT(line, HasSubstr(" written"));
  EXPECT_EQ(user_.get("a.txt"), "one\ntwo\n");
  EXPECT_FALSE(fs::exists(user_.path / "src/b.py"));
  EXPECT_EQ(fs::read_symlink(user_.path / "link"), "deep");
  EXPECT_EQ(user_.get("deep/er/e.txt"), "e\n");
}

TEST_F(FolderBases, moved_folders_and_files_whose_times_were_set_back_are_told) {
  user_.put("one/x", "1\n");
  user_.put("two/x", "2\n");
  for (const char* path : {"one/x", "two/x"}) fs::last_write_time(user_.path / path, fs::file_time_type::clock::now());
  BEGIN();
  in("mv one three; mv two one; mv three two; touch -r a.txt /tmp/mark; echo eno > a.txt; touch -r /tmp/mark a.txt");
  EXPECT_THAT(told(changes()), ElementsAre("changed a.txt", "changed one/x", "changed two/x"));
}

TEST_F(FolderBases, what_is_left_out_or_cannot_be_read_and_sockets_are_not_seen_and_stay) {
  user_.put(".env", "secret\n");
  user_.put("src/.env", "secret\n");
  user_.put("node_modules/x/y", "large\n");
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const auto place = (user_.path / "sock").string();
  ASSERT_LT(place.size(), sizeof address.sun_path);
  place.copy(address.sun_path, place.size());
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(mkfifo((user_.path / "pipe").c_str(), 0644), 0);
  BEGIN({".env", "node_modules/"});
  EXPECT_EQ(in("ls -A; ls -A src; cat .env src/.env node_modules/x/y 2>&1 | grep -c secret; true"),
            "a.txt\nbin\ndeep\nlink\nout\npipe\nsrc\nb.py\nc.py\n0\n");
  EXPECT_THAT(told(changes()), IsEmpty());
  in("rm -rf src; mkdir src; ls -A src > seen; echo mine > .env; mkdir node_modules; echo z > node_modules/z; echo > "
     "sock");
  EXPECT_EQ(in("wc -c < seen"), "0\n");
  const auto all = changes();
  EXPECT_THAT(told(all), ElementsAre("new .env: it was left out by --exclude",
                                     "new folder node_modules: it was left out by --exclude",
                                     "new node_modules/z: it was left out by --exclude", "new seen",
                                     "new sock: what was there before is no file, folder or link", "deleted src/b.py",
                                     "deleted src/c.py"));
  written(all);
  EXPECT_EQ(user_.get(".env") + user_.get("src/.env") + user_.get("node_modules/x/y"), "secret\nsecret\nlarge\n");
  EXPECT_TRUE(fs::is_socket(user_.path / "sock"));
}

TEST_F(FolderBases, what_the_user_does_meanwhile_is_no_change_of_the_agent_s) {
  BEGIN();
  EXPECT_EQ(in("cat a.txt src/b.py"), "one\nb = 1\n");
  user_.put("a.txt", "of the user\n");  // in place
  user_.put("users.txt", "new\n");
  fs::remove(user_.path / "src/b.py");
  fs::rename(user_.path / "src/c.py", user_.path / "src/moved.py");
  user_.put("replaced", "1\n");
  fs::rename(user_.path / "replaced", user_.path / "deep/er/d.txt");  // as editors do
  in("ls -lR > /dev/null; cat a.txt src/* deep/er/* > /dev/null");
  EXPECT_THAT(told(changes()), IsEmpty());
}

TEST_F(FolderBases, what_both_changed_is_a_conflict_and_the_user_s_stays) {
  user_.put("gone.txt", "g\n");
  user_.put("same.txt", "s\n");
  BEGIN();
  in("echo agent > a.txt; rm src/b.py; echo agent > src/c.py; echo agent > both.txt; echo agent > gone.txt; "
     "chmod 600 same.txt; echo agent > deep/er/d.txt");
  user_.put("a.txt", "of the user\n");
  user_.put("src/b.py", "of the user\n");
  user_.put("fresh", "c = 1\n");
  fs::rename(user_.path / "fresh", user_.path / "src/c.py");  // another file of the same content
  user_.put("both.txt", "of the user\n");
  fs::remove(user_.path / "gone.txt");
  const auto all = changes();
  EXPECT_THAT(told(all),
              UnorderedElementsAre("changed a.txt: it was changed meanwhile", "changed both.txt: it is there meanwhile",
                                   "changed deep/er/d.txt", "new gone.txt: it is not there any more",
                                   "mode 644 -> 600 same.txt", "deleted src/b.py: it was changed meanwhile",
                                   "changed src/c.py: it was changed meanwhile"));
  EXPECT_THAT(written(all),
              UnorderedElementsAre("a.txt conflict", "both.txt conflict", "deep/er/d.txt written", "gone.txt conflict",
                                   "same.txt written", "src/b.py conflict", "src/c.py conflict"));
  EXPECT_EQ(user_.get("a.txt") + user_.get("src/b.py"), "of the user\nof the user\n");
}

TEST_F(FolderBases, sizes_count_of_what_is_changed_alone) {
  user_.put("large.bin", "");
  fs::resize_file(user_.path / "large.bin", uint64_t{2} << 30);  // takes no room
  BEGIN();
  EXPECT_EQ(in("stat -c %s large.bin; echo x >> a.txt"), "2147483648\n");
  EXPECT_THAT(told(changes()), ElementsAre("changed a.txt"));
  in("rm large.bin");
  EXPECT_THAT(told(changes()), ElementsAre("changed a.txt",
                                           "deleted large.bin: what it replaces is more than is kept for undoing: 47 "
                                           "MiB of one file, and 512 MiB altogether"));
  in("head -c 52000000 /dev/zero > built");
  in("echo y > small");
  EXPECT_THAT(told(changes()),
              UnorderedElementsAre("changed a.txt", HasSubstr("deleted large.bin"),
                                   "new built: it is too large: 47 MiB are taken of one file, and 512 MiB of all "
                                   "changes together",
                                   "new small"));
  const auto all = changes();
  const auto after = written(all);
  EXPECT_THAT(after, testing::Contains("small written"));
  EXPECT_FALSE(fs::exists(user_.path / "built"));
  in("rm built");
  EXPECT_TRUE(work_->changes());
}

TEST_F(FolderBases, more_than_one_message_takes_is_told_in_parts) {
  BEGIN();
  // 70 MB in 60,000 entries, and deletions.
  for (int first = 0; first < 600; first += 50) {  // by several calls, each of which has its own time
    in(
        fmt::format("python3 -c \"import os\nfor i in range({}, {}):\n  os.mkdir(f'd{{i:03}}')\n  for j in range(100): "
                    "open(f'd{{i:03}}/{{j}}', 'w').write(f'{{i}} {{j}} ' + 'x' * 1150)\"",
                    first, first + 50));
  }
  in("rm -r deep src/b.py");
  const auto all = changes();
  EXPECT_EQ(all.size(), 60600u + 4);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Change::path));
  size_t refused = 0;
  for (const auto& change : all) refused += !change.refused.empty();
  EXPECT_EQ(refused, 0u);
  const auto last = std::ranges::find(all, "d599/99", &Change::path);
  ASSERT_NE(last, all.end());
  EXPECT_EQ(last->after->content, "599 99 " + std::string(1150, 'x'));
}

TEST(FolderBasesElsewhere, a_difference_in_parts_is_the_whole_one) {
  Scratch root;
  std::string begin;
  for (int i = 0; i < 40; ++i) {
    const auto path = fmt::format("dir-{}/file {}", i % 7, i);
    if (i % 5 == 0)
      put_listed(begin, path, {.mode = S_IFREG | 0644, .size = 1});  // gone
    else
      root.put(path, std::string(static_cast<size_t>(i) * 10, 'x'));
  }
  fs::create_symlink("dir-1", root.path / "dir-0/link");
  const auto whole = difference_from(root.path, begin, "");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->gone.size(), 8u);
  EXPECT_EQ(whole->other.size(), 32u + 7 + 1);
  EXPECT_EQ(whole->next, "");
  const auto told = [](const FolderDifference& part, std::vector<std::string> all) {
    for (const auto& entry : part.other) all.push_back(entry.path + "=" + entry.content);
    for (const auto& path : part.gone) all.push_back(path + " gone");
    for (const auto& entry : part.large) all.push_back(entry.path + " large");
    return all;
  };
  for (const auto& [entries, bytes] : {std::pair<uint64_t, uint64_t>{1, 1 << 20}, {3, 1 << 20}, {1000, 700}, {5, 1}}) {
    std::vector<std::string> all;
    FolderPage page{.from = "", .entries = entries, .bytes = bytes};
    for (int parts = 0; parts < 100; ++parts) {
      const auto part = difference_from(root.path, begin, "", page);
      ASSERT_TRUE(part.has_value());
      const auto again = decode_folder_difference(encode(*part));
      ASSERT_TRUE(again.has_value());
      EXPECT_EQ(again->next, part->next);
      all = told(*again, std::move(all));
      EXPECT_EQ(all.size() + part->rest, 48u);
      page.from = part->next;
      if (page.from.empty()) break;
    }
    EXPECT_THAT(all, testing::UnorderedElementsAreArray(told(*whole, {}))) << entries << " " << bytes;
  }
  // What there is no room for is named without its content, and all else is there.
  const auto little = difference_from(root.path, begin, "", {.left = 500});
  ASSERT_TRUE(little.has_value());
  uint64_t content = 0;
  for (const auto& entry : little->other) content += S_ISREG(entry.mode) ? entry.content.size() : 0;
  EXPECT_LE(content, 500u);
  EXPECT_GT(content, 300u);
  EXPECT_EQ(little->other.size() + little->large.size(), whole->other.size());
}

TEST_F(FolderBases, a_folder_that_a_program_closes_is_not_taken_for_empty) {
  BEGIN();
  in("chmod 000 src");
  EXPECT_THAT(told(changes()), ElementsAre("mode 755 -> 0 src"));
}

// By a process of its own, in whose namespace things may be mounted. In words.
std::string refusal_after_mounting(const fs::path& folder, const std::string& what, const std::string& where,
                                   const std::vector<std::string>& excludes = {}) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const uid_t user = geteuid();
  const pid_t child = fork();
  if (child == 0) {
    std::string told = "cannot mount";
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) == 0 &&
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount((folder / what).c_str(), (folder / where).c_str(), nullptr, MS_BIND, nullptr) == 0) {
      const auto base = folder_base(folder, *leaves_out_of(excludes));
      told = base ? "none" : base.error().message();
    }
    _exit(write(ends[1], told.data(), told.size()) == static_cast<ssize_t>(told.size()) ? 0 : 1);
  }
  close(ends[1]);
  char told[256] = {};
  const ssize_t count = read(ends[0], told, sizeof told - 1);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return {told, static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

// Mounts of the same file system too, which numbers of devices do not tell. The overlay would show an empty folder, and
// all that the user has there would count as deleted by the agent.
TEST(FolderBasesElsewhere, what_is_mounted_in_the_folder_is_not_taken_for_deleted) {
  Scratch user;
  user.put("data/kept", "kept\n");
  user.put("a place/file", "");
  if (refusal_after_mounting(user.path, "data", "a place") == "cannot mount") GTEST_SKIP() << "nothing can be mounted";
  EXPECT_EQ(refusal_after_mounting(user.path, "data", "a place"), "something is mounted in it");
  EXPECT_EQ(refusal_after_mounting(user.path, "", "a place"), "something is mounted in it");
  EXPECT_EQ(refusal_after_mounting(user.path, "data/kept", "a place/file"), "something is mounted in it");
  EXPECT_EQ(refusal_after_mounting(user.path, "data", "a place", {"a place"}), "none");
}

// Files of such folders may be notes for an overlay, that something is gone or lies elsewhere: it does not show them.
TEST(FolderBasesElsewhere, a_folder_of_layers_of_containers_is_not_worked_on_as_it_is) {
  Scratch user;
  user.put("layers/noted", "");
  const auto layers = user.path / "layers";
  if (setxattr(layers.c_str(), "user.overlay.impure", "y", 1, 0) != 0) GTEST_SKIP() << "files have no attributes here";
  const auto base = folder_base(user.path, *leaves_out_of({}));
  ASSERT_FALSE(base);
  EXPECT_EQ(base.error().code(), Code::kUnfit);
  EXPECT_THAT(base.error().message(), HasSubstr("layers of containers"));
  EXPECT_TRUE(folder_base(user.path, *leaves_out_of({"layers"})));
}

TEST_F(FolderBases, where_no_overlay_can_be_had_a_copy_is_made_and_said) {
  Overless overless(*backend_);
  auto work = FolderWork::begin(overless, spec_, user_.path, *leaves_out_of({}));
  ASSERT_TRUE(work) << work.error().to_string();
  EXPECT_TRUE(work->is_copy());
  EXPECT_THAT(work->note(),
              HasSubstr("a copy of the folder was made, since it cannot be worked on as it is: overlays are"));
  EXPECT_THAT(work->names(), ElementsAre("a.txt", "bin/tool", "deep/er/d.txt", "link", "out", "src/b.py", "src/c.py"));
  ASSERT_TRUE(work->sandbox().call("run_terminal_cmd", {{"command", "echo two >> a.txt"}}));
  EXPECT_THAT(told(*work->changes()), ElementsAre("changed a.txt"));
  user_.put("large", std::string(49 << 20, 'x'));
  const auto refused = FolderWork::begin(overless, spec_, user_.path, *leaves_out_of({}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().to_string(), HasSubstr("overlays are not to be had"));
  EXPECT_THAT(refused.error().to_string(), HasSubstr("--exclude"));
}

TEST_F(FolderBases, nothing_of_it_is_mounted_where_programs_of_the_sandbox_reach_it) {
  BEGIN({"src"});
  EXPECT_EQ(in("grep -c workspace /proc/self/mounts; ls -A / | grep -c below; cat /workspace/below/a.txt 2>&1 | grep "
               "-c one; true"),
            "1\n0\n0\n");
}

// Then the sandbox makes the overlay itself.
TEST(FolderBasesElsewhere, of_an_ordinary_user_likewise) {
  if (geteuid() != 0) GTEST_SKIP() << "we are one already";
  Scratch scratch;
  fs::permissions(scratch.path, fs::perms(0777));
  fs::copy_file("/proc/self/exe", scratch.path / "test");
  const auto run = "cd / && setpriv --reuid 12345 --regid 12345 --clear-groups " + (scratch.path / "test").string() +
                   " '--gtest_filter=FolderBases.*' >" + (scratch.path / "log").string() + " 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(run.c_str())), 0) << scratch.get("log");
  EXPECT_THAT(scratch.get("log"), HasSubstr(" tests from 1 test suite ran."));
}

}  // namespace
}  // namespace tandem::envs
