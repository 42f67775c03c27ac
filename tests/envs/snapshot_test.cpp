// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <thread>

#include "base/random.h"
#include "envs/episodes/episode.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/file_tree.h"
#include "envs/sandbox/host_backend.h"
#include "envs/tasks/workspace/kinds.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

class Snapshots : public EitherSandbox {
 protected:
  // A fresh sandbox that begins with what the snapshot holds.
  std::unique_ptr<Sandbox> begin_from(const Snapshot& snapshot) {
    auto sandbox = backend_->create(spec_);
    EXPECT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    const Status status = restore(**sandbox, snapshot);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return std::move(*sandbox);
  }
  static std::string shell_of(Sandbox& sandbox, const std::string& command) {
    return sandbox.call("run_terminal_cmd", {{"command", command}})->output;
  }
};

FOR_BOTH_KINDS_OF_SANDBOXES(Snapshots);

TEST_P(Snapshots, a_branch_begins_with_all_that_the_other_held_and_goes_its_own_way) {
  const std::string tree = "find . /tmp -mindepth 1 -printf '%p %M %s %l %TY-%Tm-%Td %TH:%TM:%TS\\n' | sort; cat a/f";
  shell(
      "mkdir -p a/empty; printf 'one\\0two' > a/f; chmod 751 a/f; chmod 500 a/empty; ln -s f a/link; mkfifo p; "
      "echo t > /tmp/t; touch -d '2020-02-03 04:05:06.789' a/f a; cd a; export X=1");
  const auto before = shell("cd ..; " + tree);
  const auto snapshot = snapshot_of(*sandbox_);
  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().to_string();
  const auto first = begin_from(*snapshot), second = begin_from(*snapshot);
  EXPECT_EQ(shell_of(*first, tree), before);
  EXPECT_EQ(shell_of(*first, "pwd; echo $X"), "/workspace\n1\n");
  shell_of(*first, "echo first > a/f; rm /tmp/t; export X=2");
  EXPECT_EQ(shell_of(*second, "cat /tmp/t; echo $X; wc -c < a/f"), "t\n1\n7\n");
  EXPECT_EQ(shell(tree), before);
}

TEST_P(Snapshots, a_snapshot_outlives_its_sandbox_and_begins_again_at_any_turn) {
  std::vector<Snapshot> turns;
  for (int turn = 0; turn < 3; ++turn) {
    shell("echo " + std::to_string(turn) + " >> log");
    turns.push_back(*snapshot_of(*sandbox_));
  }
  sandbox_.reset();
  EXPECT_EQ(shell_of(*begin_from(turns[1]), "cat log"), "0\n1\n");
  EXPECT_EQ(shell_of(*begin_from(turns[0]), "cat log"), "0\n");
  EXPECT_EQ(shell_of(*begin_from(turns[2]), "cat log"), "0\n1\n2\n");
}

TEST_P(Snapshots, too_much_for_a_snapshot_is_refused_and_the_sandbox_goes_on) {
  shell("for i in 1 2 3; do head -c 20000000 /dev/zero > f$i; done");
  const auto snapshot = snapshot_of(*sandbox_);
  ASSERT_FALSE(snapshot.has_value());
  EXPECT_EQ(snapshot.error().code(), Code::kExhausted);
  EXPECT_THAT(snapshot.error().message(), HasSubstr("48 MiB"));
  EXPECT_EQ(shell("rm f1 f2; ls"), "f3\n");
  EXPECT_TRUE(snapshot_of(*sandbox_).has_value());
}

// One file is always written before the other, and many lie between them for whoever copies all.
TEST_P(Snapshots, what_runs_in_the_background_stops_while_it_is_copied) {
  shell("mkdir m; cd m; touch $(seq 3000)");
  call(
      "run_terminal_cmd",
      {{"command", "cd /workspace; for i in $(seq 1000000); do echo $i > new; mv new a; echo $i > new; mv new z; done"},
       {"is_background", true}});
  ASSERT_TRUE(within(30s, [&] { return shell("cat /workspace/z 2>&1").size() <= 8; }));
  for (int round = 0; round < 5; ++round) {
    const auto snapshot = snapshot_of(*sandbox_);
    ASSERT_TRUE(snapshot.has_value()) << snapshot.error().to_string();
    std::map<std::string, int> content;
    const auto entries = read_tree(snapshot->workspace);
    for (const auto& entry : *entries) content[entry.path] = atoi(entry.content.c_str());
    EXPECT_THAT(content.at("a") - content.at("z"), testing::AllOf(testing::Ge(0), testing::Le(1)));
  }
  EXPECT_TRUE(within(30s, [&, before = shell("cat /workspace/z")] { return shell("cat /workspace/z") != before; }));
}

class Freeze : public EitherSandbox {
 protected:
  // The processes named "sleep" and the states that they are in: "T" where they are stopped.
  std::string states() {
    return shell("for p in $(pidof sleep); do cut -d' ' -f3 /proc/$p/stat; done | sort | tr -d '\n'");
  }
};

FOR_BOTH_KINDS_OF_SANDBOXES(Freeze);

TEST_P(Freeze, stops_what_runs_and_lets_it_go_on_but_not_what_was_stopped_before) {
  for (int i = 0; i < 3; ++i) call("run_terminal_cmd", {{"command", "exec sleep 1000"}, {"is_background", true}});
  ASSERT_TRUE(within(30s, [&] { return states() == "SSS\n"; })) << states();
  shell("kill -STOP $(pidof -s sleep)");
  ASSERT_TRUE(within(30s, [&] { return states() == "SST\n"; }));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(freeze(*sandbox_));
    ASSERT_TRUE(freeze(*sandbox_));
    EXPECT_EQ(states(), "TTT\n") << "calls run all the same";
    ASSERT_TRUE(snapshot_of(*sandbox_).has_value());
    EXPECT_EQ(states(), "TTT\n") << "a snapshot ends no freeze";
    ASSERT_TRUE(thaw(*sandbox_));
    ASSERT_TRUE(thaw(*sandbox_));
    EXPECT_TRUE(within(30s, [&] { return states() == "SST\n"; })) << states();
  }
}

TEST_P(Freeze, a_call_that_was_stopped_goes_on_and_what_is_frozen_can_be_collected_and_ended) {
  shell("mkfifo p");
  std::string read;
  std::jthread waiting([&] { read = shell("cat p"); });
  ASSERT_TRUE(within(30s, [&] { return shell("pidof cat >/dev/null && echo there") == "there\n"; }));
  ASSERT_TRUE(freeze(*sandbox_));
  EXPECT_EQ(shell("cut -d' ' -f3 /proc/$(pidof cat)/stat"), "T\n");
  ASSERT_TRUE(thaw(*sandbox_));
  shell("echo word > p");
  waiting.join();
  EXPECT_EQ(read, "word\n");
  call("run_terminal_cmd", {{"command", "sleep 1000"}, {"is_background", true}});
  ASSERT_TRUE(freeze(*sandbox_));
  EXPECT_TRUE(sandbox_->collect().has_value());
  EXPECT_EQ(shell("pidof sleep || echo none"), "none\n");
}

// A killed process ends a moment later: files are collected, and the next call begins, after that moment.
TEST_P(Freeze, whatever_was_killed_is_gone_before_files_are_collected) {
  for (int round = 0; round < 5; ++round) {
    const auto many = "for i in $(seq 40); do sleep 1000 & done; wait";
    call("run_terminal_cmd", {{"command", many}, {"is_background", true}});
    ASSERT_TRUE(within(30s, [&] { return shell("pidof sleep | wc -w") == "40\n"; }));
    ASSERT_TRUE(sandbox_->collect().has_value());
    EXPECT_EQ(shell("pidof sleep || echo none"), "none\n");
  }
}

// A process that this machine shows with these words, "S" or "T" and the like; empty where there is none.
std::string state_of(const std::string& words) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (read_file(entry.path() / "cmdline").value_or("") != words) continue;
    const auto stat = read_file(entry.path() / "stat").value_or(") ?");
    return stat.substr(stat.rfind(") ") + 2, 1);
  }
  return "";
}

TEST_P(Freeze, of_an_episode_is_between_turns_and_only_where_that_is_asked_for) {
  for (const bool freezes : {false, true}) {
    const auto seconds = std::to_string(1'000'000 + getpid() * 2 + (freezes ? 1 : 0));  // of no other test's process
    auto episode = *Episode::open(*make_task({"set", Split::kTrain, 5}), *backend_, {.freeze_between_turns = freezes});
    const auto turn = [&](const Json& arguments) {
      ParsedCall call;
      call.call.name = "run_terminal_cmd";
      call.call.arguments = arguments;
      return episode->turn(std::vector<ParsedCall>{call})->at(0).output;
    };
    turn({{"command", "exec sleep " + seconds}, {"is_background", true}});
    const auto words = std::string("sleep\0", 6) + seconds + std::string(1, '\0');
    EXPECT_TRUE(within(30s, [&] { return turn({{"command", "pidof sleep >/dev/null && echo there"}}) == "there\n"; }));
    // It may still be on its way to its sleep.
    const auto settled = [&] { return state_of(words) == (freezes ? "T" : "S"); };
    EXPECT_TRUE(within(30s, settled));
    EXPECT_NE(turn({{"command", "cut -d' ' -f3 /proc/$(pidof sleep)/stat"}}), "T\n");
    EXPECT_TRUE(within(30s, settled));
  }
}

TEST_P(Snapshots, an_episode_branches_and_both_are_scored_for_themselves) {
  const auto task = *make_task({"set", Split::kTrain, 5});
  auto episode = *Episode::open(task, *backend_);
  ASSERT_TRUE(episode->call("list_dir", {{"target_directory", "."}}).has_value());
  auto branch = episode->branch();
  ASSERT_TRUE(branch.has_value()) << branch.error().to_string();
  EXPECT_EQ((*branch)->tool_calls(), 1);
  for (const auto& calls : task.solution.turns) {
    for (const auto& call : calls) ASSERT_TRUE((*branch)->call(call.name, call.arguments).has_value());
  }
  EXPECT_TRUE((*branch)->over());
  EXPECT_FALSE(episode->over());
  EXPECT_EQ((*branch)->score(task.solution.answer)->reward, 1);
  EXPECT_EQ(episode->score("")->reward, 0);
  EXPECT_FALSE(episode->branch().has_value());
}

TEST(Trees, bytes_that_nobody_packed_are_refused_and_nothing_outside_is_touched) {
  Scratch outside, from, to;
  outside.put("kept", "x\n");
  from.put("a/b.txt", "one\n");
  from.put("c.txt", "two\n");
  fs::create_symlink(outside.path, from.path / "link");
  const std::string whole = *pack_tree(from.path);
  Random random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    if (random.chance(0.2)) bytes.resize(random.below(bytes.size()));
    for (uint64_t changes = 1 + random.below(4); changes > 0 && !bytes.empty(); --changes) {
      bytes[random.below(bytes.size())] =
          static_cast<char>(random.chance(0.5) ? random.below(256) : "/.ab\0"[random.below(5)]);
    }
    const Status status = unpack_tree(to.path, bytes);
    EXPECT_TRUE(status.ok() || !status.message().empty());
    for (const auto& entry : fs::recursive_directory_iterator(to.path, fs::directory_options::skip_permission_denied)) {
      if (entry.is_directory() && !entry.is_symlink()) fs::permissions(entry.path(), fs::perms::owner_all);
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(outside.path), fs::directory_iterator()), 1);
  EXPECT_EQ(outside.get("kept"), "x\n");
  ASSERT_TRUE(unpack_tree(to.path, whole).ok());
  EXPECT_EQ(to.get("a/b.txt"), "one\n");
}

TEST(Trees, paths_that_lead_out_are_refused) {
  Scratch from, to;
  from.put("abcd/e", "x\n");
  const std::string whole = *pack_tree(from.path);
  for (const std::string& path : {std::string("../e"), std::string("/e/f"), std::string("./a/")}) {
    std::string bytes = whole;
    std::string wanted = path;
    wanted.resize(4, 'x');
    bytes.replace(bytes.find("abcd"), 4, wanted);
    EXPECT_EQ(unpack_tree(to.path, bytes).code(), Code::kCorrupt) << wanted;
  }
}

}  // namespace
}  // namespace tandem::envs
