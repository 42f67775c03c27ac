// A container engine of a test's own, podman, with an image made of this machine's programs. It has its storage, its
// socket and its containers to itself, and leaves nothing.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "envs/container/container_backend.h"
#include "envs/container/tar.h"
#include "envs/sandbox/program.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {

class TestEngine {
 public:
  static constexpr const char* kImage = "localhost/tandem-test:latest";       // works in no folder
  static constexpr const char* kFolderImage = "localhost/tandem-app:latest";  // works in /srv/app, which has files

  // Why there can be none here; empty where it can.
  static std::string why_not() {
    if (sandbox_program().empty()) return "this build carries no program for containers";
    if (geteuid() != 0) return "podman is tested as root";
    if (system("podman --version >/dev/null 2>&1") != 0)
      return "there is no podman: apt-get install --no-install-recommends podman runc";
    return "";
  }

  TestEngine() {
    std::string folder = fs::temp_directory_path() / "engine-XXXXXX";
    if (!mkdtemp(folder.data())) abort();
    folder_ = folder;
    start();
  }
  ~TestEngine() {
    stop();
    run(podman() + " rm -af -t 0");
    run("while umount -l " + (folder_ / "root/overlay").string() + "; do :; done");  // once for each start
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  TestEngine(const TestEngine&) = delete;

  // Until it answers. Ends the tests where it never does.
  void start() {
    const auto command = "exec " + podman() + " system service --time=0 unix://" + socket() + " >" +
                         (folder_ / "log").string() + " 2>&1";
    service_ = fork();
    if (service_ == 0) {
      setpgid(0, 0);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    (void)engine();
  }
  void stop() {
    if (service_ <= 0) return;
    kill(service_, SIGKILL);
    waitpid(service_, nullptr, 0);
    service_ = -1;
    unlink(socket().c_str());
  }

  std::string socket() const { return folder_ / "socket"; }
  // A busy machine takes its time to start one.
  Engine engine() const {
    auto found = Engine::find(socket());
    if (!within(120s, [&] { return found || (found = Engine::find(socket())); })) {
      ADD_FAILURE() << found.error().to_string() << "\n" << read_file(folder_ / "log").value_or("");
      abort();
    }
    return *found;
  }
  const fs::path& folder() const { return folder_; }

  // The image, once: this machine's programs, with what they are linked to.
  void make_image() {
    const auto root = folder_ / "image";
    ASSERT_EQ(run(copy_programs(root)), 0);
    ASSERT_TRUE(write_file(root / "etc/hello", "of the image\n"));
    ASSERT_TRUE(make_directories(root / "srv/app/sub"));
    ASSERT_TRUE(write_file(root / "srv/app/notes.txt", "first\nsecond\n"));
    ASSERT_TRUE(write_file(root / "srv/app/sub/run.sh", "#!/bin/sh\necho ran\n"));
    ASSERT_EQ(chmod((root / "srv/app/sub/run.sh").c_str(), 0755), 0);
    fs::create_symlink("notes.txt", root / "srv/app/link");
    ASSERT_TRUE(write_file(folder_ / "Dockerfile", "FROM scratch\nCOPY image /\n"));
    const auto archive = folder_ / "image.tar";
    ASSERT_EQ(run("tar -C " + folder_.string() + " -cf " + archive.string() + " Dockerfile image"), 0);
    const Status built = engine().build(*read_file(archive), kImage);
    ASSERT_TRUE(built) << built.to_string();
    fs::remove_all(root);
    fs::remove(archive);
  }

  // An image of that one, for tests of the folder that an image works in.
  void make_folder_image() {
    const std::string recipe =
        std::string("FROM ") + kImage + "\nENV GREETING=hello PATH=/opt/bin:/usr/bin:/bin\nWORKDIR /srv/app\n";
    const Status built = engine().build(*tar_of({{"Dockerfile", recipe}}, {}), kFolderImage);
    ASSERT_TRUE(built) << built.to_string();
  }

  size_t containers() const {
    const auto all = engine().containers("tandem.owner");
    return all ? all->size() : 1'000'000;
  }

 private:
  static int run(const std::string& command) { return system(("(" + command + ") >/dev/null 2>&1").c_str()); }

  std::string podman() const {
    const bool runc = system("runc --version >/dev/null 2>&1") == 0;
    return "podman --root " + (folder_ / "root").string() + " --runroot " + (folder_ / "run").string() + " --tmpdir " +
           (folder_ / "tmp").string() + " --cgroup-manager=cgroupfs --events-backend=none " +
           (runc ? "--runtime runc" : "");
  }

  static std::string copy_programs(const fs::path& root) {
    return "set -e; root=" + root.string() + R"(
      mkdir -p $root/usr/bin $root/usr/lib $root/usr/lib64 $root/etc $root/var/tmp
      for name in bin lib lib64; do ln -s usr/$name $root/$name; done
      for name in bash cat chmod chown cp cut date dd echo env find grep head id kill ln ls mkdir mount mv python3 readlink \
                  rm sed seq sleep sort stat tail timeout touch tr true uname wc whoami; do
        program=$(readlink -f /usr/bin/$name)
        cp $program $root/usr/bin/$name
        for library in $(ldd $program | grep -o '/[^ ]*' | sort -u); do
          mkdir -p $root/$(dirname $library)
          [ -e $root/$library ] || cp -L $library $root/$library
        done
      done
      ln -s bash $root/usr/bin/sh
      version=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
      mkdir -p $root/usr/lib/$version
      for part in encodings collections importlib json re os.py io.py abc.py codecs.py stat.py posixpath.py \
                  genericpath.py _collections_abc.py site.py _sitebuiltins.py socket.py selectors.py enum.py types.py \
                  functools.py operator.py keyword.py reprlib.py copyreg.py warnings.py ctypes struct.py \
                  _weakrefset.py weakref.py heapq.py subprocess.py signal.py threading.py contextlib.py locale.py; do
        [ ! -e /usr/lib/$version/$part ] || cp -r /usr/lib/$version/$part $root/usr/lib/$version/
      done
      echo "root:x:0:0:root:/root:/bin/sh" > $root/etc/passwd
    )";
  }

  fs::path folder_;
  pid_t service_ = -1;
};

// One engine for all tests of a suite.
class ContainerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!TestEngine::why_not().empty()) return;
    engine_ = std::make_unique<TestEngine>();
    engine_->make_image();
  }
  static void TearDownTestSuite() { engine_.reset(); }

  void SetUp() override {
    if (const auto why = TestEngine::why_not(); !why.empty()) GTEST_SKIP() << why;
    ASSERT_FALSE(HasFatalFailure());
    spec_.image = SandboxImage{.name = TestEngine::kImage};
    spec_.call_time_limit_s = 10;
    spec_.output_limit = 20'000;
    auto backend = ContainerBackend::start(engine_->socket(), "test");
    ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
    backend_ = std::move(*backend);
  }

  void make() {
    auto sandbox = backend_->create(spec_);
    ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    sandbox_ = std::move(*sandbox);
  }
  ToolOutcome call(const char* name, const Json& arguments) {
    if (!sandbox_) return {};  // said by make()
    const auto outcome = sandbox_->call(name, arguments);
    EXPECT_TRUE(outcome.has_value()) << outcome.error().to_string();
    return outcome ? *outcome : ToolOutcome{};
  }
  std::string shell(const std::string& command) { return call("run_terminal_cmd", {{"command", command}}).output; }
  std::string python(const std::string& program) { return shell("python3 - <<'END'\n" + program + "\nEND\n"); }

  static std::unique_ptr<TestEngine> engine_;
  std::unique_ptr<ContainerBackend> backend_;
  SandboxSpec spec_;
  std::unique_ptr<Sandbox> sandbox_;
};
inline std::unique_ptr<TestEngine> ContainerTest::engine_;

}  // namespace tandem::envs
