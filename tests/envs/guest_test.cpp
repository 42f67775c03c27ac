// First processes of sandboxes that another program has made a root for: bubblewrap, by hand.
#include "envs/sandbox/guest.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "envs/sandbox/confine.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/program.h"
#include "envs/sandbox/served_sandbox.h"
#include "envs/tools/process.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

Time soon() { return SystemClock().now() + std::chrono::seconds(20); }

// A program that ends with the test.
struct Started {
  Started(std::vector<std::string> words, int descriptor) {
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (descriptor >= 0) posix_spawn_file_actions_adddup2(&actions, descriptor, 9);
    EXPECT_EQ(posix_spawn(&process, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Started() {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  pid_t process = -1;
};

class Guest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = FileDescriptor(ends[0]);
    theirs_ = FileDescriptor(ends[1]);
    auto filter = make_filter();
    ASSERT_TRUE(filter.has_value()) << filter.error().to_string();
    wanted_.filter = *filter;
  }
  // The one that sandboxes run; where there is none, this one, which can be it too.
  std::string program() const {
    if (sandbox_program().empty()) return fs::read_symlink("/proc/self/exe");
    const auto path = scratch_.path / "guest";
    EXPECT_TRUE(write_file(path, sandbox_program()));
    fs::permissions(path, fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
    return path;
  }
  std::vector<std::string> in_bubblewrap(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"/usr/bin/bwrap", "--die-with-parent", "--as-pid-1"};
    words.insert(words.end(), more.begin(), more.end());
    for (const char* kind : {"--unshare-pid", "--unshare-net", "--unshare-ipc"}) words.push_back(kind);
    for (const char* folder : {"/usr", "/bin", "/lib", "/lib64"})
      words.insert(words.end(), {"--ro-bind-try", folder, folder});
    for (const char* folder : {"/tmp", "/workspace"}) words.insert(words.end(), {"--tmpfs", folder});
    words.insert(words.end(), {"--proc", "/proc", "--dev", "/dev", "--ro-bind", program(), "/guest", "--", "/guest",
                               kGuestArgument, "9", "a test"});
    return words;
  }
  std::string first_answer() {
    // One that refuses where it is has perhaps ended before it was told anything.
    (void)send_to_guest(ours_.get(), wanted_, soon()).ok();
    const auto answer = receive_frame(ours_.get(), soon());
    return answer ? *answer : answer.error().to_string();
  }

  const Scratch scratch_;
  FileDescriptor ours_, theirs_;
  FirstProcess wanted_;
};

TEST_F(Guest, is_no_process_but_the_first) {
  const Started guest({program(), kGuestArgument, "9", "a test"}, theirs_.get());
  EXPECT_EQ(first_answer(), "a sandbox needs a namespace of processes of its own");
}

TEST_F(Guest, connects_to_a_path) {
  const Scratch scratch;
  const auto path = scratch.path / "socket";
  const FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const Started guest({program(), kGuestArgument, path, "a test"}, -1);
  ours_ = FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(first_answer(), "a sandbox needs a namespace of processes of its own");
}

TEST_F(Guest, serves_calls_without_a_capability_and_ends_with_its_socket) {
  if (find_program("bwrap").empty()) GTEST_SKIP() << "no bubblewrap";
  setenv("TANDEM_SECRET", "s3cret", 1);
  const Started bubblewrap(in_bubblewrap({"--unshare-user"}), theirs_.get());
  unsetenv("TANDEM_SECRET");
  theirs_.reset();
  ASSERT_TRUE(send_to_guest(ours_.get(), wanted_, soon()).ok());
  auto sandbox = std::make_unique<ServedSandbox>(SpawnedSandbox{std::move(ours_), FileDescriptor()}, wanted_.spec);
  const Status ready = sandbox->wait_until_ready();
  ASSERT_TRUE(ready.ok()) << ready.to_string();
  const char* command =
      "pwd; grep -E 'Cap|NoNew|Seccomp:' /proc/self/status | cut -f 2; ls /proc/self/fd | wc -l; env | grep -c SECRET";
  const auto outcome = sandbox->call("run_terminal_cmd", {{"command", command}}, {});
  ASSERT_TRUE(outcome.has_value()) << outcome.error().to_string();
  const std::string none = "0000000000000000\n";
  EXPECT_EQ(outcome->output, "/workspace\n" + none + none + none + none + none + "1\n2\n4\n0\n[exit code 1]\n");
  sandbox.reset();
  EXPECT_TRUE(within(30s, [&] { return is_gone(bubblewrap.process); }));
}

TEST_F(Guest, that_would_keep_a_capability_serves_nobody) {
  if (find_program("bwrap").empty()) GTEST_SKIP() << "no bubblewrap";
  if (geteuid() != 0) GTEST_SKIP() << "bubblewrap leaves ordinary users none";
  const Started bubblewrap(in_bubblewrap({"--cap-drop", "ALL", "--cap-add", "CAP_CHOWN", "--cap-add", "CAP_SETUID",
                                          "--cap-add", "CAP_SETGID"}),
                           theirs_.get());
  EXPECT_EQ(first_answer(), "capability 0 is left in the bounding set, and may not be dropped");
}

}  // namespace
}  // namespace tandem::envs
