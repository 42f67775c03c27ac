// What sandboxes in containers are made of, where no engine is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "envs/backends/choosing_backend.h"
#include "envs/container/engine.h"
#include "envs/container/image_plan.h"
#include "envs/container/rendezvous.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/file_tree.h"
#include "envs/sandbox/host_backend.h"
#include "envs/sandbox/owner.h"
#include "envs/sandbox/program.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EngineMessages, are_read_in_the_parts_that_are_asked_for) {
  const auto podman =
      read_engine_version(R"({"Version":"4.3.1","ApiVersion":"1.41","Components":[{"Name":"Podman Engine"}]})");
  ASSERT_TRUE(podman.has_value());
  EXPECT_EQ(podman->name + " " + podman->version, "Podman Engine 4.3.1");
  EXPECT_EQ(read_engine_version(R"({"Version":"20.10.24","ApiVersion":"1.41","Components":[{"Name":"Engine"}]})")->name,
            "Docker Engine");
  const auto image = read_engine_image(
      R"({"Id":"sha256:ab","Size":1,"Config":{"WorkingDir":"/app","Env":["PATH=/bin","A=b=c"],"Cmd":null}})");
  ASSERT_TRUE(image.has_value()) << image.error().to_string();
  EXPECT_EQ(image->id, "sha256:ab");
  EXPECT_EQ(image->folder, "/app");
  EXPECT_THAT(image->environment, ElementsAre("PATH=/bin", "A=b=c"));
  const auto state = read_engine_state(R"({"State":{"Running":true,"Pid":17,"ExitCode":0}})");
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->process, 17);
  const auto containers = read_engine_containers(R"([{"Id":"1f","Labels":{"tandem.owner":"x"}},{"Id":"2e"}])");
  ASSERT_TRUE(containers.has_value());
  EXPECT_EQ(containers->at(0).labels.at("tandem.owner"), "x");
  EXPECT_EQ(read_engine_progress_error("{\"stream\":\"STEP 1\"}\n{\"error\":\"it broke\"}\n"), "it broke");
  EXPECT_EQ(read_engine_progress_error("{\"error\":\"\\u001b[31m\"}"), "it says no more");
  EXPECT_EQ(read_engine_progress_error("{\"error\":\"\"}"), "");
  EXPECT_EQ(read_engine_error(R"({"message":"no such image"})"), "no such image");
  for (const char* nothing : {"", " \n", "\xC2\x9B", "\x1b[31m"})
    EXPECT_EQ(read_engine_error(nothing), "it says no more");
}

TEST(Descriptors, that_do_not_come_as_no_more_files_may_be_open_are_told) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  const FileDescriptor ours(sockets[0]), theirs(sockets[1]);
  const FileDescriptor lowest(::dup(0));  // the first that is free
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  for (const bool may : {false, true}) {
    ASSERT_TRUE(send_descriptors(ours.get(), "spawned", {0, 0, 0}));
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(lowest.get()) + 1;
    if (!may) {
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    const Received received = receive(theirs.get(), 100);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(received.text, "spawned");
    EXPECT_EQ(received.cut, !may);
    EXPECT_EQ(received.descriptors.size() == 3, may);
  }
}

TEST(EngineMessages, that_do_not_fit_are_refused) {
  for (const char* answer : {"", "[]", "{}", R"({"Id":7})", R"({"Id":"../x"})", R"({"Id":"a","Config":{"Env":["=x"]}})",
                             R"({"Id":"a","Config":{"Env":{"A":"b"}}})", R"({"Id":"a","Config":{"WorkingDir":[]}})"})
    EXPECT_EQ(read_engine_image(answer).error().code(), Code::kCorrupt) << answer;
  for (const char* answer : {"{}", R"({"State":{"Running":1,"Pid":1,"ExitCode":0}})",
                             R"({"State":{"Running":true,"Pid":99999999999,"ExitCode":0}})"})
    EXPECT_EQ(read_engine_state(answer).error().code(), Code::kCorrupt) << answer;
}

TEST(Engine, that_is_not_there_is_said_with_how_to_start_one) {
  const auto engine = Engine::find("unix:///nowhere/engine.sock");
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), Code::kUnfit);
  EXPECT_THAT(engine.error().to_string(), HasSubstr("/nowhere/engine.sock"));
  EXPECT_THAT(engine.error().hint(), HasSubstr("podman"));
}

TEST(Engine, names_of_images_are_checked_before_they_are_sent) {
  for (const char* name : {"python:3.12-slim", "quay.io/a/b@sha256:0f", "localhost/x:latest", "localhost:5000/a_b.c"})
    EXPECT_TRUE(check_image_name(name)) << name;
  for (const char* name : {"", "-x", "a b", "../x", "a/../b", "a//b", "a?b", "a#b", "a\n", "x/"})
    EXPECT_EQ(check_image_name(name).code(), Code::kInvalid) << name;
}

TEST(ChoosingBackend, without_an_engine_an_image_is_an_error_and_everything_else_works) {
  ChoosingBackend backend(std::make_unique<HostBackend>(), "/nowhere/engine.sock", "");
  EXPECT_TRUE(backend.create({}).has_value());
  SandboxSpec spec;
  spec.image = SandboxImage{.name = "python:3.12"};
  EXPECT_EQ(backend.create(spec).error().code(), Code::kUnfit);
  ChoosingBackend off(std::make_unique<HostBackend>(), std::string(kNoEngine), "");
  EXPECT_THAT(off.create(spec).error().to_string(), HasSubstr("env.engine"));
  EXPECT_TRUE(check_images("/nowhere/engine.sock", {}));
  EXPECT_EQ(check_images("/nowhere/engine.sock", {"python:3.12"}).code(), Code::kUnfit);
}

TEST(Owner, is_gone_when_its_process_is) {
  EXPECT_FALSE(owner_is_gone(this_owner()));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto owner = this_owner();
    _exit(write(ends[1], owner.data(), owner.size()) > 0 ? 0 : 1);
  }
  char text[200];
  const ssize_t size = read(ends[0], text, sizeof text);
  close(ends[0]);
  close(ends[1]);
  waitpid(child, nullptr, 0);
  ASSERT_GT(size, 0);
  const std::string owner(text, static_cast<size_t>(size));
  EXPECT_TRUE(owner_is_gone(owner)) << owner;
  auto parts = split(owner, '.');
  EXPECT_TRUE(owner_is_gone("another." + owner.substr(owner.find('.') + 1))) << "of an earlier boot";
  EXPECT_FALSE(owner_is_gone(std::string(parts[0]) + ".1." + std::string(parts[2]) + "." + std::string(parts[3])))
      << "of another namespace";
  for (const char* none : {"", "x", "a.b.c", "a.b.c.d.e", "../..", "a.b./.d"}) EXPECT_FALSE(owner_is_gone(none));
}

TEST(ImagePlan, folders_of_the_system_are_no_workspaces) {
  for (const char* folder : {"/app", "/usr/src/app", "/srv/a", "/home/x", "/workspace", "/root/x", "/testbed"})
    EXPECT_TRUE(can_be_workspace(folder)) << folder;
  for (const char* folder : {"", "/", "app", "/usr", "/etc", "/root", "/tmp/x", "/proc/1", "/run/x", "/a/../b", "/a/"})
    EXPECT_FALSE(can_be_workspace(folder)) << folder;
}

TEST(ImagePlan, travels_as_bytes_and_what_does_not_fit_is_refused) {
  const ImagePlan plan{.folder = "/app", .links = {{"/tests", "/tmp/tests"}}};
  EXPECT_EQ(decode_image_plan(encode(plan)).value(), plan);
  EXPECT_FALSE(decode_image_plan(encode({.folder = "/usr", .links = {}})).has_value());
  EXPECT_FALSE(decode_image_plan(encode({.folder = "", .links = {{"/a/../b", "/tmp"}}})).has_value());
  EXPECT_FALSE(decode_image_plan(encode({.folder = "", .links = {{"/", "/tmp"}}})).has_value());
  EXPECT_FALSE(decode_image_plan("x").has_value());
}

TEST(ImagePlan, a_root_is_prepared_with_a_beginning_links_and_a_user) {
  const Scratch scratch;
  const fs::path root = scratch.path / "root";
  ASSERT_TRUE(make_directories(root / "app/sub"));
  ASSERT_TRUE(make_directories(root / "tests"));
  ASSERT_TRUE(make_directories(root / "etc"));
  ASSERT_TRUE(make_directories(root / "workspace/old"));
  ASSERT_TRUE(write_file(root / "app/sub/a.txt", "content"));
  ASSERT_TRUE(write_file(root / "tests/secret.py", "assert True"));
  ASSERT_TRUE(write_file(root / "etc/passwd", "nobody:x:65534:65534::/:/bin/false\n"));
  const Status status = prepare_root(root, {.folder = "/app", .links = {{"/tests", "/tmp/tests"}, {"/new/x", "/tmp"}}});
  ASSERT_TRUE(status) << status.to_string();
  EXPECT_EQ(fs::read_symlink(root / "app"), "/workspace");
  EXPECT_EQ(fs::read_symlink(root / "tests"), "/tmp/tests");
  EXPECT_EQ(fs::read_symlink(root / "new/x"), "/tmp");
  EXPECT_TRUE(fs::is_empty(root / "workspace"));
  EXPECT_EQ(fs::status(root / "tmp").permissions(), fs::perms(01777));
  EXPECT_THAT(read_file(root / "etc/passwd").value(), testing::StartsWith("agent:x:65534:"));
  ASSERT_TRUE(make_directories(scratch.path / "begun"));
  ASSERT_TRUE(unpack_tree(scratch.path / "begun", read_file(root / ".tandem-beginning").value()));
  EXPECT_EQ(read_file(scratch.path / "begun/sub/a.txt").value(), "content");
}

TEST(Rendezvous, admits_the_process_that_is_waited_for_and_is_gone_then) {
  if (sandbox_program().empty()) GTEST_SKIP() << "this build carries no program for containers";
  auto folder_of_all = RendezvousFolder::make();
  ASSERT_TRUE(folder_of_all.has_value()) << folder_of_all.error().to_string();
  auto rendezvous = (*folder_of_all)->open();
  ASSERT_TRUE(rendezvous.has_value()) << rendezvous.error().to_string();
  EXPECT_EQ(read_file(rendezvous->folder() / "program").value(), sandbox_program());
  struct stat info {};
  ASSERT_EQ(stat(rendezvous->folder().parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto socket = (rendezvous->folder() / "socket").string();
  const auto stranger = connect_to(socket);
  ASSERT_TRUE(stranger.has_value());
  const pid_t child = fork();  // connects, and stays until its socket is closed
  if (child == 0) {
    const auto connected = connect_to(socket);
    char byte = 0;
    _exit(connected && read(connected->get(), &byte, 1) == 0 ? 0 : 1);
  }
  auto admitted = rendezvous->admit(child, std::chrono::seconds(10), [] { return Status(); });
  ASSERT_TRUE(admitted.has_value()) << admitted.error().to_string();
  EXPECT_FALSE(fs::exists(socket));
  EXPECT_FALSE(connect_to(socket).has_value());
  admitted->reset();
  int ended = -1;
  waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0);
}

TEST(Rendezvous, waiting_ends_with_what_went_wrong) {
  if (sandbox_program().empty()) GTEST_SKIP() << "this build carries no program for containers";
  auto folder_of_all = RendezvousFolder::make();
  ASSERT_TRUE(folder_of_all.has_value());
  auto rendezvous = (*folder_of_all)->open();
  ASSERT_TRUE(rendezvous.has_value());
  const auto never = rendezvous->admit(1, std::chrono::seconds(10), [] { return Status::unavailable("it ended"); });
  EXPECT_EQ(never.error().message(), "it ended");
  const auto folder = rendezvous->folder();
  { const Rendezvous gone = std::move(*rendezvous); }
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace tandem::envs
