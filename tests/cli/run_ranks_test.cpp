// A trainer of several ranks: the same model whatever their number and whoever of them dies on the way.
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunRanks : public RunTest {
 protected:
  static Arguments of_ranks(int ranks, int steps) {
    return {"run.deterministic=true",
            "run.seed=3",
            "tasks.heldout=0",
            "trainer.max_lag=0",
            "run.silence_seconds=4",
            "trainer.checkpoint_every=3",
            "trainer.ranks=" + std::to_string(ranks),
            "run.steps=" + std::to_string(steps)};
  }
  // What one rank ends with.
  static Digest expected(int steps) {
    const fs::path run_dir = root() / ("one-rank-" + std::to_string(steps));
    EXPECT_EQ(run(of_ranks(1, steps), run_dir), 0) << text(output());
    return export_digest(run_dir);
  }
  static std::string all_said(const fs::path& run_dir) { return text(output()) + logs(run_dir); }
  static int times_said(const fs::path& run_dir, const std::string& words) {
    const std::string said = all_said(run_dir);
    int times = 0;
    for (size_t at = 0; (at = said.find(words, at)) != std::string::npos; at += words.size()) ++times;
    return times;
  }

  // The process that a rank joined with last, as soon as it has joined: status.json says it a second later.
  static pid_t joined(const fs::path& run_dir, int rank) {
    const std::string said = logs(run_dir), words = "trainer-" + std::to_string(rank) + " joined (pid ";
    const size_t at = said.rfind(words);
    return at == std::string::npos ? 0 : std::atoi(said.c_str() + at + words.size());
  }

  // Signals a rank once the run has come to a step, and waits until `words` were said of it and the ranks have met
  // again: ranks that have not would make nothing of a second signal. The first rank always begins anew, and joins
  // when all have met.
  static void disturb(Process& process, const fs::path& run_dir, int step, int rank, int how,
                      const std::string& words) {
    SCOPED_TRACE("rank " + std::to_string(rank) + " in step " + std::to_string(step));
    ASSERT_TRUE(has_trained(process, run_dir, step)) << text(output());
    const pid_t first = joined(run_dir, 0);
    const int before = times_said(run_dir, words);
    ASSERT_TRUE(signal(run_dir, joined(run_dir, rank), how)) << all_said(run_dir);
    ASSERT_TRUE(within(60s, [&] { return joined(run_dir, 0) != first && times_said(run_dir, words) > before; }))
        << "not said: " << words << "\n"
        << all_said(run_dir);
  }
};

// So many steps that a fast machine is not done before the last signal.
TEST_F(RunRanks, that_die_or_stall_are_named_and_change_no_bit) {
  const int steps = 50;
  const fs::path run_dir = root() / "disturbed-ranks";
  Process process(command(of_ranks(2, steps), run_dir), output());
  ASSERT_NO_FATAL_FAILURE(disturb(process, run_dir, 2, 1, SIGKILL, "rank 1 is gone"));
  ASSERT_NO_FATAL_FAILURE(disturb(process, run_dir, 9, 0, SIGKILL, "rank 0 is gone; beginning again with"));
  ASSERT_NO_FATAL_FAILURE(disturb(process, run_dir, 18, 1, SIGSTOP, "trainer-1 (pid "));
  ASSERT_EQ(process.wait(), 0) << text(output());
  EXPECT_GT(times_said(run_dir, "trainer-1 was ended by signal 9"), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), expected(steps));
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  expect_nothing_left(run_dir);
  const Json status = json(run_dir / "status.json");
  int trainers = 0;
  for (const Json& role : status["roles"]) trainers += role["name"] == "trainer" ? 1 : 0;
  EXPECT_EQ(trainers, 2);
}

TEST_F(RunRanks, may_be_others_in_number_when_an_interrupted_run_goes_on) {
  const fs::path run_dir = root() / "other-ranks";
  int steps = 30;
  {
    Process process(command(of_ranks(4, steps), run_dir), output());
    ASSERT_TRUE(has_trained(process, run_dir, 4)) << text(output());
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
  }
  {
    const int reached = step_of(run_dir);
    steps = reached + 30;
    Process process(command({"trainer.ranks=1", "run.steps=" + std::to_string(steps)}, run_dir, true), output());
    ASSERT_TRUE(has_trained(process, run_dir, reached + 3)) << text(output());
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
  }
  ASSERT_EQ(run({"trainer.ranks=8"}, run_dir, true), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), expected(steps));
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RunRanks, that_cannot_be_are_refused_by_name) {
  const auto refused = [](const Arguments& overrides, const char* words) {
    const fs::path run_dir = root() / "refused-ranks";
    EXPECT_EQ(run(overrides, run_dir), 2);
    EXPECT_NE(text(output()).find(words), std::string::npos) << text(output());
  };
  refused({"trainer.ranks=3"}, "trainer.ranks must be a power of two");
  refused({"trainer.ranks=16"}, "at most trainer.slots (8)");
  refused({"trainer.ranks=2", "trainer.parallel.tensor=2"}, "trainer.parallel.tensor is 2: not built yet");
  refused({"trainer.parallel.context=2"}, "trainer.parallel.context is 2: not built yet");
  refused({"trainer.ranks=4", "trainer.parallel.data=2"}, "trainer.parallel.data is 2, and trainer.ranks 4");
  refused({"trainer.parallel.data=2"}, "trainer.parallel.data is 2, and trainer.ranks 1");
}

}  // namespace
}  // namespace tandem
