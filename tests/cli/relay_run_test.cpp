// Runs whose rollouts get new weights from relays: the same bits, the trainer sends less, and where a relay is killed
// the run goes on.
#include <gmock/gmock.h>

#include <sstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RelayRun : public RunTest {
 protected:
  static Arguments with(const Arguments& more) {
    Arguments all = {"run.deterministic=true", "run.steps=20",      "tasks.heldout=0",
                     "trainer.max_lag=0",      "rollout.workers=3", kWithSignal};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The last line of metrics.jsonl.
  static Json last_line(const fs::path& run_dir) {
    std::istringstream lines(text(run_dir / "metrics.jsonl"));
    std::string line, last = "{}";
    while (std::getline(lines, line)) last = line;
    return parse_json(last).value_or(Json::object());
  }
  static uint64_t sent_by_trainer(const fs::path& run_dir) {
    return last_line(run_dir)["trainer"]["sent_bytes"].get<uint64_t>();
  }
  // The run without relays.
  struct Plain {
    Digest exported;
    uint64_t sent = 0;
  };
  static const Plain& plain() {
    static const Plain made = [] {
      const fs::path run_dir = root() / "relay-none";
      EXPECT_EQ(run(with({}), run_dir), 0) << text(output());
      return Plain{.exported = export_digest(run_dir), .sent = sent_by_trainer(run_dir)};
    }();
    return made;
  }
};

TEST_F(RelayRun, rollouts_below_a_chain_of_relays_get_the_same_bits_and_the_trainer_sends_them_once) {
  const fs::path run_dir = root() / "relay-chain";
  ASSERT_EQ(run(with({"run.relays=2", "run.relay_fanout=1"}), run_dir), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), plain().exported);
  const Json line = last_line(run_dir);
  EXPECT_LT(sent_by_trainer(run_dir), plain().sent);
  for (const char* relay : {"relay-0", "relay-1"}) {
    const Json& counts = line["roles"][relay];
    EXPECT_GT(counts.value("version", 0), 0) << line;
    EXPECT_GT(counts.value("sent_bytes", 0), 0) << line;
    EXPECT_EQ(counts["refused_chunks"], 0) << line;
    EXPECT_EQ(counts["refused_versions"], 0) << line;
  }
  for (const char* below : {"relay-1", "rollout-0", "rollout-1", "rollout-2"})
    EXPECT_EQ(line["roles"][below]["relay_failures"], 0) << below << "\n" << logs(run_dir);
  expect_same_logprobs(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RelayRun, a_relay_that_is_killed_is_started_again_and_the_run_ends_with_the_same_bits) {
  const fs::path run_dir = root() / "relay-killed";
  Process process(command(with({"run.relays=2", "run.relay_seconds=1"}), run_dir), output());
  pid_t relay = 0;
  ASSERT_TRUE(within(240s, [&] {
    relay = step_of(run_dir) >= 1 ? pid_of(run_dir, "relay", 0) : 0;
    return relay > 0 || !process.running();
  })) << text(output());
  ASSERT_TRUE(signal(run_dir, relay, SIGKILL)) << text(output());
  ASSERT_EQ(process.wait(), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), plain().exported);
  EXPECT_NE(logs(run_dir).find("relay-0 was ended by signal 9; starting it again"), std::string::npos);
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  expect_same_logprobs(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RelayRun, relays_beside_a_store_are_refused_and_ones_without_a_rollout_are_warned_of) {
  const fs::path run_dir = root() / "relay-wrong";
  EXPECT_EQ(run(with({"run.relays=1", "trainer.weight_store=" + root().string()}), run_dir), 2);
  EXPECT_NE(text(output()).find("run.relays and trainer.weight_store exclude each other"), std::string::npos)
      << text(output());
  EXPECT_EQ(run(with({"run.relays=4", "--dry-run"}), run_dir), 0) << text(output());
  EXPECT_NE(text(output()).find("run.relays is 4, and rollout.workers is 3"), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find("relay (each)"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
