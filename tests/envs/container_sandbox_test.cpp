// Sandboxes in containers of a real engine: the same tools, the same confinement.
#include "envs/sandbox/capabilities.h"
#include "tests/envs/container_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(ContainerTest, programs_and_files_are_those_of_the_image) {
  make();
  EXPECT_EQ(shell("cat /etc/hello; pwd; whoami"), "of the image\n/workspace\nagent\n");
  EXPECT_EQ(shell("ls -A /workspace /.tandem"), "/.tandem:\n\n/workspace:\n");
  EXPECT_THAT(shell("ls /usr/bin/cmake"), HasSubstr("No such file"));
}

TEST_F(ContainerTest, no_capability_is_left_and_the_filter_is_on) {
  make();
  const auto status = shell("cat /proc/self/status");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_THAT(status, HasSubstr(std::string(set) + ":\t0000000000000000\n"));
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2\n"));
  EXPECT_THAT(status, HasSubstr("Uid:\t65534\t65534\t65534\t65534\n"));
  EXPECT_THAT(status, HasSubstr("Groups:\t \n"));
}

TEST_F(ContainerTest, the_system_is_read_only_and_files_of_the_host_are_not_there) {
  make();
  ASSERT_TRUE(write_file(engine_->folder() / "secret", "of the host\n"));
  const auto secret = (engine_->folder() / "secret").string();
  EXPECT_THAT(shell("cat " + secret), HasSubstr("No such file"));
  EXPECT_THAT(shell("cat /proc/1/root" + secret), Not(HasSubstr("of the host")));
  EXPECT_THAT(shell("cat ../../../../" + secret), HasSubstr("No such file"));
  EXPECT_THAT(shell("echo x > /.tandem/x; echo $?"), HasSubstr("1\n"));
  for (const char* path : {"/etc/x", "/usr/bin/x", "/var/tmp/x", "/run/x", "/x"})
    EXPECT_THAT(shell(std::string("echo x > ") + path), testing::AnyOf(HasSubstr("Read-only"), HasSubstr("denied")))
        << path;
  EXPECT_EQ(shell("echo x > /tmp/x && echo y > /dev/shm/y && echo z > z && cat /tmp/x /dev/shm/y z"), "x\ny\nz\n");
}

TEST_F(ContainerTest, there_is_no_network_but_loopback) {
  make();
  EXPECT_EQ(shell("tail -n +3 /proc/net/dev | sed 's/:.*//; s/ //g'"), "lo\n");
}

TEST_F(ContainerTest, the_proxy_is_reached_and_refuses_hosts_that_are_not_on_the_list) {
  spec_.network = AllowList::parse(std::vector<std::string>{"packages.example"}).value();
  make();
  const auto answer = shell(
      "echo $http_proxy; exec 3<>/dev/tcp/127.0.0.1/3128; "
      "printf 'GET http://evil.example/ HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n' >&3; head -c 12 <&3");
  EXPECT_THAT(answer, StartsWith("http://127.0.0.1:3128\nHTTP/1.1 403"));
  EXPECT_THAT(answer, HasSubstr("[network: GET evil.example:80 refused"));
}

TEST_F(ContainerTest, nothing_can_be_asked_of_what_the_container_shares_with_the_host) {
  make();
  EXPECT_THAT(shell("mount -t tmpfs none /tmp"), Not(HasSubstr("[no output]")));
  EXPECT_THAT(shell("/.tandem/program --tandem-guest /.tandem/socket x; echo $?"), HasSubstr("No such file"));
  shell("kill -9 1; kill -STOP 1");
  EXPECT_EQ(shell("echo alive"), "alive\n");
}

TEST_F(ContainerTest, a_fork_bomb_is_bounded_and_the_sandbox_lives_on) {
  spec_.processes = 64;
  spec_.call_time_limit_s = 2;  // bash tries again for longer
  make();
  EXPECT_THAT(shell("for i in $(seq 200); do sleep 60 >/dev/null 2>&1 & done; echo started"), HasSubstr("fork"));
  EXPECT_EQ(shell("echo alive"), "alive\n");
}

TEST_F(ContainerTest, memory_disk_and_time_are_bounded) {
  spec_.memory_bytes = 128 << 20;
  spec_.disk_bytes = 8 << 20;
  make();
  EXPECT_THAT(python("x = b'x' * (512 << 20)\nprint('got', 'it')"), Not(HasSubstr("got it")));
  EXPECT_THAT(shell("dd if=/dev/zero of=big bs=1M count=64"), HasSubstr("No space left"));
  spec_.call_time_limit_s = 1;
  sandbox_->set_call_limits(spec_);
  EXPECT_EQ(call("run_terminal_cmd", {{"command", "sleep 60"}}).exit_code, 124);
}

TEST_F(ContainerTest, tools_answer_in_the_bytes_of_every_other_sandbox) {
  const std::vector<std::pair<const char*, Json>> calls = {
      {"write", {{"file_path", "src/a.txt"}, {"contents", "one\ntwo\nthree\n"}}},
      {"read_file", {{"target_file", "src/a.txt"}}},
      {"search_replace", {{"file_path", "src/a.txt"}, {"old_string", "two"}, {"new_string", "2"}}},
      {"list_dir", {{"target_directory", "."}}},
      {"grep", {{"pattern", "t.*e"}}},
      {"glob_file_search", {{"glob_pattern", "**/*.txt"}}},
      {"run_terminal_cmd", {{"command", "export A=1; cd src && ls -l a.txt | cut -d' ' -f1; echo $?"}}},
      {"run_terminal_cmd", {{"command", "echo $A; pwd; id -un; git; (exit 7)"}}},
      {"run_terminal_cmd",
       {{"command", "echo $HOME $LANG $TERM $PAGER; umask; stat -c '%U %G %a' /workspace; stat -c %a /tmp"}}},
      {"delete_file", {{"target_file", "src/a.txt"}}},
      {"read_file", {{"target_file", "src/a.txt"}}},
      {"todo_write",
       {{"merge", false}, {"todos", Json::array({{{"id", "1"}, {"content", "x"}, {"status", "pending"}}})}}},
      {"no_such_tool", Json::object()}};
  make();
  const auto namespaces = NamespaceBackend::start(IsolatedBy::kNamespaces);
  ASSERT_TRUE(namespaces.has_value());
  auto plain = spec_;
  plain.image.reset();
  const auto other = (*namespaces)->create(plain);
  ASSERT_TRUE(other.has_value()) << other.error().to_string();
  for (const auto& [name, arguments] : calls) {
    const auto here = call(name, arguments);
    const auto there = (*other)->call(name, arguments);
    ASSERT_TRUE(there.has_value());
    // Programs that the image does not have say so in both.
    if (arguments.dump().find("git") == std::string::npos) {
      EXPECT_EQ(here.output, there->output) << name << arguments.dump();
    }
    EXPECT_EQ(here.ok, there->ok) << name;
    EXPECT_EQ(here.exit_code, there->exit_code) << name;
    EXPECT_EQ(here.changed_files, there->changed_files) << name;
  }
}

TEST_F(ContainerTest, the_workspace_begins_with_the_folder_that_the_image_works_in) {
  engine_->make_folder_image();
  spec_.image->name = TestEngine::kFolderImage;
  make();
  EXPECT_EQ(shell("cat notes.txt link; ./sub/run.sh; cd /srv/app && pwd -P; echo $GREETING $PATH"),
            "first\nsecond\nfirst\nsecond\nran\n/workspace\nhello /opt/bin:/usr/bin:/bin\n");
  EXPECT_EQ(shell("stat -c '%U %a' /workspace/sub /workspace/sub/run.sh"), "agent 755\nagent 755\n");
  EXPECT_EQ(shell("echo more >> /srv/app/notes.txt; tail -n 1 /workspace/notes.txt"), "more\n");
  const auto collected = sandbox_->collect();
  ASSERT_TRUE(collected.has_value());
  EXPECT_EQ(collected->files.at("notes.txt"), "first\nsecond\nmore\n");
  spec_.image->begins_with_files = false;
  make();
  EXPECT_EQ(shell("ls -A"), "[no output]\n");
}

TEST_F(ContainerTest, links_take_the_place_of_what_the_image_has_at_their_paths) {
  spec_.links = {{"/srv/app", "/workspace"}, {"/tests", "/tmp/tests"}, {"/etc/hello", "/tmp/hello"}};
  make();
  EXPECT_EQ(shell("cat notes.txt; readlink /srv/app /tests /etc/hello"),
            "first\nsecond\n/workspace\n/tmp/tests\n/tmp/hello\n");
}

TEST_F(ContainerTest, a_bound_folder_is_worked_in_by_its_owner) {
  const auto folder = engine_->folder() / "bound";
  ASSERT_TRUE(make_directories(folder));
  ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
  spec_.workspace = folder;
  make();
  EXPECT_EQ(shell("echo hi > made; stat -c %u made"), "12345\n");
  EXPECT_EQ(read_file(folder / "made").value_or(""), "hi\n");
}

TEST_F(ContainerTest, snapshots_and_looks_work_as_elsewhere) {
  make();
  shell("echo kept > kept; export B=2");
  const auto snapshot = snapshot_of(*sandbox_);
  ASSERT_TRUE(snapshot.has_value());
  make();
  ASSERT_TRUE(restore(*sandbox_, *snapshot));
  EXPECT_EQ(shell("cat kept; echo $B"), "kept\n2\n");
  const auto looked = exec_in(*sandbox_, {.argv = {"cat", "kept"}}, {});
  ASSERT_TRUE(looked.has_value()) << looked.error().to_string();
  EXPECT_EQ(looked->output, "kept\n");
  EXPECT_GT(usage_of(*sandbox_).processes, 0u);
}

}  // namespace
}  // namespace tandem::envs
