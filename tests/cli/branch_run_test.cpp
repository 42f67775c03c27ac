// Runs whose episodes begin as one and branch at a turn.
#include <map>
#include <set>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class BranchRun : public RunTest {
 protected:
  // Kinds of which many episodes have several turns.
  static Arguments branching(int steps, const Arguments& more = {}) {
    Arguments all = {
        "run.deterministic=true",       "run.steps=" + std::to_string(steps), "tasks.heldout=0",
        "tasks.kinds=[echo,count,set]", "trainer.checkpoint_every=3",         "trainer.keep_checkpoints=all",
        "rollout.branch.ways=3",        "algorithm.branch_local=0.5"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<Json> steps_of(const fs::path& run_dir) {
    std::vector<Json> lines;
    const std::string all = text(run_dir / "metrics.jsonl");
    for (const auto line : split(trim(all), '\n')) lines.push_back(*parse_json(line));
    return lines;
  }
};

TEST_F(BranchRun, episodes_of_a_trunk_have_its_tokens_and_say_whose_it_was) {
  const fs::path run_dir = root() / "branches";
  ASSERT_EQ(run(branching(4), run_dir), 0) << text(output());
  expect_books_to_agree(run_dir);
  EXPECT_EQ(logs(run_dir).find("by itself"), std::string::npos) << "a sandbox could not be branched";
  std::map<uint64_t, std::vector<Json>> families;
  for (const Json& episode : episodes(run_dir, true)) {
    EXPECT_EQ(episode["attempt"], 1) << episode["reason"];
    if (episode.contains("branch") && !episode["tokens"].empty())
      families[episode["branch"]["of"].get<uint64_t>()].push_back(episode);
  }
  ASSERT_FALSE(families.empty());
  std::set<uint64_t> with_other_ends;
  for (const auto& [family, members] : families) {
    ASSERT_GT(members.size(), 1u) << family;
    EXPECT_EQ(members[0]["episode"], family);
    EXPECT_EQ(members[0]["branch"]["inherited_tokens"], 0);
    const auto shared = members[0]["branch"]["tokens"].get<size_t>();
    for (const Json& member : members) {
      EXPECT_EQ(member["branch"]["turn"], 1);
      EXPECT_GT(member["turns"].get<int>(), 1);
      EXPECT_EQ(member["branch"]["tokens"], shared);
      ASSERT_GT(member["tokens"].size(), shared);
      for (const char* list : {"tokens", "sampled", "logprobs", "token_versions"}) {
        for (size_t i = 0; i < shared; ++i) EXPECT_EQ(member[list][i], members[0][list][i]) << list << " " << i;
      }
      if (member["tokens"] != members[0]["tokens"]) with_other_ends.insert(family);
      if (member["episode"] != family) {
        EXPECT_GT(member["branch"]["inherited_tokens"].get<int>(), 0);
        EXPECT_GT(member["branch"]["inherited_calls"].get<int>(), 0);
      }
    }
  }
  EXPECT_FALSE(with_other_ends.empty()) << "each goes on by a seed of its own";
  uint64_t inherited = 0;
  for (const Json& step : steps_of(run_dir)) {
    inherited += step["branches"]["inherited_tokens"].get<uint64_t>();
    EXPECT_EQ(step["max_abs_logprob_diff"], 0.0);
  }
  EXPECT_GT(inherited, 0u);
  EXPECT_GE(json(run_dir / "summary.json")["branches"]["inherited_tokens"].get<uint64_t>(), inherited);
  EXPECT_NE(text(run_dir / "report.html").find("sampled and had of a trunk"), std::string::npos);
  EXPECT_EQ(tandem({"replay", run_dir.string(), "--step", "4"}), 0) << text(output());
  EXPECT_EQ(tandem({"replay", run_dir.string(), "--episode", std::to_string(families.begin()->first + 1)}), 0)
      << text(output());
}

// Conversations that are summed up branch, too.
TEST_F(BranchRun, a_deterministic_one_does_not_depend_on_who_samples_what) {
  // More groups than slots of the first rank, so that both learn from trunks.
  const std::string groups = "trainer.groups_per_step=5";
  ASSERT_EQ(run(branching(3, {"env.compact_at=75", groups}), root() / "two"), 0) << text(output());
  EXPECT_GT(json(root() / "two" / "summary.json")["compactions"].get<int>(), 0);
  EXPECT_GT(json(root() / "two" / "summary.json")["branches"]["inherited_tokens"].get<int>(), 0);
  ASSERT_EQ(run(branching(3, {"env.compact_at=75", groups, "rollout.workers=3", "rollout.slots=4",
                              "rollout.steal_from=1", "env.threads=1", "trainer.ranks=2"}),
                root() / "three"),
            0)
      << text(output());
  EXPECT_EQ(export_digest(root() / "two"), export_digest(root() / "three"));
}

// Branches whose trunk is lost draw it again: neither a process that dies nor the end of the run shows in a bit.
TEST_F(BranchRun, a_deterministic_one_that_was_killed_and_interrupted_has_the_same_episodes) {
  const Arguments settings = branching(30, {"rollout.branch.last_turn=2"});
  ASSERT_EQ(run(settings, root() / "whole"), 0) << text(output());
  const fs::path run_dir = root() / "killed";
  {
    Process process(command(settings, run_dir), output());
    int step = 1;
    for (const char* name : {"rollout", "env", "rollout", "coordinator"}) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(reaches_step(process, run_dir, step)) << text(output());
      ASSERT_TRUE(within(20s, [&] { return signal(run_dir, pid_of(run_dir, name, 0), SIGKILL); })) << text(output());
      step = step_of(run_dir) + 2;
    }
    ASSERT_TRUE(reaches_step(process, run_dir, step)) << text(output());
    process.signal(SIGKILL);
    process.wait();
  }
  ASSERT_EQ(run(settings, run_dir, true), 0) << text(output());
  expect_nothing_trained_twice(run_dir);
  const auto expected = episodes(root() / "whole", true), got = episodes(run_dir, true);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    for (const char* key : {"task", "reward", "advantage", "trained_step", "tokens", "logprobs"})
      ASSERT_EQ(got[i][key], expected[i][key]) << "episode " << i << ": " << key;
  }
  EXPECT_EQ(export_digest(run_dir), export_digest(root() / "whole"));
}

TEST_F(BranchRun, what_cannot_be_combined_is_refused_by_name) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"rollout.branch.ways=9"}, "rollout.branch.ways is 9, and a group has trainer.group_size = 6"},
      {{"rollout.branch.ways=2", "rollout.branch.first_turn=3"}, "rollout.branch.last_turn (1) must not be below"},
      {{"rollout.branch.ways=2", "env.external=[maze=true]", "tasks.kinds=[echo,maze]"},
       "rollout.branch.ways: env.external has environments that cannot be branched"},
      {{"rollout.branch.ways=2", "algorithm.name=torch",
        "algorithm.script=" TANDEM_SOURCE_DIR "/examples/losses/entropy_band.py"},
       "algorithm.branch_credit: a loss of your own (torch)"}};
  for (const auto& [change, words] : cases) {
    EXPECT_NE(run(change, root() / "refused"), 0) << words;
    EXPECT_NE(text(output()).find(words), std::string::npos) << text(output());
  }
}

}  // namespace
}  // namespace tandem
