// `tandem eval` when something fails: servers that refuse, lie or are gone, kills, models that are half written.
#include <gmock/gmock.h>

#include "tests/cli/eval_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class EvalFaults : public EvalTest {
 protected:
  // Runs a shell script where it may mount; 77: it may not.
  static int run_where_mounts_are_private(const std::string& script, const std::vector<std::string>& environment) {
    Arguments arguments = {"/usr/bin/unshare", "--mount"};
    if (::geteuid() != 0) arguments.insert(arguments.end(), {"--user", "--map-root-user"});
    arguments.insert(arguments.end(), {"/bin/sh", "-c", script});
    return Process(arguments, output(), environment).wait(180s);
  }
};

TEST_F(EvalFaults, a_killed_evaluation_goes_on_where_it_was_and_comes_to_the_same_end) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.hold_after(5);
  {
    Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
    ASSERT_TRUE(within(60s, [&] { return lines(night("one") / "episodes.jsonl").size() == 5; })) << text(output());
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait(), -SIGKILL);
  }
  std::ofstream(night("one") / "episodes.jsonl", std::ios::app) << R"({"task":"t7","samp)";
  const size_t asked = server.asked();
  server.hold_after(-1);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(server.asked() - asked, 11u);
  EXPECT_EQ(lines(night("one") / "episodes.jsonl").size(), 16u);
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0);
  EXPECT_EQ(results.at("outcomes").at("completed"), 16);
}

TEST_F(EvalFaults, an_interrupted_one_ends_with_75_and_goes_on) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.hold_after(3);
  {
    Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
    ASSERT_TRUE(within(60s, [&] { return lines(night("one") / "episodes.jsonl").size() == 3; })) << text(output());
    EXPECT_EQ(Process(eval({file, "--out", night("one").string()}), root() / "second").wait(60s), 2);
    EXPECT_THAT(text(root() / "second"), HasSubstr("is in use by process " + std::to_string(process.pid()) + " on "));
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(60s), 75);
  }
  EXPECT_FALSE(fs::exists(night("one") / "results.json"));
  server.hold_after(-1);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(lines(night("one") / "episodes.jsonl").size(), 16u);
}

TEST_F(EvalFaults, samples_that_a_server_refused_have_no_verdict_and_are_tried_again_by_the_same_command) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.refuse_with(429);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=2"}), 5) << text(output());
  Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 4);
  EXPECT_TRUE(results.at("pass_rate").is_null());
  EXPECT_THAT(results.at("tasks")[0].at("samples")[0].at("why").get<std::string>(), HasSubstr("too much"));
  EXPECT_THAT(text(night("one") / "junit.xml"), HasSubstr("failures=\"0\" errors=\"2\""));
  server.refuse_with(0);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=2"}), 0) << text(output());
  results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0);
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 0);
}

TEST_F(EvalFaults, a_disk_that_is_full_is_named_replaces_nothing_and_the_same_command_goes_on_once_there_is_room) {
  AnsweringServer server;
  const auto file = suite_of(server);
  const auto disk = root() / "small";
  fs::create_directories(disk);
  const auto folder = (disk / "one").string();
  std::string line;
  for (const auto& argument : eval({file, "--out", folder})) line += " '" + argument + "'";
  // A disk of its own in a mount namespace of its own: too small for the samples, then for the reports, then large.
  const auto keep = root() / "kept";
  fs::remove_all(keep);
  fs::create_directories(keep);
  const std::string script = "mount -t tmpfs -o size=40k tandem-small '" + disk.string() +
                             "' || exit 77\nfor size in 40k 140k 20m; do mount -o "
                             "remount,size=$size '" +
                             disk.string() + "'\n" + line + " > '" + keep.string() + "'/said-$size 2>&1\necho $? > '" +
                             keep.string() + "'/code-$size\nls -A '" + folder + "' > '" + keep.string() +
                             "'/files-$size\ndone\ncp '" + folder + "'/results.json '" + keep.string() + "'/\n";
  const int code = run_where_mounts_are_private(script, {"no_proxy=127.0.0.1"});
  if (code == 77) GTEST_SKIP() << "no tmpfs may be mounted here: " << text(output());
  ASSERT_EQ(code, 0) << text(output());
  for (const char* size : {"40k", "140k"}) {
    const auto said = text(keep / (std::string("said-") + size));
    EXPECT_EQ(text(keep / (std::string("code-") + size)), "1\n") << said;
    EXPECT_THAT(said, HasSubstr("No space left on device"));
    EXPECT_THAT(said, HasSubstr("make room there; the same command goes on"));
    const auto files = text(keep / (std::string("files-") + size));
    EXPECT_THAT(files, HasSubstr("episodes.jsonl"));
    for (const char* report : {"results.json", "junit.xml", "report", "history.jsonl", ".outcome"})
      EXPECT_THAT(files, testing::Not(HasSubstr(report))) << size;
  }
  EXPECT_EQ(text(keep / "code-20m"), "0\n") << text(keep / "said-20m");
  EXPECT_EQ(json(keep / "results.json").at("outcomes").at("completed"), 16);
  EXPECT_EQ(server.asked() > 16u, true) << "of some samples the answer could not be kept";
}

TEST_F(EvalFaults, the_evaluation_of_a_promotion_names_a_full_disk_and_changed_tasks_and_goes_on) {
  const auto file = suite(
      "tasks: {path: tasks}\nsamples: 1\nlimits: {max_new_tokens: 8, seconds: 60}\n"
      "gates: {min_pass_rate: 1}\n");
  const auto disk = root() / "small", keep = root() / "kept";
  fs::remove_all(keep);
  fs::create_directories(keep);
  fs::create_directories(disk);
  // The server is asked after the suite alone, which no model passes here: an answer lies in no file of the task.
  const std::string line = "'" TANDEM_BINARY "' promote '" + (root() / "model").string() +
                           "' --server http://127.0.0.1:9 --suite '" + file + "' --out '" + (disk / "p").string() + "'";
  const auto call = [&](const std::string& name) {
    return line + " > '" + keep.string() + "/said-" + name + "' 2>&1\necho $? > '" + keep.string() + "/code-" + name +
           "'\n";
  };
  const std::string task = "'" + (root() / "suite/tasks/t0.yaml").string() + "'";
  const std::string script = "mount -t tmpfs -o size=24k tandem-small '" + disk.string() + "' || exit 77\n" +
                             call("full") + "mount -o remount,size=20m '" + disk.string() + "'\ncp " + task + " '" +
                             keep.string() + "/t0'\nsed -i 's/value/worth/' " + task + "\n" + call("changed") + "cp '" +
                             keep.string() + "/t0' " + task + "\n" + call("on") + call("again");
  const int code = run_where_mounts_are_private(script, {"TANDEM_ADMIN_KEY=some-key"});
  if (code == 77) GTEST_SKIP() << "no tmpfs may be mounted here: " << text(output());
  ASSERT_EQ(code, 0) << text(output());
  EXPECT_EQ(text(keep / "code-full"), "1\n") << text(keep / "said-full");
  EXPECT_THAT(text(keep / "said-full"), HasSubstr("make room there; the same command goes on"));
  EXPECT_EQ(text(keep / "code-changed"), "2\n") << text(keep / "said-changed");
  EXPECT_THAT(text(keep / "said-changed"), HasSubstr("task t0 is another one than it was"));
  for (const char* name : {"on", "again"}) {
    EXPECT_EQ(text(keep / (std::string("code-") + name)), "4\n") << text(keep / (std::string("said-") + name));
    EXPECT_THAT(text(keep / (std::string("said-") + name)), HasSubstr("refused: the suite says no"));
  }
}

TEST_F(EvalFaults, what_it_cannot_be_compared_with_is_named_before_anything_is_asked) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  const size_t asked = server.asked();
  const auto refused = [&](const std::string& why) {
    EXPECT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string()}), 2);
    EXPECT_THAT(text(output()), HasSubstr(why));
    EXPECT_FALSE(fs::exists(night("two")));
    EXPECT_EQ(server.asked(), asked);
  };
  std::ofstream(nights() / "blessed.json") << R"({"night":"gone","blessed":1})";
  refused("gone: has no results.json");
  std::ofstream(nights() / "blessed.json") << R"({"night":)";
  refused("blessed.json");
  fs::remove(nights() / "blessed.json");
  for (int i = 0; i < kTasks; ++i) {
    const auto task = root() / "suite/tasks" / ("t" + std::to_string(i) + ".yaml");
    std::ofstream(task) << "instruction: Say what the value of number " << i << " is.\ncheck:\n  answer: \""
                        << i * 11 + 100 << "\"\n";
  }
  refused("has none of these 8 tasks as they are now");
}

TEST_F(EvalFaults, tasks_that_changed_between_nights_are_named_and_the_others_compared) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  fs::remove(root() / "suite/tasks/t7.yaml");
  for (const char* name : {"t1", "t9"}) {
    std::ofstream(root() / "suite/tasks" / (std::string(name) + ".yaml"))
        << "instruction: Say what the value of number 1 is.\ncheck:\n  answer: \"111\"\n";
  }
  EXPECT_EQ(run_eval({file, "--out", night("one").string()}), 2);
  EXPECT_THAT(text(output()), HasSubstr("holds another evaluation: task t1 is another one than it was"));
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string()}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("6 tasks were compared; not compared: t1 was changed, t9 is new, t7 is gone"));
  const Json against = json(night("two") / "results.json").at("against");
  EXPECT_EQ(against.at("tasks"), 6);
  EXPECT_EQ(against.at("not_compared").size(), 3u);
  EXPECT_THAT(text(night("two") / "report.md"), HasSubstr("6 tasks were compared. Not compared: t1 was changed"));
}

TEST_F(EvalFaults, a_model_that_is_half_written_is_named_and_leaves_no_folder_behind) {
  const auto half = root() / "suite/half";
  fs::copy(root() / "model", half, fs::copy_options::recursive);
  fs::resize_file(half / "model.safetensors", fs::file_size(half / "model.safetensors") / 2);
  const auto file = suite("model: half\ntasks: {path: tasks, limit: 1}\n");
  EXPECT_NE(run_eval({file, "--out", night("one").string()}), 0);
  EXPECT_THAT(text(output()), HasSubstr("model.safetensors"));
  EXPECT_FALSE(fs::exists(night("one")));
}

TEST_F(EvalFaults, answers_that_are_none_are_failures_of_the_server_and_no_verdict) {
  AnsweringServer server;
  const auto file = suite_of(server);
  const std::vector<std::pair<std::string, std::string>> answers = {
      {"text/html", "<html>log in</html>"},
      {"application/json", R"({"choices":[{"message":{"role":"assi)"},
      {"text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":\"10\"}}]}\n\n"},  // half a stream
  };
  // As parts, so that each has samples that were not asked for yet, all at once.
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<std::unique_ptr<AnsweringServer>> servers;
  for (size_t i = 0; i < answers.size(); ++i) {
    servers.push_back(std::make_unique<AnsweringServer>());
    servers[i]->talk_nonsense(answers[i].first, answers[i].second);
    processes.push_back(std::make_unique<Process>(
        eval({file, "--out", night(std::to_string(i)).string(), "tasks.limit=1", "samples=1",
              "endpoint.url=" + servers[i]->url()}),
        root() / ("said-" + std::to_string(i)), std::vector<std::string>{"no_proxy=127.0.0.1"}));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(processes[i]->wait(120s), 5) << answers[i].second << text(root() / ("said-" + std::to_string(i)));
    const Json results = json(night(std::to_string(i)) / "results.json");
    ASSERT_TRUE(results.contains("outcomes"));
    EXPECT_EQ(results.at("outcomes").at("infra_error"), 1) << answers[i].second;
    EXPECT_TRUE(results.at("pass_rate").is_null());
    EXPECT_EQ(results.at("tasks")[0].at("samples")[0].at("attempt"), 3);
    // The same command goes on once there are answers.
    servers[i]->talk_nonsense("", "");
    EXPECT_EQ(run_eval({file, "--out", night(std::to_string(i)).string(), "tasks.limit=1", "samples=1",
                        "endpoint.url=" + servers[i]->url()}),
              0)
        << text(output());
    EXPECT_EQ(json(night(std::to_string(i)) / "results.json").at("pass_rate"), 1.0);
  }
}

TEST_F(EvalFaults, a_server_that_says_another_model_has_answered_is_named) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.call_itself("another");
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=2"}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("the server says that another answered 4 samples, and good was asked for"));
  EXPECT_THAT(text(night("one") / "report.md"), HasSubstr("another answered 4 samples"));
  EXPECT_EQ(json(night("one") / "results.json").at("tasks")[0].at("samples")[0].at("answered_as"), "another");
  server.call_itself("good-2026-01-01");
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "tasks.limit=2"}), 0) << text(output());
  EXPECT_THAT(text(output()), testing::Not(HasSubstr("was asked for")));
}

TEST_F(EvalFaults, where_one_server_is_gone_the_next_one_is_asked) {
  AnsweringServer server;
  std::string gone;
  {
    const AnsweringServer other;
    gone = other.url();
  }
  const auto file = suite("endpoint:\n  url: " + gone + "\n  model: good\n  fallbacks: [\"" + server.url() +
                          "\"]\ntasks: {path: tasks, limit: 2}\nsamples: 1\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(json(night("one") / "results.json").at("pass_rate"), 1.0);
}

TEST_F(EvalFaults, a_dead_endpoint_is_given_up_and_every_sample_says_why) {
  std::string url;
  {
    const AnsweringServer gone;
    url = gone.url();
  }
  const auto file = suite("endpoint: {url: " + url + "}\ntasks: {path: tasks}\nsamples: 1\n");
  Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
  EXPECT_EQ(process.wait(90s), 5) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), kTasks);
  for (const Json& task : results.at("tasks")) {
    EXPECT_TRUE(task.at("samples")[0].at("passed").is_null());
    EXPECT_THAT(task.at("samples")[0].at("why").get<std::string>(), HasSubstr("127.0.0.1"));
  }
}

}  // namespace
}  // namespace tandem
