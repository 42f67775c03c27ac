// `tandem replay`: recorded steps and episodes come out with the same bits, and what does not is named.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class Replay : public RunTest {
 protected:
  // A run of 10 steps with checkpoints of 3, 6, 9 and 10.
  static const fs::path& recorded() {
    static const fs::path run_dir = [] {
      const fs::path path = root() / "recorded";
      EXPECT_EQ(run({"run.steps=10", "tasks.heldout=0", "trainer.checkpoint_every=3", "trainer.keep_checkpoints=all",
                     "trainer.groups_per_step=4", kWithSignal},
                    path),
                0)
          << text(output());
      return path;
    }();
    return run_dir;
  }
  static int replay(const fs::path& run_dir, const Arguments& more) {
    Arguments arguments = {"replay", run_dir.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tandem(arguments);
  }
  static Json answer() {
    std::istringstream lines(text(output()));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('{')) return parse_json(line).value_or(Json::object());
    }
    return Json::object();
  }
  // A copy in which the line of a step says something else.
  static fs::path with_changed_line(const char* name, int step, const std::function<void(Json&)>& change) {
    const fs::path copy = root() / name;
    fs::copy(recorded(), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    std::istringstream lines(text(copy / "metrics.jsonl"));
    std::string changed;
    for (std::string line; std::getline(lines, line);) {
      Json json = *parse_json(line);
      if (json["step"] == step) change(json);
      changed += dump_json(json) + "\n";
    }
    EXPECT_TRUE(write_file(copy / "metrics.jsonl", changed));
    return copy;
  }
  static std::string everything(const fs::path& run_dir) {
    std::string listing;
    for (const auto& entry : fs::recursive_directory_iterator(run_dir)) {
      if (entry.is_regular_file()) listing += entry.path().string() + " " + digest_of(text(entry.path())).hex() + "\n";
    }
    return listing;
  }
};

TEST_F(Replay, of_any_step_has_the_bits_of_the_run_and_writes_nothing) {
  const std::string before = everything(recorded());
  EXPECT_EQ(json(recorded() / "checkpoints" / "step_3" / "learner.json")["steps"], 3) << "all are kept";
  for (const int step : {1, 4, 6, 8, 10}) {
    ASSERT_EQ(replay(recorded(), {"--step", std::to_string(step), "--json"}), 0) << text(output());
    const Json said = answer();
    EXPECT_EQ(said["step"], step);
    EXPECT_GT(said["episodes"].get<int>(), 0);
    EXPECT_EQ(said["loss"], said["loss_recorded"]);
    EXPECT_EQ(said["grad_norm"], said["grad_norm_recorded"]);
    EXPECT_GT(said["grad_norm"].get<double>(), 0);
    EXPECT_EQ(said["weights_equal"], true);
  }
  EXPECT_EQ(everything(recorded()), before);
}

// Each pass through the batch again, in the same order and with the same early end.
TEST_F(Replay, of_a_step_of_several_updates_has_the_bits_of_the_run) {
  const fs::path path = root() / "updates";
  ASSERT_EQ(run({"run.steps=3", "tasks.heldout=0", "trainer.checkpoint_every=2", "trainer.keep_checkpoints=all",
                 "trainer.groups_per_step=4", "trainer.epochs=2", "trainer.minibatches=2", "trainer.kl_stop=0.05",
                 "trainer.ranks=2", kWithSignal},
                path),
            0)
      << text(output());
  for (const int step : {1, 3}) {
    ASSERT_EQ(replay(path, {"--step", std::to_string(step), "--json"}), 0) << text(output());
    EXPECT_EQ(answer()["weights_equal"], true);
  }
  std::istringstream lines(text(path / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json step = *parse_json(line);
    ASSERT_TRUE(step.contains("updates")) << line;
    EXPECT_EQ(step["updates"][0]["approx_kl"], 0);
    EXPECT_EQ(step["stopped_by_kl"], !step["updates"].back()["taken"].get<bool>());
    if (!step["stopped_by_kl"].get<bool>()) {
      EXPECT_EQ(step["updates"].size(), 4u);
    }
  }
  EXPECT_EQ(run({"trainer.groups_per_step=4", "trainer.minibatches=5"}, root() / "refused-parts"), 2);
  EXPECT_NE(text(output()).find("trainer.minibatches is 5, and a batch has trainer.groups_per_step = 4"),
            std::string::npos)
      << text(output());
}

// States are found in the trajectories that were stored.
TEST_F(Replay, of_credit_by_turns_has_the_bits_of_the_run) {
  const fs::path path = root() / "turns";
  ASSERT_EQ(
      run({"run.steps=2", "tasks.heldout=0", "algorithm.name=gigpo", "algorithm.gamma=0.9", "trainer.epochs=2"}, path),
      0)
      << text(output());
  ASSERT_EQ(replay(path, {"--step", "2", "--json"}), 0) << text(output());
  EXPECT_EQ(answer()["weights_equal"], true);
  std::istringstream lines(text(path / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json shared = parse_json(line)->at("loss_metrics").at("shared_states");
    EXPECT_GE(shared.get<double>(), 0) << line;
    EXPECT_LE(shared.get<double>(), 1) << line;
  }
}

TEST_F(Replay, of_kinds_with_algorithms_of_their_own_has_the_bits_of_the_run) {
  const fs::path path = root() / "kinds";
  const Arguments more = {"run.steps=2", "tasks.heldout=0", "trainer.groups_per_step=4",
                          R"(tasks.kinds=["echo","lookup","set"])",
                          R"(algorithm.kinds=["lookup=reinforce++ gamma=0.95","set,echo=gspo weight=2"])"};
  ASSERT_EQ(run(more, path), 0) << text(output());
  ASSERT_EQ(replay(path, {"--step", "2", "--json"}), 0) << text(output());
  EXPECT_EQ(answer()["weights_equal"], true);
  std::set<std::string> seen;
  std::istringstream lines(text(path / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json step = *parse_json(line);
    EXPECT_EQ(step.at("max_abs_logprob_diff"), 0) << line;
    if (!step.contains("algorithms")) continue;  // no group had a signal
    for (const auto& [name, means] : step.at("algorithms").items()) {
      seen.insert(name);
      EXPECT_GT(means.at("samples").get<double>(), 0) << line;
    }
  }
  // Those of lookup have rewards and no baseline of their group, so they are trained whatever they say.
  EXPECT_TRUE(seen.contains("lookup"));
  EXPECT_FALSE(seen.contains("others"));
  EXPECT_EQ(run({R"(algorithm.kinds=["lokup=gspo"])", R"(tasks.kinds=["echo","lookup"])"}, root() / "refused-kind"), 2);
  EXPECT_NE(text(output()).find("no tasks of kind \"lokup\"; did you mean \"lookup\"?"), std::string::npos)
      << text(output());
}

// Demonstrations of another run, whose successful episodes are tokens already; the run keeps them, and needs that run
// no more.
TEST_F(Replay, of_demonstrations_beside_reinforcement_has_the_bits_of_the_run) {
  const fs::path first = root() / "teaches", path = root() / "is-taught";
  ASSERT_EQ(run({"run.steps=3", "tasks.heldout=0"}, first), 0) << text(output());
  const std::string data = fmt::format(R"(algorithm.demonstrations.data=["{}"])", first.string());
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=0", "algorithm.demonstrations.samples=3", data}, path), 0)
      << text(output());
  fs::remove_all(first);
  ASSERT_EQ(replay(path, {"--step", "2", "--json"}), 0) << text(output());
  EXPECT_EQ(answer()["weights_equal"], true);
  EXPECT_EQ(run({"run.steps=2", "tasks.heldout=0", data}, root() / "refused-data"), 2);
  EXPECT_NE(text(output()).find("algorithm.demonstrations.data"), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find(first.string()), std::string::npos) << text(output());
  // It goes on with those that it began with, or not at all.
  const fs::path kept = path / "demonstrations.jsonl";
  std::string damaged = text(kept);
  char& digit = damaged[damaged.find('[', damaged.find('\n')) + 1];
  digit = digit == '1' ? '2' : '1';
  ASSERT_TRUE(write_file(kept, damaged));
  const Arguments longer = {"run.steps=3", "tasks.heldout=0", "algorithm.demonstrations.samples=3", data};
  EXPECT_EQ(run(longer, path, true), 1) << text(output());
  EXPECT_NE(text(output()).find("its samples are not those that were written"), std::string::npos) << text(output());
  fs::remove(kept);
  EXPECT_EQ(run(longer, path, true), 1) << text(output());
  EXPECT_NE(text(output()).find("demonstrations.jsonl is gone"), std::string::npos) << text(output());
}

// Exported chats of a model whose template knows no tools: calls become words, as in the run's own episodes.
TEST_F(Replay, demonstrations_may_be_exported_chats_with_calls) {
  const fs::path first = root() / "exports", chats = root() / "chats.jsonl";
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=0", "env.compact_at=60"}, first), 0) << text(output());
  ASSERT_EQ(tandem({"episodes", first.string(), "--export", "openai", "--successful"}), 0) << text(output());
  std::string lines;
  std::istringstream all(text(output()));
  for (std::string line; std::getline(all, line);)
    if (line.starts_with('{')) lines += line + "\n";
  ASSERT_NE(lines.find("tool_calls"), std::string::npos);
  ASSERT_TRUE(write_file(chats, lines));
  EXPECT_EQ(
      run({"run.steps=1", "tasks.heldout=0", fmt::format(R"(algorithm.demonstrations.data=["{}"])", chats.string())},
          root() / "learns-from-chats"),
      0)
      << text(output());
}

// The coordinator makes these advantages: each is that of all pairs of its group, where a pair has its better reward.
TEST_F(Replay, shows_the_advantages_of_the_best_of_two_attempts) {
  const fs::path path = root() / "best-of-two";
  ASSERT_EQ(
      run({"run.steps=3", "tasks.heldout=0", kWithSignal, "algorithm.name=pass_at_k", "algorithm.pass_at_k.k=2"}, path),
      0)
      << text(output());
  std::map<int, std::vector<Json>> groups;
  for (const Json& episode : episodes(path)) {
    if (!episode["trained_step"].is_null()) groups[episode["group"].get<int>()].push_back(episode);
  }
  ASSERT_FALSE(groups.empty());
  for (const auto& [group, members] : groups) {
    const auto best = [&members = members](size_t i, size_t j) {
      return std::max(members[i]["learned_reward"].get<double>(), members[j]["learned_reward"].get<double>());
    };
    double pairs = 0, sum = 0, squares = 0;
    std::vector<double> with(members.size(), 0);
    for (size_t i = 0; i < members.size(); ++i) {
      for (size_t j = i + 1; j < members.size(); ++j) {
        ++pairs;
        sum += best(i, j);
        squares += best(i, j) * best(i, j);
        with[i] += best(i, j);
        with[j] += best(i, j);
      }
    }
    const double mean = sum / pairs, deviation = std::sqrt(std::max(0.0, squares / pairs - mean * mean)) + 1e-6;
    for (size_t i = 0; i < members.size(); ++i) {
      const double expected = (with[i] / static_cast<double>(members.size() - 1) - mean) / deviation;
      EXPECT_NEAR(members[i]["advantage"].get<double>(), expected, 1e-6) << group;
    }
  }
}

TEST_F(Replay, of_an_episode_has_the_logprobs_that_were_sampled) {
  int replayed = 0;
  for (const Json& episode : episodes(recorded())) {
    if (episode["trained_step"].is_null() || episode["episode"].get<int>() % 37 != 0) continue;
    ASSERT_EQ(replay(recorded(), {"--episode", dump_json(episode["episode"]), "--json"}), 0) << text(output());
    EXPECT_EQ(answer()["equal"], true);
    EXPECT_GT(answer()["tokens"].get<int>(), 0);
    ++replayed;
  }
  EXPECT_GT(replayed, 0);
  EXPECT_EQ(replay(recorded(), {"--episode", "1000000", "--json"}), 2);
  EXPECT_EQ(answer()["episode"], 1000000);
  EXPECT_NE(text(output()).find("episode 1000000 has no tokens"), std::string::npos) << text(output());
}

TEST_F(Replay, of_an_episode_whose_trajectory_is_damaged_or_gone_names_the_file) {
  const fs::path copy = root() / "lost-trajectory", log = copy / "trajectories" / "episodes.log";
  fs::copy(recorded(), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const auto expect_lost = [&](const std::string& episode, const char* reason) {
    EXPECT_EQ(replay(copy, {"--episode", episode, "--json"}), 5) << text(output());
    const std::string why = answer().value("refused", "");
    EXPECT_NE(why.find(log.string()), std::string::npos) << text(output());
    EXPECT_NE(why.find("the trajectory of episode " + episode + " is lost: "), std::string::npos) << why;
    EXPECT_NE(why.find(reason), std::string::npos) << why;
  };
  std::string bytes = text(log);
  // The first record: which episode it is of stands in its head.
  const size_t head = bytes.find("\"episode\":");
  ASSERT_NE(head, std::string::npos);
  const std::string episode = std::to_string(std::stoi(bytes.substr(head + 10)));
  bytes.replace(200, 4, "XXXX");
  ASSERT_TRUE(write_file(log, bytes));
  expect_lost(episode, "damaged");
  fs::remove_all(log.parent_path());
  expect_lost(episode, "not there");
  EXPECT_EQ(replay(copy, {"--episode", "1000000"}), 2) << "there is no such episode";
}

// What is sampled to learn from is of the policy at its temperature, what measures of the model at 1.
TEST_F(Replay, of_episodes_at_a_temperature_has_the_logprobs_that_were_sampled) {
  const fs::path run_dir = root() / "tempered";
  ASSERT_EQ(run({"run.steps=2", "run.deterministic=true", "tasks.heldout=2", "rollout.temperature=0.7",
                 "algorithm.correction.kind=tis", "trainer.keep_checkpoints=all"},
                run_dir),
            0)
      << text(output());
  expect_same_logprobs(run_dir);
  std::map<double, int> replayed;  // by temperature
  for (const Json& episode : episodes(run_dir)) {
    const auto temperature = episode["temperature"].get<double>();
    if (episode["dropped"] == "no_signal" || replayed[temperature] == 2) continue;
    ASSERT_EQ(replay(run_dir, {"--episode", dump_json(episode["episode"]), "--json"}), 0) << text(output());
    EXPECT_EQ(answer()["equal"], true) << temperature;
    ++replayed[temperature];
  }
  EXPECT_EQ(replayed.size(), 3u) << "greedy, 0.7 and 1";
  EXPECT_EQ(replay(run_dir, {"--step", "2"}), 0) << text(output());
  EXPECT_EQ(run({"rollout.temperature=1", "run.steps=3"}, run_dir, true), 2);
  EXPECT_NE(text(output()).find("rollout.temperature is 0.7"), std::string::npos) << text(output());
}

// Also where more steps make another schedule of the same settings.
TEST_F(Replay, of_steps_before_and_after_a_changed_value_has_the_bits_of_the_run) {
  const fs::path run_dir = root() / "changed-values";
  const auto longer = [&](const char* steps, const char* rate) {
    return run({std::string("run.steps=") + steps, "tasks.heldout=0", "trainer.keep_checkpoints=all",
                "trainer.checkpoint_every=10", "trainer.schedule=cosine", std::string("trainer.learning_rate=") + rate},
               run_dir, steps[0] != '2');
  };
  ASSERT_EQ(longer("2", "0.001"), 0) << text(output());
  ASSERT_EQ(longer("4", "0.002"), 0) << text(output());
  for (const char* step : {"1", "2", "3", "4"})
    EXPECT_EQ(replay(run_dir, {"--step", step, "--json"}), 0) << step << text(output());
  int replayed = 0;
  for (const Json& episode : episodes(run_dir)) {
    if (episode["trained_step"].is_null() || episode["episode"].get<int>() % 29 != 0) continue;
    EXPECT_EQ(replay(run_dir, {"--episode", dump_json(episode["episode"])}), 0) << text(output());
    ++replayed;
  }
  EXPECT_GT(replayed, 0);
  fs::remove_all(run_dir / "checkpoints" / "step_2");
  // It is no other result, and says so before it begins.
  EXPECT_EQ(replay(run_dir, {"--step", "4", "--json"}), 5);
  const std::string why = "trainer.learning_rate was 0.001 at step 1 and 0.002 at step 4";
  EXPECT_NE(answer().value("refused", "").find(why), std::string::npos) << text(output());
  EXPECT_EQ(answer()["step"], 4);
  EXPECT_EQ(text(output()).find("from version"), std::string::npos) << text(output());
}

TEST_F(Replay, names_the_first_difference) {
  const auto loss = with_changed_line("other-loss", 4, [](Json& line) { line["loss"] = 0.5; });
  EXPECT_EQ(replay(loss, {"--step", "4", "--json"}), 1);
  EXPECT_EQ(answer()["weights_equal"], true);
  EXPECT_NE(text(output()).find("loss is "), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find("and was 0.5"), std::string::npos) << text(output());
  const auto weights = with_changed_line("other-weights", 5, [](Json& line) { line["weights_digest"] = "abc"; });
  EXPECT_EQ(replay(weights, {"--step", "5", "--json"}), 1);
  EXPECT_EQ(answer()["weights_equal"], false);
  EXPECT_NE(text(output()).find("the digest of the weights is "), std::string::npos) << text(output());
  // A later checkpoint that is another training's.
  fs::remove_all(weights / "checkpoints" / "step_6");
  fs::copy(weights / "checkpoints" / "step_9", weights / "checkpoints" / "step_6", fs::copy_options::recursive);
  EXPECT_EQ(replay(weights, {"--step", "6"}), 1);
  EXPECT_NE(text(output()).find("masters of "), std::string::npos) << text(output());
}

// As a job that was killed while it copied a run leaves it.
TEST_F(Replay, a_checkpoint_that_is_half_there_is_named_with_what_else_is_kept_and_a_resume_takes_the_one_before) {
  const fs::path copy = root() / "half-there";
  fs::copy(recorded(), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const auto tensors = [&](int step) {
    return copy / "checkpoints" / ("step_" + std::to_string(step)) / "optimizer.safetensors";
  };
  const fs::path suite = root() / "half-there.yaml";
  ASSERT_TRUE(write_file(suite, "model: " + copy.string() + "@6\ntasks: {kinds: [echo], limit: 1}\nsamples: 1\n"));
  const std::string whole = text(tensors(6)), state = text(tensors(6).parent_path() / "learner.json");
  std::string flipped = whole;
  flipped[whole.size() / 4] = static_cast<char>(flipped[whole.size() / 4] ^ 0x10);  // among the masters
  const auto expect_named = [&](const char* how) {
    EXPECT_EQ(replay(copy, {"--step", "7"}), 5) << how;
    EXPECT_NE(text(output()).find("step_6"), std::string::npos) << how << text(output());
    EXPECT_NE(text(output()).find("the run keeps 3, 6, 9, 10"), std::string::npos) << how << text(output());
    EXPECT_EQ(tandem({"eval", suite.string(), "--out", (root() / "half-eval").string()}), 1) << how;
    EXPECT_NE(text(output()).find("checkpoints/step_6"), std::string::npos) << how << text(output());
    EXPECT_NE(text(output()).find("the run has others: " + copy.string() + "@3"), std::string::npos) << text(output());
    EXPECT_FALSE(fs::exists(root() / "half-eval")) << how;
  };
  for (const std::string& bytes : {whole.substr(0, 1000), std::string(), flipped}) {
    ASSERT_TRUE(write_file(tensors(6), bytes));
    expect_named("tensors");
  }
  fs::remove(tensors(6));
  expect_named("no tensors");
  ASSERT_TRUE(write_file(tensors(6), whole));
  // Without its learner.json it is no checkpoint: one before it is taken.
  fs::remove(tensors(6).parent_path() / "learner.json");
  EXPECT_EQ(replay(copy, {"--step", "7"}), 0) << text(output());
  EXPECT_NE(text(output()).find("from version 3"), std::string::npos) << text(output());
  ASSERT_TRUE(write_file(tensors(6).parent_path() / "learner.json", state));
  // The newest two of a run that goes on: one without tensors, one with none in its file.
  fs::remove(tensors(10));
  ASSERT_TRUE(write_file(tensors(9), ""));
  EXPECT_EQ(run({"run.steps=11", "trainer.groups_per_step=4", kWithSignal}, copy, true), 0) << text(output());
  EXPECT_NE(logs(copy).find("going on from " + (copy / "checkpoints/step_6").string()), std::string::npos);
  expect_books_to_agree(copy);
}

TEST_F(Replay, of_what_is_not_there_is_refused_by_name) {
  EXPECT_EQ(replay(recorded(), {"--step", "11"}), 2);
  EXPECT_NE(text(output()).find("no step 11 was trained; there are 10"), std::string::npos) << text(output());
  EXPECT_EQ(replay(recorded(), {"--step", "0"}), 2);
  EXPECT_EQ(replay(recorded(), {}), 2);
  EXPECT_NE(replay(root() / "no-such-run", {"--step", "1"}), 0);
  EXPECT_NE(text(output()).find("no-such-run"), std::string::npos) << text(output());
  EXPECT_EQ(run({"trainer.keep_checkpoints=some"}, root() / "refused-keep"), 2);
  EXPECT_NE(text(output()).find("neither all nor a number"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
