// A trainer of several ranks: the same model whatever their number and whoever of them dies on the way.
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunRanks : public RunTest {
 protected:
  static Arguments of_ranks(int ranks, const Arguments& more = {}) {
    Arguments all = {"run.deterministic=true", "run.seed=3",
                     "run.steps=60",           "tasks.heldout=0",
                     "trainer.max_lag=0",      "trainer.checkpoint_every=3",
                     "run.silence_seconds=2",  "trainer.ranks=" + std::to_string(ranks)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // What one rank ends with.
  static Digest expected() {
    static const Digest digest = [] {
      const fs::path run_dir = root() / "one-rank";
      EXPECT_EQ(run(of_ranks(1), run_dir), 0) << text(output());
      return export_digest(run_dir);
    }();
    return digest;
  }
  static void disturb(Process& process, const fs::path& run_dir, int step, int rank, int how) {
    SCOPED_TRACE("rank " + std::to_string(rank) + " in step " + std::to_string(step));
    ASSERT_TRUE(reaches_step(process, run_dir, step)) << text(output());
    ASSERT_TRUE(within(20s, [&] { return signal(run_dir, pid_of(run_dir, "trainer", rank), how); })) << text(output());
  }
};

TEST_F(RunRanks, that_die_or_stall_are_named_and_change_no_bit) {
  const fs::path run_dir = root() / "disturbed-ranks";
  Process process(command(of_ranks(2), run_dir), output());
  disturb(process, run_dir, 2, 1, SIGKILL);
  disturb(process, run_dir, 9, 0, SIGKILL);
  disturb(process, run_dir, 18, 1, SIGSTOP);
  ASSERT_EQ(process.wait(), 0) << text(output());
  const std::string said = text(output()), logged = logs(run_dir);
  EXPECT_EQ(export_digest(run_dir), expected());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  expect_nothing_left(run_dir);
  EXPECT_NE(said.find("trainer-1 was ended by signal 9"), std::string::npos) << said;
  EXPECT_NE(said.find("trainer-1 (pid "), std::string::npos) << said;  // that it has not answered
  EXPECT_NE(logged.find("rank 1 is gone"), std::string::npos) << "the first rank says who left";
  EXPECT_NE(logged.find("beginning again with those that come"), std::string::npos);
  const Json status = json(run_dir / "status.json");
  int trainers = 0;
  for (const Json& role : status["roles"]) trainers += role["name"] == "trainer" ? 1 : 0;
  EXPECT_EQ(trainers, 2);
}

TEST_F(RunRanks, may_be_others_in_number_when_an_interrupted_run_goes_on) {
  const fs::path run_dir = root() / "other-ranks";
  {
    Process process(command(of_ranks(4), run_dir), output());
    ASSERT_TRUE(reaches_step(process, run_dir, 4)) << text(output());
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
  }
  {
    const int reached = json(run_dir / "status.json")["step"].get<int>();
    Process process(command({"trainer.ranks=1"}, run_dir, true), output());
    ASSERT_TRUE(reaches_step(process, run_dir, reached + 3)) << text(output());
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
  }
  ASSERT_EQ(run({"trainer.ranks=8"}, run_dir, true), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), expected());
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
