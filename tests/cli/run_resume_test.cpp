// Going on with a run: more steps, other values, and runs of the program before this one.
#include "base/record_log.h"
#include "rollout/books/ledger_log.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunResume : public RunTest {
 protected:
  static std::string said() { return text(output()); }
};

TEST_F(RunResume, more_steps_extend_a_run_that_is_done_and_held_out_tasks_are_measured_again) {
  const fs::path run_dir = root() / "longer";
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=4"}, run_dir), 0) << said();
  const Json first = json(run_dir / "summary.json");
  ASSERT_EQ(run({}, run_dir, true), 0) << said();
  EXPECT_NE(said().find("is done already"), std::string::npos) << said();

  ASSERT_EQ(run({"run.steps=4"}, run_dir, true), 0) << said();
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  const Json summary = json(run_dir / "summary.json");
  EXPECT_EQ(summary["steps"], 4);
  EXPECT_EQ(summary["heldout"]["before"], first["heldout"]["before"]);
  EXPECT_EQ(summary["heldout"]["after"]["n_samples"], first["heldout"]["after"]["n_samples"]);
  for (const Json& episode : episodes(run_dir, false)) {
    EXPECT_EQ(episode["phase"] == "train", episode["split"] == "train") << episode;
    if (episode["split"] != "train") {
      EXPECT_EQ(episode["dropped"], "heldout") << episode;
    }
    if (episode["phase"] == "after") {
      EXPECT_EQ(episode["versions"], episode.contains("superseded") ? Json({2, 2}) : Json({4, 4})) << episode;
    }
  }
  // The log needs no config.
  fs::remove(run_dir / "config.resolved.json");
  EXPECT_EQ(episodes(run_dir, false).size(), summary["episodes"]["admitted"].get<size_t>());
}

// Where the supervisor was killed between the last step and its own end.
TEST_F(RunResume, what_a_run_that_is_done_has_left_is_removed) {
  const fs::path run_dir = root() / "left";
  ASSERT_EQ(run({"run.steps=1", "tasks.heldout=0"}, run_dir), 0) << said();
  const fs::path sockets = run::RunLayout::open(run_dir)->socket_folder();
  fs::create_directories(sockets);
  ASSERT_TRUE(write_file(sockets / "wiring.json", "{}"));
  ASSERT_EQ(run({}, run_dir, true), 0) << said();
  EXPECT_NE(said().find("is done already"), std::string::npos) << said();
  EXPECT_NE(said().find("swept: removed " + sockets.string()), std::string::npos) << said();
  expect_nothing_left(run_dir);
}

TEST_F(RunResume, a_model_of_an_earlier_end_is_not_shown_as_that_of_a_run_that_was_interrupted) {
  const fs::path run_dir = root() / "export";
  ASSERT_EQ(run({"run.steps=1", "tasks.heldout=0"}, run_dir), 0) << said();
  const std::string shown = "trained model      " + (run_dir / "export").string();
  EXPECT_NE(said().find(shown), std::string::npos) << said();

  Process process(command({"run.steps=5000"}, run_dir, true), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 2)) << said();
  process.signal(SIGINT);
  ASSERT_EQ(process.wait(60s), 75) << said();
  EXPECT_EQ(said().find(shown), std::string::npos) << said();
  EXPECT_NE(said().find(" of 5000 steps; " + (run_dir / "export").string() + " is of an earlier end"),
            std::string::npos)
      << said();
}

TEST_F(RunResume, values_beside_it_are_taken_and_recorded_or_refused_by_name) {
  const fs::path run_dir = root() / "values";
  ASSERT_EQ(run({"run.steps=1", "tasks.heldout=0"}, run_dir), 0) << said();
  for (const char* value : {"trainer.group_size=4", "run.seed=7", "algorithm.advantage=grpo", "lora.rank=4",
                            "run.deterministic=true", "trainer.max_lag=3", "tasks.heldout=3"}) {
    EXPECT_EQ(run({"run.steps=2", value}, run_dir, true), 2) << value;
    const std::string key = std::string(value).substr(0, std::string_view(value).find('='));
    EXPECT_NE(said().find(key + " is "), std::string::npos) << said();
    EXPECT_NE(said().find("in this run and cannot become"), std::string::npos) << said();
  }
  EXPECT_EQ(run({"trainer.learning_rate=0.0002"}, run_dir, true), 2) << "the run is done: it would be ignored";
  EXPECT_NE(said().find("trainer.learning_rate cannot change"), std::string::npos) << said();

  // A step whose rewards are all equal trains nothing, and has no learning rate.
  ASSERT_EQ(run({"run.steps=6", "trainer.learning_rate=0.0002"}, run_dir, true), 0) << said();
  EXPECT_NE(said().find("trainer.learning_rate: 0.0003 -> 0.0002"), std::string::npos) << said();
  const auto ledger = rollout::read_books(
      run_dir, []() -> Result<rollout::RunPlan> { return fail(Status::internal("the log says it")); });
  ASSERT_TRUE(ledger) << ledger.error().to_string();
  EXPECT_EQ(ledger->config()["trainer.learning_rate"], 0.0002);
  EXPECT_EQ(ledger->plan().steps, 6);
  EXPECT_NE(text(run_dir / "metrics.jsonl").find("\"learning_rate\":0.0002"), std::string::npos)
      << text(run_dir / "metrics.jsonl");
  EXPECT_EQ(run({"run.steps=1"}, run_dir, true), 2);
  EXPECT_NE(said().find("a run can only be made longer"), std::string::npos) << said();
}

TEST_F(RunResume, a_run_of_the_program_before_is_listed_read_and_shown_and_a_newer_one_is_refused) {
  const fs::path run_dir = root() / "before";
  fs::copy(TANDEM_SOURCE_DIR "/tests/golden/run_before", run_dir, fs::copy_options::recursive);
  const auto all = episodes(run_dir, true);
  ASSERT_EQ(all.size(), 120u);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const Json& e) { return !e["trained_step"].is_null(); }), 96);
  for (const Json& episode : all) EXPECT_FALSE(episode["tokens"].empty()) << episode["episode"];
  Json config = json(run_dir / "config.resolved.json");
  config["format"] = 9;
  ASSERT_TRUE(write_file(run_dir / "config.resolved.json", config.dump()).ok());
  EXPECT_EQ(tandem({"episodes", run_dir.string()}), 2);
  EXPECT_NE(said().find("is of format 9"), std::string::npos) << said();
}

// A copy of tests/golden/run_before in a folder of its own, with the model that its config makes, and without
// checkpoints, whose weights the golden run lacks.
class RunOfBefore : public RunResume {
 protected:
  void SetUp() override {
    fs::remove_all(run_dir_);
    fs::create_directories(run_dir_.parent_path());
    fs::copy(TANDEM_SOURCE_DIR "/tests/golden/run_before", run_dir_, fs::copy_options::recursive);
    fs::create_directory_symlink(fs::absolute(root() / "model"), run_dir_ / "model");
  }
  void TearDown() override { fs::remove_all(run_dir_.parent_path()); }
  int resume(const Arguments& overrides) const {
    Arguments arguments = {"run", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--run-dir", run_dir_.string(), "--resume"};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return tandem(arguments);
  }
  const fs::path run_dir_ = root() / "golden" / "before";
};

TEST_F(RunOfBefore, is_listed) {
  ASSERT_EQ(tandem({"runs", run_dir_.parent_path().string(), "--json"}), 0) << said();
  const auto entry = parse_json(said());
  ASSERT_TRUE(entry) << said();
  EXPECT_EQ((*entry)["state"], "done");
  EXPECT_EQ((*entry)["step"], 3);
  EXPECT_EQ((*entry)["heldout"]["pass_rate"], json(run_dir_ / "summary.json")["heldout"]["after"]["pass_rate"]);
  EXPECT_EQ((*entry)["problem"], Json());
}

TEST_F(RunOfBefore, is_viewed) {
  ASSERT_EQ(tandem({"view", run_dir_.string(), "--json"}), 0) << said();
  const auto viewed = parse_json(said());
  ASSERT_TRUE(viewed) << said();
  EXPECT_EQ((*viewed)["running"], false);
  EXPECT_NE(text(viewed->at("report").get<std::string>()).find("regex_script"), std::string::npos) << "a baseline";
}

TEST_F(RunOfBefore, is_resumed_where_it_is_done_and_then_is_of_this_format) {
  const Json before = json(run_dir_ / "summary.json");
  ASSERT_EQ(resume({"run.steps=3"}), 0) << said();  // the file says 30
  EXPECT_NE(said().find("is done already"), std::string::npos) << said();
  const Json summary = json(run_dir_ / "summary.json");
  EXPECT_EQ(summary["format"], 1);
  for (const char* key : {"steps", "heldout", "episodes", "tokens"}) EXPECT_EQ(summary[key], before[key]) << key;
}

TEST_F(RunOfBefore, is_resumed_with_more_steps) {
  // Two formats of checkpoints lie between.
  EXPECT_NE(resume({"run.steps=5"}), 0);
  EXPECT_NE(said().find("step_3/learner.json: is of format 1; this program reads formats 2 to 3"), std::string::npos)
      << said();
  EXPECT_EQ(json(run_dir_ / "failure.json")["format"], 1);
  fs::remove_all(run_dir_ / "checkpoints");
  // Its steps are trained again, by the batches in the log; what the first command line said stays.
  ASSERT_EQ(resume({}), 0) << said();
  const Json summary = json(run_dir_ / "summary.json");
  EXPECT_EQ(summary["steps"], 5);
  EXPECT_EQ(summary["episodes"]["in_flight"], 0);
  EXPECT_EQ(summary["heldout"]["after"]["n_tasks"], 4);
  for (const char* name : {"status.json", "supervisor.json", "summary.json"})
    EXPECT_EQ(json(run_dir_ / name)["format"], 1) << name;
}

TEST_F(RunOfBefore, is_refused_where_a_file_is_of_a_later_format) {
  for (const char* name : {"status.json", "supervisor.json", "floors.json", "failures.json", "tasks.json"}) {
    const std::string before = text(run_dir_ / name);
    Json later = json(run_dir_ / name);
    later["format"] = 9;
    ASSERT_TRUE(write_file(run_dir_ / name, later.dump()).ok());
    EXPECT_EQ(resume({}), 2) << name;
    EXPECT_NE(said().find(std::string(name) + ": is of format 9; this program reads format"), std::string::npos)
        << said();
    if (std::string_view(name) != "tasks.json") {
      EXPECT_EQ(tandem({"view", run_dir_.string(), "--json"}), 2) << name;
      EXPECT_NE(said().find("is of format 9"), std::string::npos) << said();
    }
    if (before.empty())
      fs::remove(run_dir_ / name);
    else
      ASSERT_TRUE(write_file(run_dir_ / name, before).ok());
  }
  Json summary = json(run_dir_ / "summary.json");
  summary["format"] = 9;
  ASSERT_TRUE(write_file(run_dir_ / "summary.json", summary.dump()).ok());
  ASSERT_EQ(tandem({"runs", run_dir_.parent_path().string(), "--json"}), 0) << said();
  EXPECT_NE(said().find("summary.json: is of format 9"), std::string::npos) << said();
}

}  // namespace
}  // namespace tandem
