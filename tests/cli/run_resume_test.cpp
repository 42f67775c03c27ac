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

}  // namespace
}  // namespace tandem
