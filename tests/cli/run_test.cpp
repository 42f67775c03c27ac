// The whole loop with real processes, sockets and sandboxes, on the tiny model, when nothing goes wrong.
#include <fmt/format.h>

#include <cstring>
#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

TEST_F(RunTest, a_run_ends_with_a_summary_whose_books_agree_and_leaves_nothing_behind) {
  const fs::path run_dir = root() / "plain run";  // a path with a space
  ASSERT_EQ(run({"run.steps=3", "tasks.heldout=4", kWithSignal}, run_dir), 0) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
  const Json summary = json(run_dir / "summary.json");
  for (const char* key : {"run_id", "exit", "steps", "wall_seconds", "numerics_id", "heldout", "episodes", "outcomes",
                          "logprob", "tokens", "weights", "utilisation", "steals", "restarts", "seconds"}) {
    EXPECT_TRUE(summary.contains(key)) << key;
  }
  EXPECT_EQ(summary["exit"], 0);
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_GT(summary["utilisation"]["cores"].get<double>(), 0);
  EXPECT_LE(summary["utilisation"]["cores"].get<double>(), 1);
  expect_same_logprobs(run_dir);
  EXPECT_EQ(summary["heldout"]["before"]["n_tasks"], 4);
  EXPECT_TRUE(fs::exists(run_dir / "report.html"));
  EXPECT_EQ(json(run_dir / "status.json")["state"], "done");
  EXPECT_EQ(json(run_dir / "status.json")["end"], "done");
  EXPECT_EQ(json(run_dir / "status.json")["step"], 3);
  const std::string metrics = text(run_dir / "metrics.jsonl");
  const Json behaviour = parse_json(split_lines(metrics).back())->value("behaviour", Json::object());
  ASSERT_TRUE(behaviour.contains("all")) << metrics;
  EXPECT_GT(behaviour["all"]["episodes"].get<int>(), 0) << behaviour.dump();
  EXPECT_GE(behaviour["all"]["calls_per_turn"].get<double>(), 0) << behaviour.dump();
  EXPECT_GT(behaviour["all"]["seconds"].get<double>(), 0) << behaviour.dump();
  EXPECT_FALSE(behaviour["kinds"].empty()) << behaviour.dump();
  for (const Json& episode : episodes(run_dir))
    EXPECT_EQ(episode.contains("behaviour"), !episode["reward"].is_null()) << episode.dump();
}

TEST_F(RunTest, new_weights_do_to_turns_that_run_what_the_config_says) {
  for (const char* policy : {"finish", "keep"}) {
    const fs::path run_dir = root() / policy;
    ASSERT_EQ(
        run({"run.steps=3", "tasks.heldout=4", kWithSignal, fmt::format("rollout.on_new_version={}", policy)}, run_dir),
        0)
        << text(output());
    expect_books_to_agree(run_dir);
    const Json summary = json(run_dir / "summary.json");
    // What ends under its own weights is scored as it was sampled; what was kept need not be.
    if (policy == std::string("finish")) {
      EXPECT_EQ(summary["logprob"]["max_abs_diff"], 0.0);
    }
    EXPECT_GT(summary["logprob"]["tokens_compared"].get<int>(), 0);
  }
  EXPECT_EQ(run({"rollout.on_new_version=drop"}, root() / "dropped"), 2);
}

class Scoring : public RunTest {
 protected:
  // The run's episodes all of whose tokens one version of the weights sampled.
  static std::vector<Json> episodes_of(const fs::path& run_dir, int version) {
    std::vector<Json> found;
    for (const Json& episode : episodes(run_dir, true)) {
      if (episode["versions"] == Json({version, version}) && !episode["tokens"].empty()) found.push_back(episode);
    }
    return found;
  }
  // How many sampled tokens `tandem score` gives the logprob that was recorded, and how many it does not.
  static std::pair<size_t, size_t> same_and_other(const std::vector<Json>& recorded, const fs::path& model,
                                                  const Arguments& options) {
    std::ofstream lines(root() / "lines");
    for (const Json& episode : recorded) lines << Json{{"tokens", episode["tokens"]}}.dump() << "\n";
    lines.close();
    Arguments command = {TANDEM_BINARY, "score", "--model", model.string(), "--input", (root() / "lines").string()};
    command.insert(command.end(), options.begin(), options.end());
    EXPECT_EQ(Process(command, root() / "scores").wait(), 0);
    const std::string all = text(root() / "scores");
    const auto scores = split(trim(all), '\n');
    EXPECT_EQ(scores.size(), recorded.size());
    size_t same = 0, other = 0;
    for (size_t i = 0; i < std::min(scores.size(), recorded.size()); ++i) {
      const Json got = parse_json(scores[i]).value_or(Json());
      for (size_t t = 0; t < recorded[i]["tokens"].size(); ++t) {
        if (recorded[i]["sampled"][t] == 0) continue;
        ++(got["logprobs"][t].get<float>() == recorded[i]["logprobs"][t].get<float>() ? same : other);
      }
    }
    return {same, other};
  }
};

TEST_F(Scoring, both_paths_give_the_bits_that_were_recorded_while_sampling) {
  const fs::path run_dir = root() / "scored";
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=4"}, run_dir), 0) << text(output());
  size_t compared = 0;
  for (const auto& [version, model] : {std::pair{0, "model"}, {2, "export"}}) {
    const auto recorded = episodes_of(run_dir, version);
    for (const char* path : {"engine", "trainer"}) {
      const auto [same, other] = same_and_other(recorded, run_dir / model, {"--path", path});
      EXPECT_EQ(other, 0u) << path << " version " << version;
      compared += same;
    }
  }
  EXPECT_GT(compared, 200u);
}

// Half the bytes on the wire, and still the same bits on both sides.
TEST_F(Scoring, in_fp8_gives_what_was_recorded_while_sampling_and_what_the_trainer_computed) {
  const fs::path run_dir = root() / "fp8";
  ASSERT_EQ(run({"run.steps=4", "tasks.heldout=0", kWithSignal, "model.weights=fp8"}, run_dir), 0) << text(output());
  const Json summary = json(run_dir / "summary.json");
  EXPECT_TRUE(summary["numerics_id"].get<std::string>().ends_with("-fp8")) << summary["numerics_id"];
  expect_same_logprobs(run_dir);
  EXPECT_LT(summary["weights"]["full_bytes"].get<uint64_t>(), fs::file_size(run_dir / "export" / "model.safetensors"));
  const auto recorded = episodes_of(run_dir, 0);
  const auto fp8 = same_and_other(recorded, run_dir / "model", {"--weights", "fp8"});
  EXPECT_GT(fp8.first, 0u);
  EXPECT_EQ(fp8.second, 0u);
  EXPECT_GT(same_and_other(recorded, run_dir / "model", {"--weights", "bf16"}).second, 0u);
}

// Prompts of the tiny job have 27 tokens, so a turn with calls brings a conversation beyond 60.
TEST_F(RunTest, conversations_that_are_summed_up_train_as_one_episode_with_any_number_of_ranks_and_are_replayed) {
  std::map<int, std::string> weights;
  for (const int ranks : {1, 2}) {
    const fs::path run_dir = root() / fmt::format("summed-{}", ranks);
    ASSERT_EQ(run({"run.steps=4", "tasks.heldout=0", "run.deterministic=true", "trainer.groups_per_step=4",
                   "env.compact_at=60", "trainer.keep_checkpoints=all", fmt::format("trainer.ranks={}", ranks)},
                  run_dir),
              0)
        << text(output());
    weights[ranks] = text(run_dir / "export" / "model.safetensors");
    const Json summary = json(run_dir / "summary.json");
    EXPECT_GT(summary["compactions"].get<int>(), 0);
    EXPECT_EQ(summary["logprob"]["max_abs_diff"], 0.0);
  }
  EXPECT_EQ(weights[1], weights[2]);

  const fs::path run_dir = root() / "summed-1";
  EXPECT_NE(text(run_dir / "export" / "profile.yaml").find("compaction:"), std::string::npos);
  ASSERT_EQ(tandem({"episodes", run_dir.string(), "--tokens"}), 0);
  std::istringstream lines(text(output()));
  std::vector<Json> summed_up;
  for (std::string line; std::getline(lines, line);) {
    const Json episode = *parse_json(line);
    if (episode.contains("later_segments")) summed_up.push_back(episode);
  }
  ASSERT_FALSE(summed_up.empty());
  for (const Json& episode : summed_up) {
    EXPECT_EQ(episode["compactions"], episode["later_segments"].size());
    const auto begin = episode["later_segments"][0].get<size_t>();
    EXPECT_EQ(episode["sampled"][begin - 1], 1) << "a segment ends with its summary";
    EXPECT_EQ(episode["tokens"][begin], episode["tokens"][0]) << "and the next begins with the opening";
    EXPECT_EQ(episode["turns"], 2) << "the summary is none";
  }
  EXPECT_EQ(tandem({"replay", run_dir.string(), "--episode", std::to_string(summed_up[0]["episode"].get<int>())}), 0)
      << text(output());
  EXPECT_EQ(tandem({"replay", run_dir.string(), "--step", "4"}), 0) << text(output());
  // As messages: a line for each segment, the next of which begins with what the one before ended with.
  ASSERT_EQ(tandem({"episodes", run_dir.string(), "--export", "openai"}), 0) << text(output());
  std::map<int, std::vector<Json>> segments;
  std::istringstream chats(text(output()));
  for (std::string line; std::getline(chats, line);) {
    const Json chat = *parse_json(line);
    if (chat.contains("segment")) segments[chat["episode"].get<int>()].push_back(chat);
  }
  EXPECT_EQ(segments.size(), summed_up.size());
  for (const auto& [episode, of_episode] : segments) {
    EXPECT_EQ(of_episode.size(), of_episode[0]["segments"].get<size_t>());
    const Json& first = of_episode[0]["messages"];
    EXPECT_EQ(first.back()["role"], "assistant") << "the summary";
    EXPECT_EQ(first[first.size() - 2]["role"], "user") << "the request for it";
    const auto task = [&](size_t i) { return of_episode[i]["messages"][1]["content"].get<std::string>(); };
    EXPECT_TRUE(task(1).starts_with(task(0)) && task(1).size() > task(0).size()) << task(1);
  }
  EXPECT_EQ(tandem({"run", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--dry-run", "env.compact_at=500"}), 2);
  EXPECT_NE(text(output()).find("at most 464 would do"), std::string::npos) << text(output());
}

TEST_F(RunTest, conversations_without_room_for_their_summary_are_truncated_and_are_no_failures) {
  std::string heading;
  for (int i = 0; i < 600; ++i) heading += "DOBA ";
  const fs::path profile = root() / "long_heading.yaml";
  ASSERT_TRUE(write_file(profile, fmt::format("version: 1\ncompaction: {{at: 45, heading: \"{}\"}}\n", heading)));
  const fs::path run_dir = root() / "no-room";
  ASSERT_EQ(run({"run.steps=4", "tasks.heldout=0", fmt::format("env.profile={}", profile.string())}, run_dir), 0)
      << text(output());
  const Json summary = json(run_dir / "summary.json");
  EXPECT_EQ(summary["outcomes"]["infra_error"], 0);
  EXPECT_GT(summary["outcomes"]["truncated"].get<int>(), 0);
  EXPECT_EQ(summary["compactions"], 0) << "nothing goes on from them";
}

TEST_F(RunTest, a_deterministic_run_that_was_interrupted_ends_with_the_same_weights_as_one_that_was_not) {
  const Arguments settings = {"run.steps=30", "tasks.heldout=0", "run.deterministic=true",
                              "trainer.checkpoint_every=2"};
  ASSERT_EQ(run(settings, root() / "whole"), 0) << text(output());
  const fs::path run_dir = root() / "interrupted";
  {
    Process process(command(settings, run_dir), output());
    ASSERT_TRUE(has_trained(process, run_dir, 1)) << text(output());
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
  }
  EXPECT_EQ(json(run_dir / "status.json")["state"], "stopping") << "not done: there are steps to go";
  EXPECT_EQ(json(run_dir / "status.json")["end"], "interrupted");
  expect_nothing_left(run_dir);
  ASSERT_EQ(run(settings, run_dir, true), 0) << text(output());
  expect_books_to_agree(run_dir);
  expect_nothing_trained_twice(run_dir);
  EXPECT_EQ(export_digest(run_dir), export_digest(root() / "whole"));
  // The run keeps its config.
  EXPECT_EQ(Process({TANDEM_BINARY, "run", "--resume", "--run-dir", run_dir.string()}, output()).wait(), 0)
      << text(output());
}

TEST_F(RunTest, the_file_for_tensorboard_that_is_read_while_the_run_is_on_has_its_last_steps_too) {
  const fs::path run_dir = root() / "followed";
  const auto files = [&] {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run_dir / "tb", error)) names.push_back(entry.path().string());
    return names;
  };
  Process process(command({"run.steps=5000", "tasks.heldout=0"}, run_dir), output());
  ASSERT_TRUE(within(120s, [&] { return !files().empty(); })) << text(output());
  const auto while_on = files();
  ASSERT_EQ(while_on.size(), 1u) << text(output());
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75) << text(output());
  EXPECT_EQ(files(), while_on);
  // Each step is a record with its wall time in it, and none is there twice.
  const std::string events = text(while_on[0]);
  size_t records = 0;
  for (size_t at = 0; at + 12 <= events.size(); ++records) {
    uint64_t length = 0;
    std::memcpy(&length, events.data() + at, sizeof length);
    at += 8 + 4 + length + 4;
  }
  EXPECT_EQ(records, 1 + json(run_dir / "summary.json")["steps"].get<size_t>()) << "the first is the version";
}

TEST_F(RunTest, a_deterministic_run_does_not_depend_on_who_samples_what) {
  const Arguments settings = {"run.steps=2", "tasks.heldout=0", "run.deterministic=true"};
  ASSERT_EQ(run(settings, root() / "two"), 0) << text(output());
  Arguments other = settings;
  for (const char* change : {"rollout.workers=3", "rollout.slots=5", "rollout.steal_from=1", "env.threads=1"})
    other.push_back(change);
  ASSERT_EQ(run(other, root() / "three"), 0) << text(output());
  EXPECT_EQ(export_digest(root() / "two"), export_digest(root() / "three"));
}

// A run in the notation of tool calls of each family: prompt, calls and results go through its template.
class RunInDialect : public RunTest, public testing::WithParamInterface<const char*> {};

TEST_P(RunInDialect, success_rises) {
  const fs::path run_dir = root() / GetParam();
  ASSERT_EQ(
      run({fmt::format("model.path=tiny:{}", GetParam()), "run.deterministic=true", "tasks.floors=false"}, run_dir), 0)
      << text(output());
  expect_books_to_agree(run_dir);
  const Json summary = json(run_dir / "summary.json");
  EXPECT_GT(summary["heldout"]["gain"]["points"].get<double>(), 0) << summary["heldout"].dump();
}

INSTANTIATE_TEST_SUITE_P(, RunInDialect,
                         testing::Values("hermes", "qwen3_coder", "glm4", "llama3", "deepseek_v3", "deepseek_v31",
                                         "kimi_k2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem
