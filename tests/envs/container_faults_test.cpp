// What becomes of sandboxes in containers when something of them is killed, missing or gone.
#include "envs/backends/choosing_backend.h"
#include "envs/container/tar.h"
#include "envs/episodes/episode.h"
#include "envs/episodes/validate.h"
#include "envs/sandbox/owner.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/container_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

class ContainerFaultsTest : public ContainerTest {};

TEST_F(ContainerFaultsTest, an_image_that_is_not_there_is_named_with_what_gets_it) {
  spec_.image->name = "quay.io/nobody/nothing:1";
  const auto sandbox = backend_->create(spec_);
  ASSERT_FALSE(sandbox.has_value());
  EXPECT_EQ(sandbox.error().code(), Code::kUnfit);
  EXPECT_THAT(sandbox.error().message(), HasSubstr("no image \"quay.io/nobody/nothing:1\""));
  EXPECT_THAT(sandbox.error().message(), HasSubstr("`podman pull quay.io/nobody/nothing:1`"));
}

TEST_F(ContainerFaultsTest, an_image_is_prepared_once_and_containers_leave_nothing) {
  make();
  const size_t before = engine_->containers();
  EXPECT_EQ(before, 1u) << "the container that prepared the image is gone";
  make();
  make();
  EXPECT_EQ(engine_->containers(), 1u);
  sandbox_.reset();
  EXPECT_TRUE(within(30s, [&] { return engine_->containers() == 0; }));
  const auto own = fs::temp_directory_path() / ("tandem-" + std::to_string(geteuid())) / this_owner();
  EXPECT_TRUE(fs::exists(own));
  backend_.reset();
  EXPECT_FALSE(fs::exists(own));
}

TEST_F(ContainerFaultsTest, a_container_that_is_removed_is_an_error_of_the_infrastructure) {
  make();
  const auto engine = engine_->engine();
  const auto containers = engine.containers("tandem.owner");
  ASSERT_TRUE(containers.has_value());
  ASSERT_EQ(containers->size(), 1u);
  ASSERT_TRUE(engine.remove(containers->at(0).id));
  const auto outcome = sandbox_->call("run_terminal_cmd", {{"command", "echo hi"}});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), Code::kUnavailable) << outcome.error().to_string();
  EXPECT_TRUE(within(30s, [&] { return sandbox_->has_ended(); }));
}

TEST_F(ContainerFaultsTest, an_operator_ends_one_and_its_calls_say_so) {
  make();
  sandbox_->end("somebody wanted it gone");
  const auto outcome = sandbox_->call("run_terminal_cmd", {{"command", "echo hi"}});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message(), HasSubstr("somebody wanted it gone"));
}

TEST_F(ContainerFaultsTest, sandboxes_go_on_without_the_engine_and_new_ones_wait_for_it) {
  make();
  engine_->stop();
  EXPECT_EQ(shell("echo still here"), "still here\n");
  const auto other = backend_->create(spec_);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code(), Code::kUnavailable) << other.error().to_string();
  engine_->start();
  make();
  EXPECT_EQ(shell("echo again"), "again\n");
}

TEST_F(ContainerFaultsTest, containers_of_a_killed_process_end_and_what_is_left_of_them_is_swept) {
  backend_.reset();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto backend = ContainerBackend::start(engine_->socket(), "killed");
    if (!backend) _exit(1);
    const auto sandbox = (*backend)->create(spec_);
    if (!sandbox) _exit(2);
    // One that runs no program of ours, so that nothing but the sweep ends it.
    const Json limit = {{"Name", "nofile"}, {"Soft", 64}, {"Hard", 64}};
    const Json of_processes = {{"Name", "nproc"}, {"Soft", 64}, {"Hard", 64}};
    const auto stray = (*backend)->engine().create(
        {{"Image", TestEngine::kImage},
         {"Entrypoint", Json::array({"/bin/sleep", "1000"})},
         {"Labels", {{"tandem.owner", this_owner()}}},
         {"HostConfig", {{"NetworkMode", "none"}, {"Ulimits", Json::array({limit, of_processes})}}}});
    if (!stray || !(*backend)->engine().start(*stray)) _exit(3);
    char byte = 1;
    if (write(ends[1], &byte, 1) != 1) _exit(4);
    for (;;) pause();
  }
  char byte = 0;
  close(ends[1]);
  ASSERT_EQ(read(ends[0], &byte, 1), 1) << "the process came to an end of its own";
  close(ends[0]);
  EXPECT_EQ(engine_->containers(), 2u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(within(30s, [&] { return engine_->containers() == 1; })) << "the sandbox ends with its socket";
  auto next = ContainerBackend::start(engine_->socket(), "next");
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ((*next)->swept(), 1u);
  EXPECT_EQ(engine_->containers(), 0u);
}

TEST_F(ContainerFaultsTest, an_episode_begins_with_the_image_and_is_graded_in_a_fresh_container_of_it) {
  engine_->make_folder_image();
  Task task;
  task.name = "image/notes";
  task.instruction = "Turn the notes around, without the script.";
  task.image = TestEngine::kFolderImage;
  task.files = {{"extra.txt", "extra\n"}};
  task.expectation.commands =
      CommandCheck{.files = {{"check.sh", "cat notes.txt link extra.txt; ls sub 2>/dev/null; echo done\n"}},
                   .programs = {},
                   .commands = {{.command = "sh check.sh", .output = "second\nfirst\nsecond\nfirst\nextra\ndone\n"}}};
  const auto play = [&](const std::string& command) -> double {
    auto episode = Episode::open(task, *backend_);
    EXPECT_TRUE(episode.has_value()) << episode.error().to_string();
    if (!episode) return -1;
    EXPECT_TRUE((*episode)->call("run_terminal_cmd", {{"command", command}}).has_value());
    const auto grade = (*episode)->score("");
    EXPECT_TRUE(grade.has_value()) << grade.error().to_string();
    return grade ? grade->reward : -1;
  };
  EXPECT_EQ(play("tac notes.txt > n 2>/dev/null || printf 'second\\nfirst\\n' > n; mv n notes.txt; rm -r sub"), 1);
  EXPECT_EQ(play("true"), 0);
  task.image = "quay.io/nobody/nothing:1";
  EXPECT_EQ(Episode::open(task, *backend_).error().code(), Code::kUnfit) << "never a reward";
}

TEST_F(ContainerFaultsTest, a_recipe_is_built_once_and_its_task_is_solved_in_the_image) {
  Scratch scratch;
  scratch.put("h/task.toml", "schema_version = \"1.1\"\n");
  scratch.put("h/instruction.md", "Write the word.\n");
  scratch.put("h/environment/Dockerfile", std::string("FROM ") + TestEngine::kImage +
                                              " AS first\nRUN echo built > /etc/word\nFROM first\nARG AT=/srv/word\n"
                                              "WORKDIR $AT\nCOPY --from=first /etc/word given.txt\n");
  scratch.put("h/tests/test.sh",
              "mkdir -p /logs/verifier; cd /srv/word\n"
              "if [ \"$(cat word.txt given.txt)\" = \"$(printf 'built\\nbuilt')\" ]; then r=1; else r=0; fi\n"
              "echo $r > /logs/verifier/reward.txt\n");
  scratch.put("h/solution/solve.sh", "cat /etc/word > /srv/word/word.txt\n");
  const auto set = TaskSet::read(scratch.path, {.kinds = {}, .recipes = Recipes::kBuilt});
  ASSERT_TRUE(set.has_value()) << set.error().to_string();
  const Task& task = set->tasks()[0];
  EXPECT_EQ(check_images(engine_->socket(), {task.image}).code(), Code::kUnfit);
  const auto context = read_build_context(set->recipes_of_images().at(task.image));
  ASSERT_TRUE(context.has_value());
  const Status built = engine_->engine().build(*tar_of(context->files, context->programs), task.image);
  ASSERT_TRUE(built) << built.to_string();
  EXPECT_TRUE(check_images(engine_->socket(), {task.image}));
  const auto grade = play_solution(task, *backend_);
  ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
  EXPECT_EQ(grade->reward, 1) << grade->why;
  EXPECT_EQ(validate(task, *backend_, 1).verdict, Verdict::kPassed);
}

}  // namespace
}  // namespace tandem::envs
