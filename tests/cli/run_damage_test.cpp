// Bytes that are not what was written: on the wire, in the logs, in checkpoints.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "tests/cli/corrupting_proxy.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

void flip_byte(const fs::path& path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  ASSERT_TRUE(file.good());
}

struct Record {
  uint64_t offset = 0, end = 0;
  std::string bytes;
};

// The records of a log, read by its published layout.
std::vector<Record> records_of(const fs::path& path) {
  const std::string all = text(path);
  std::vector<Record> records;
  for (uint64_t at = 8; at + 12 <= all.size();) {
    uint32_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    records.push_back({at, at + 12 + length, all.substr(at + 12, length)});
    at = records.back().end;
  }
  return records;
}

class RunDamage : public RunTest {
 protected:
  static Arguments settings(int checkpoint_every) {
    return {"run.steps=24", "tasks.heldout=0", "trainer.checkpoint_every=" + std::to_string(checkpoint_every)};
  }
  // A run that was killed after it had trained `step` steps and saved what is kept of them.
  static fs::path killed_run(const std::string& name, int checkpoint_every, int step) {
    const fs::path run_dir = root() / name;
    Process process(command(settings(checkpoint_every), run_dir), output());
    EXPECT_TRUE(has_trained(process, run_dir, step)) << text(output());
    const auto saved = [&] {
      std::error_code error;
      const auto is_whole = [](const auto& entry) { return entry.path().filename().string().starts_with("step_"); };
      return std::count_if(fs::directory_iterator(run_dir / "checkpoints", error), fs::directory_iterator(),
                           is_whole) >= std::min(2, step / checkpoint_every);
    };
    EXPECT_TRUE(within(60s, saved)) << text(output());
    process.signal(SIGKILL);
    process.wait();
    return run_dir;
  }
  static fs::path ledger(const fs::path& run_dir) { return run_dir / "ledger" / "events.log"; }
  static fs::path trajectories(const fs::path& run_dir) { return run_dir / "trajectories" / "episodes.log"; }
};

// As where trainer and coordinator are killed after a step is in the ledger and before its line is written.
TEST_F(RunDamage, a_step_whose_line_of_metrics_was_lost_gets_one) {
  const fs::path run_dir = killed_run("lineless", 3, 4);
  const std::string lines = text(run_dir / "metrics.jsonl");
  ASSERT_TRUE(write_file(run_dir / "metrics.jsonl", lines.substr(0, lines.rfind('\n', lines.size() - 2) + 8)));
  ASSERT_EQ(run(settings(3), run_dir, true), 0) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
}

// Between trainer and rollout, in a run that is on: chunks of weights one way, trajectories the other.
TEST_F(RunDamage, bytes_flipped_on_the_wire_are_refused_named_and_sent_again) {
  const fs::path run_dir = root() / "wire";
  Process process(command({"run.steps=5000", "tasks.heldout=0", "rollout.workers=1"}, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  {
    // Header and control frames are small; of what is larger all is bulk.
    CorruptingProxy proxy(run::RunLayout::open(run_dir)->address({wire::Role::kTrainer, 0}).path(),
                          {.smallest = 100'000, .count = 4}, {.smallest = 400, .count = 4});
    const pid_t direct = pid_of(run_dir, "rollout");
    ASSERT_GT(direct, 0);
    ASSERT_TRUE(signal(run_dir, direct, SIGKILL));  // its next life connects to the proxy
    ASSERT_TRUE(within(120s, [&] {
      return (proxy.left_from_role() == 0 && proxy.left_to_role() == 0) || !process.running();
    })) << text(output());
    ASSERT_TRUE(has_trained(process, run_dir, step_of(run_dir) + 4)) << text(output());
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
    EXPECT_EQ(proxy.left_from_role(), 0);
    EXPECT_EQ(proxy.left_to_role(), 0);
  }
  const std::string said = logs(run_dir);
  size_t refused = 0;
  for (size_t at = 0; (at = said.find("was damaged on its way, and is refused", at)) != std::string::npos; ++at)
    ++refused;
  EXPECT_EQ(refused, 8u);
  EXPECT_NE(said.find("a message from rollout-0 was damaged"), std::string::npos);
  const Json last = json(run_dir / "supervisor.json")["last_report"]["roles"]["rollout-0"]["metrics"];
  EXPECT_EQ(last["refused_messages"], 4) << last;
  // Nothing was sampled from what came damaged: the trainer computes the same for every token.
  expect_books_to_agree(run_dir);
  expect_same_logprobs(run_dir);
}

TEST_F(RunDamage, a_ledger_whose_end_is_torn_is_cut_there_and_the_run_goes_on) {
  const fs::path run_dir = killed_run("torn-ledger", 2, 3);
  fs::resize_file(ledger(run_dir), records_of(ledger(run_dir)).back().end - 5);
  ASSERT_EQ(run(settings(2), run_dir, true), 0) << text(output());
  EXPECT_NE((text(output()) + logs(run_dir)).find("events.log: the last "), std::string::npos) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
}

TEST_F(RunDamage, a_ledger_that_is_damaged_inside_is_refused_with_the_place_and_left_as_it_is) {
  const fs::path run_dir = killed_run("damaged-ledger", 2, 2);
  const auto records = records_of(ledger(run_dir));
  const Record& middle = records[records.size() / 2];
  flip_byte(ledger(run_dir), middle.offset + 20);
  const std::string before = text(ledger(run_dir));
  const std::string place = "events.log: record " + std::to_string(records.size() / 2) + " at byte " +
                            std::to_string(middle.offset) + " is damaged";
  EXPECT_EQ(run(settings(2), run_dir, true), 1);
  EXPECT_NE(text(output()).find(place), std::string::npos) << text(output());
  EXPECT_EQ(tandem({"episodes", run_dir.string()}), 1);
  EXPECT_NE(text(output()).find(place), std::string::npos) << text(output());
  EXPECT_TRUE(text(ledger(run_dir)) == before);
}

TEST_F(RunDamage, a_ledger_that_lost_steps_of_which_there_is_a_checkpoint_is_refused) {
  const fs::path run_dir = killed_run("short-ledger", 2, 5);
  // Cut at a record's end, long before the first batch: no digest can tell.
  fs::resize_file(ledger(run_dir), records_of(ledger(run_dir))[2].end);
  EXPECT_EQ(run(settings(2), run_dir, true), 1);
  EXPECT_NE(text(output()).find("events.log: the log ends before step "), std::string::npos) << text(output());
  expect_nothing_left(run_dir);
}

TEST_F(RunDamage, what_a_log_has_lost_is_said_by_whoever_reads_it) {
  const fs::path run_dir = root() / "cut-ledger";
  {
    Process process(command({"run.steps=5000", "tasks.heldout=0", "trainer.checkpoint_every=2"}, run_dir), output());
    ASSERT_TRUE(within(60s, [&] { return json(run_dir / "status.json").value("step", 0) >= 5; })) << text(output());
    process.signal(SIGKILL);
    process.wait();
  }
  const auto records = records_of(ledger(run_dir));
  const auto said_by = [&](const Arguments& arguments) {
    EXPECT_EQ(tandem(arguments), 0) << text(output());
    std::string said;
    const std::string all = text(output());
    for (const auto line : split(all, '\n')) {
      if (line.starts_with("tandem ")) said += std::string(line) + "\n";
    }
    return said;
  };
  const Arguments readers[] = {{"episodes", run_dir.string()}, {"view", run_dir.string(), "--once"}};
  for (const auto& reader : readers) EXPECT_EQ(said_by(reader), "") << "nothing is missing";

  fs::resize_file(ledger(run_dir), records.back().end - 5);
  const std::string torn = std::to_string(records.back().end - records.back().offset - 5);
  for (const auto& reader : readers)
    EXPECT_NE(said_by(reader).find("events.log: the last " + torn + " bytes are no whole record"), std::string::npos);

  fs::resize_file(ledger(run_dir), records[3].end);
  for (const auto& reader : readers) {
    const std::string said = said_by(reader);
    EXPECT_NE(said.find("events.log ends after step 0, and "), std::string::npos) << said;
    EXPECT_NE(said.find(" are missing here"), std::string::npos) << said;
  }
  EXPECT_NE(text(run_dir / "report.html").find("ends after step 0"), std::string::npos);
}

TEST_F(RunDamage, a_pipe_in_the_place_of_any_file_of_a_run_is_named_and_waited_for_by_nobody) {
  const fs::path run_dir = killed_run("pipes", 2, 2);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(run_dir)) {
    // The record of who has the run is another one with each command.
    if (entry.is_regular_file() && entry.path().filename() != "lock.json") files.push_back(entry.path());
  }
  ASSERT_GT(files.size(), 8u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    const fs::path kept = root() / "kept";
    fs::rename(file, kept);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_EQ(Process(command(settings(2), run_dir, true), output()).wait(60s), 2) << text(output());
    EXPECT_NE(text(output()).find(file.string() + ": is neither a file nor a folder"), std::string::npos)
        << text(output());
    for (Arguments arguments : {Arguments{"episodes"}, Arguments{"view", "--once"}}) {
      const std::string command = arguments.front();
      arguments.insert(arguments.begin(), TANDEM_BINARY);
      arguments.push_back(run_dir.string());
      const int code = Process(arguments, output()).wait(60s);
      EXPECT_NE(code, Process::kTooLong) << command;
      // It is not needed, or it is named.
      EXPECT_TRUE(code == 0 || text(output()).find(file.string() + ": is not a regular file") != std::string::npos)
          << command << ": " << text(output());
    }
    fs::rename(kept, file);
  }
}

TEST_F(RunDamage, a_trajectory_that_is_damaged_costs_its_episode_and_no_other) {
  // Without a checkpoint all steps are trained again, from the trajectories.
  const fs::path run_dir = killed_run("damaged-trajectory", 100, 3);
  std::map<uint64_t, uint64_t> trained;  // episode to step
  for (const Json& episode : episodes(run_dir)) {
    if (episode["trained_step"].is_number())
      trained[episode["episode"].get<uint64_t>()] = episode["trained_step"].get<uint64_t>();
  }
  ASSERT_FALSE(trained.empty());
  uint64_t hit = 0, place = 0;
  for (const Record& record : records_of(trajectories(run_dir))) {
    const auto head = parse_json(std::string_view(record.bytes).substr(0, record.bytes.find('\n')));
    ASSERT_TRUE(head.has_value());
    hit = head->value("episode", uint64_t{0});
    place = record.offset;
    if (!trained.contains(hit)) continue;
    flip_byte(trajectories(run_dir), (record.offset + record.end) / 2);
    break;
  }
  ASSERT_EQ(run(settings(100), run_dir, true), 0) << text(output());
  EXPECT_NE(logs(run_dir).find("episodes.log: the trajectory at byte " + std::to_string(place) + " is damaged"),
            std::string::npos);
  EXPECT_EQ(json(run_dir / "summary.json")["episodes"]["dropped"].value("trajectory_lost", 0), 1);
  for (const Json& episode : episodes(run_dir)) {
    EXPECT_EQ(episode["dropped"] == "trajectory_lost", episode["episode"] == hit) << episode["episode"];
  }
  expect_books_to_agree(run_dir, true);
}

TEST_F(RunDamage, trajectories_that_are_cut_short_cost_their_episodes_and_no_other) {
  const fs::path run_dir = killed_run("cut-trajectories", 100, 3);
  const auto records = records_of(trajectories(run_dir));
  fs::resize_file(trajectories(run_dir), records[records.size() / 2].end + 7);
  ASSERT_EQ(run(settings(100), run_dir, true), 0) << text(output());
  EXPECT_NE(logs(run_dir).find("episodes.log: the last 7 bytes were torn off"), std::string::npos);
  EXPECT_GT(json(run_dir / "summary.json")["episodes"]["dropped"].value("trajectory_lost", 0), 0);
  expect_books_to_agree(run_dir, true);
}

TEST_F(RunDamage, a_checkpoint_that_is_damaged_is_named_and_the_one_before_is_taken) {
  const fs::path run_dir = killed_run("damaged-checkpoint", 1, 4);
  std::map<int, fs::path> checkpoints;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step_")) checkpoints[std::atoi(name.c_str() + 5)] = entry.path();
  }
  // The kill may have come when the newest was there and the oldest not yet gone.
  for (; checkpoints.size() > 2; checkpoints.erase(checkpoints.begin())) fs::remove_all(checkpoints.begin()->second);
  ASSERT_EQ(checkpoints.size(), 2u);
  const auto damage = [](const fs::path& folder) {
    fs::path largest;
    for (const auto& file : fs::recursive_directory_iterator(folder)) {
      if (file.is_regular_file() && (largest.empty() || file.file_size() > fs::file_size(largest))) largest = file;
    }
    return largest;
  };
  const fs::path newest = damage(checkpoints.rbegin()->second), older = damage(checkpoints.begin()->second);
  // Both damaged, each in its way: the run ends and says which.
  const std::string whole = text(older);
  fs::resize_file(newest, fs::file_size(newest) / 2);
  flip_byte(older, fs::file_size(older) / 2);
  EXPECT_EQ(run(settings(1), run_dir, true), 1);
  EXPECT_NE(text(output()).find("trainer-0 cannot work with what lies in the run directory"), std::string::npos)
      << text(output());
  EXPECT_NE(text(output()).find(checkpoints.begin()->second.filename().string()), std::string::npos) << text(output());
  expect_nothing_left(run_dir);
  // One of them mended: the run goes on from there.
  ASSERT_TRUE(write_file(older, whole));
  ASSERT_EQ(run(settings(1), run_dir, true), 0) << text(output());
  EXPECT_NE(logs(run_dir).find("going on from " + checkpoints.begin()->second.string()), std::string::npos);
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
}

}  // namespace
}  // namespace tandem
