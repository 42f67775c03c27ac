#include <sys/wait.h>

#include <cstdlib>

#include "envs/sandbox/capabilities.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

class Sealed : public SandboxTest {
 protected:
  void SetUp() override {
    spec_.sealable = true;
    SandboxTest::SetUp();
    if (!sandbox_) return;
    if (const auto sealed = seal(*sandbox_); !sealed) GTEST_SKIP() << sealed.error().to_string();
    make();
  }
  Snapshot seal_it() {
    auto sealed = seal(*sandbox_);
    EXPECT_TRUE(sealed.has_value()) << sealed.error().to_string();
    return sealed ? *sealed : Snapshot{};
  }
  std::unique_ptr<Sandbox> begin(const Snapshot& snapshot) {
    auto sandbox = begin_again(*backend_, spec_, snapshot);
    EXPECT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    return std::move(*sandbox);
  }
  static std::string shell_of(Sandbox& sandbox, const std::string& command) {
    return sandbox.call("run_terminal_cmd", {{"command", command}})->output;
  }
};

constexpr const char* kTree =
    "cd /workspace; find . /tmp ! -type d -printf '%p %M %s %l %TY-%Tm-%Td %TH:%TM:%TS\\n' | sort; find . -type d "
    "-printf "
    "'%p %M %TY-%Tm-%Td %TH:%TM:%TS\\n' | sort; find /tmp -type d -printf '%p %M\\n'; cat a/f";

TEST_F(Sealed, others_begin_with_all_that_it_held_and_share_nothing_that_they_write) {
  shell(
      "mkdir -p a/empty b/c; echo gone > b/c/gone; printf 'one\\0two' > a/f; chmod 751 a/f; ln -s f a/link; ln a/f "
      "a/same; mkfifo p; echo t > /tmp/t; touch -d '2020-02-03 04:05:06.789' a/f a; chmod 500 a/empty; chmod 700 .; "
      "cd a; export X=1");
  const auto before = shell(kTree);
  EXPECT_THAT(before, HasSubstr("one"));
  shell("cd a");
  const auto sealed = seal_it();
  EXPECT_EQ(sandbox_->call("list_dir", {{"target_directory", "."}}).error().code(), Code::kUnavailable);
  auto first = begin(sealed);
  const auto second = begin(sealed);
  EXPECT_EQ(shell_of(*first, "pwd; echo $X"), "/workspace/a\n1\n");
  EXPECT_EQ(shell_of(*first, kTree), before);

  // What is changed, moved, taken away and made anew in a folder that was taken away.
  shell_of(*first,
           "cd /workspace; echo first > a/f; rm /tmp/t; rm -r b/c; mkdir b/c; mv b d; mv a/link a/moved; chmod 755 "
           "a/empty; echo new > a/empty/new; export X=2");
  EXPECT_EQ(shell_of(*second, kTree), before);
  const auto of_first = shell_of(*first, kTree);
  EXPECT_THAT(of_first, HasSubstr("first"));
  EXPECT_THAT(of_first, testing::Not(HasSubstr("gone")));

  const auto again = seal(*first);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  const auto third = begin(*again), fourth = begin(*again);
  EXPECT_EQ(shell_of(*third, kTree), of_first);
  EXPECT_EQ(shell_of(*third, "echo $X; rm -rf /workspace/* /tmp/*; ls -A /workspace /tmp"),
            "2\n/tmp:\n\n/workspace:\n");
  EXPECT_EQ(shell_of(*fourth, kTree), of_first);
  EXPECT_EQ(shell_of(*second, kTree), before);
}

TEST_F(Sealed, outlives_its_sandbox_and_its_backend) {
  shell("echo word > f");
  const auto sealed = seal_it();
  sandbox_.reset();
  backend_ = std::move(*NamespaceBackend::start(isolated_by_));
  EXPECT_EQ(shell_of(*begin(sealed), "cat f"), "word\n");
}

TEST_F(Sealed, programs_work_on_layers_as_on_other_files) {
  shell(
      "git init -q . && git config user.email a@b.c && git config user.name n && mkdir s && echo 'int main(){return "
      "3;}' > s/m.c && git add . && git commit -qm one && gcc -o m s/m.c");
  const auto sandbox = begin(seal_it());
  EXPECT_EQ(shell_of(*sandbox, "git status --porcelain"), "?? m\n");
  EXPECT_EQ(shell_of(*sandbox, "./m; echo $?; git mv s t && git commit -qm two && git gc -q && git log --format=%s"),
            "3\ntwo\none\n");
  EXPECT_EQ(shell_of(*sandbox, "git checkout -q HEAD~1 && ls && stat -c %d . s s/m.c m | uniq | wc -l"), "m\ns\n1\n");
  EXPECT_EQ(shell_of(*sandbox, "tar --one-file-system -c . | tar -t | grep -c '^./s/m.c$'"), "1\n");
  EXPECT_EQ(sandbox->collect()->files.at("s/m.c"), "int main(){return 3;}\n");
  const auto copy = snapshot_of(*sandbox);
  ASSERT_TRUE(copy.has_value());
  make();
  ASSERT_TRUE(restore(*sandbox_, *copy));
  EXPECT_EQ(shell("git status --porcelain; git log -1 --format=%s"), "?? m\none\n");
}

TEST_F(Sealed, is_confined_as_others_are) {
  shell("echo word > f");
  const auto sandbox = begin(seal_it());
  EXPECT_EQ(shell_of(*sandbox, "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status"),
            "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n");
  EXPECT_THAT(shell_of(*sandbox, "touch /x /usr/x /etc/x 2>&1; ls -A / | tr '\\n' ' '"),
              testing::AllOf(HasSubstr("/usr/x': Read-only"), testing::Not(HasSubstr("layers"))));
  EXPECT_THAT(shell_of(*sandbox, "mknod d c 1 3 2>&1; cp /usr/bin/id i && chmod u+s i && ./i -u"), HasSubstr("1000\n"));
  // What an overlay notes for itself is neither to be seen nor to be made.
  EXPECT_EQ(shell_of(*sandbox,
                     "rm f; mkdir f; python3 -c 'import os\nprint(os.listxattr(\"f\"))\ntry: os.setxattr(\"f\", "
                     "\"trusted.overlay.opaque\", b\"n\")\nexcept OSError: pass' ; ls -A f"),
            "[]\n");
}

TEST_F(Sealed, where_something_runs_or_that_was_not_asked_for_it_goes_on) {
  call("run_terminal_cmd", {{"command", "exec sleep 1000"}, {"is_background", true}});
  const auto running = seal(*sandbox_);
  ASSERT_FALSE(running);
  EXPECT_EQ(running.error().message(), "something runs in the sandbox");
  // It may not be called so yet, and who is killed ends a moment later.
  ASSERT_TRUE(within(30s, [&] { return shell("pkill sleep && echo here") == "here\n"; }));
  EXPECT_TRUE(within(30s, [&] { return seal(*sandbox_).has_value(); }));
  spec_.sealable = false;
  make();
  EXPECT_EQ(seal(*sandbox_).error().code(), Code::kUnfit);
  EXPECT_EQ(shell("echo here"), "here\n");
}

TEST_F(Sealed, is_bounded_in_layers_and_bytes) {
  auto sandbox = std::move(sandbox_);
  size_t layers = 0;
  for (auto sealed = seal(*sandbox); sealed; sealed = seal(*sandbox)) {
    layers = sealed->layers.all.size();
    sandbox = begin(*sealed);
    shell_of(*sandbox, "echo " + std::to_string(layers) + " >> log");
  }
  EXPECT_EQ(layers, kMostLayers);
  EXPECT_EQ(shell_of(*sandbox, "wc -l < log"), "8\n");

  spec_.disk_bytes = 16 << 20;
  make();
  shell("head -c 6M /dev/zero > f");
  sandbox = begin(seal_it());
  EXPECT_THAT(shell_of(*sandbox, "head -c 12M /dev/zero > g; stat -c %s g"), HasSubstr("No space left"));
  EXPECT_EQ(shell_of(*sandbox, "rm g; head -c 9M /dev/zero > g; stat -c %s g"), "9437184\n");
  EXPECT_EQ(seal(*sandbox).error().message(), "the files of the sandbox take most of its disk");
  EXPECT_EQ(shell_of(*sandbox, "stat -c %s f"), "6291456\n");
}

// What was written counts where it was, as long as anybody has it.
TEST_F(Sealed, memory_that_others_are_on_is_not_that_of_the_next_sandbox) {
  spec_.memory_bytes = 64 << 20;
  std::vector<Snapshot> kept;
  for (int i = 0; i < 4; ++i) {
    make();
    EXPECT_EQ(shell("head -c 40M /dev/zero > f; stat -c %s f"), "41943040\n");
    kept.push_back(seal_it());
    sandbox_.reset();
  }
  EXPECT_EQ(shell_of(*begin(kept[0]), "stat -c %s f"), "41943040\n");
}

TEST_F(Sealed, leaves_nothing_when_nobody_has_it_any_more) {
  sandbox_.reset();
  const auto descriptors = count_entries("/proc/self/fd");
  const auto mounts = mounts_here();
  for (int i = 0; i < 20; ++i) {
    make();
    shell("echo x > f");
    sandbox_ = begin(seal_it());
    shell("echo y > f");
    (void)seal_it();
  }
  sandbox_.reset();
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(mounts_here(), mounts);
}

// By bubblewrap, or by namespaces of an ordinary user.
TEST(SealedElsewhere, is_refused_and_the_sandbox_goes_on) {
  const bool root = geteuid() == 0;
  if (root && !fs::exists("/usr/bin/bwrap")) GTEST_SKIP() << "no bubblewrap";
  const auto backend = NamespaceBackend::start(root ? IsolatedBy::kBubblewrap : IsolatedBy::kNamespaces);
  ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
  SandboxSpec spec;
  spec.sealable = true;
  for (int i = 0; i < 2; ++i) {
    const auto sandbox = (*backend)->create(spec);
    ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    EXPECT_EQ(seal(**sandbox).error().code(), Code::kUnfit);
    EXPECT_EQ((*sandbox)->call("run_terminal_cmd", {{"command", "echo here"}})->output, "here\n");
  }
}

TEST(SealedElsewhere, of_an_ordinary_user_likewise) {
  if (geteuid() != 0) GTEST_SKIP() << "we are one already";
  Scratch scratch;
  fs::permissions(scratch.path, fs::perms(0777));
  fs::copy_file("/proc/self/exe", scratch.path / "test");
  const auto run = "cd / && setpriv --reuid 12345 --regid 12345 --clear-groups " + (scratch.path / "test").string() +
                   " --gtest_filter=SealedElsewhere.is_refused_and_the_sandbox_goes_on >" +
                   (scratch.path / "log").string() + " 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(run.c_str())), 0) << scratch.get("log");
  EXPECT_THAT(scratch.get("log"), HasSubstr("[  PASSED  ] 1 test."));
}

}  // namespace
}  // namespace tandem::envs
