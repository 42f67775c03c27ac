// Each alarm is provoked by what it is about, and none is raised over the metrics of runs that learn.
#include "rollout/books/alarms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"

namespace tandem::rollout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A step of a run that goes well, and a bit of its noise.
Json good_step(int step) {
  const double wave = 0.02 * (step % 3 - 1);
  return {{"step", step},
          {"success", 0.5 + wave},
          {"success_by_kind", {{"echo", 0.6 + wave}, {"bug", 0.4 - wave}}},
          {"groups", 4},
          {"groups_with_signal", 4},
          {"entropy", 0.8 + wave},
          {"grad_norm", 0.5 + wave},
          {"loss", 0.01 + wave},
          {"max_abs_logprob_diff", 0.0},
          {"compared_tokens", 100},
          {"ratio_max", 1.2 + wave},
          {"clip_fraction", 0.01},
          {"dropped_fraction", 0.0},
          {"learned_reward", 0.5 + wave},
          {"outcomes", {{"completed", 30}, {"truncated", 2}}}};
}

using Change = std::function<void(int step, Json& line)>;

// What 60 steps raise, which `change` makes go wrong after the 30th.
std::vector<Alarm> raised_by(const Change& change) {
  Alarms alarms;
  std::vector<Alarm> all;
  for (int step = 1; step <= 60; ++step) {
    Json line = good_step(step);
    if (step > 30) change(step, line);
    for (Alarm& alarm : alarms.step(line)) {
      EXPECT_GT(step, 30) << alarm.name;
      all.push_back(std::move(alarm));
    }
  }
  return all;
}

void expect_one(const std::vector<Alarm>& alarms, const std::string& name, const std::string& evidence,
                const std::string& key) {
  ASSERT_EQ(alarms.size(), 1U) << (alarms.empty() ? "none" : alarms.back().name);
  EXPECT_EQ(alarms[0].name, name);
  EXPECT_THAT(alarms[0].evidence, HasSubstr(evidence));
  EXPECT_EQ(alarms[0].key, key);
  EXPECT_FALSE(alarms[0].advice.empty());
}

TEST(Alarms, nothing_is_said_while_nothing_goes_wrong) {
  EXPECT_THAT(raised_by([](int, Json&) {}), IsEmpty());
}

// tests/golden/healthy_runs.jsonl: metrics of `tandem run configs/tiny.yaml` and configs/smoke.yaml.
TEST(Alarms, nothing_is_said_over_runs_that_learned) {
  const auto text = read_file(TANDEM_SOURCE_DIR "/tests/golden/healthy_runs.jsonl", 1 << 20);
  ASSERT_TRUE(text.has_value()) << text.error().to_string();
  Alarms alarms;
  int steps = 0, runs = 0;
  for (const auto line : split_lines(trim(*text))) {
    const auto json = parse_json(line);
    ASSERT_TRUE(json.has_value()) << line;
    if (json->at("step") == 1) {
      alarms = Alarms();
      ++runs;
    }
    ++steps;
    for (const Alarm& alarm : alarms.step(*json)) ADD_FAILURE() << alarm_line(steps, to_json(alarm));
  }
  EXPECT_GE(runs, 2);
  EXPECT_GE(steps, 40);
}

TEST(Alarms, a_trainer_that_computes_another_logprob_than_the_engine_is_named_at_once) {
  expect_one(raised_by([](int step, Json& line) {
               if (step == 40) line["max_abs_logprob_diff"] = 0.25;
             }),
             "mismatch", "by up to 0.25", "trainer.device");
}

TEST(Alarms, an_entropy_that_collapses_before_the_tasks_are_solved) {
  const Change falls = [](int, Json& line) { line["entropy"] = 0.03; };
  expect_one(raised_by(falls), "entropy_collapse", "from 0.8 to 0.03", "algorithm.entropy.target");
  // Who has solved its tasks has little left to vary.
  EXPECT_THAT(raised_by([&](int step, Json& line) {
                falls(step, line);
                line["success"] = 0.97;
              }),
              IsEmpty());
}

TEST(Alarms, groups_of_equal_rewards_by_what_they_are_equal_in) {
  const auto with = [](double success) {
    return raised_by([success](int, Json& line) {
      line["groups_with_signal"] = 1;
      line["success"] = success;
      line.erase("success_by_kind");
    });
  };
  expect_one(with(0.6), "no_signal", "of the last 32 groups had equal rewards", "trainer.group_size");
  expect_one(with(0.0), "no_signal", "0 % success", "tasks.kinds");
  EXPECT_THAT(with(1.0), IsEmpty()) << "all is solved";
}

TEST(Alarms, episodes_that_are_cut_short) {
  expect_one(raised_by([](int, Json& line) {
               line["outcomes"] = {{"completed", 16}, {"truncated", 16}};
             }),
             "truncation", "were cut short", "rollout.max_new_tokens");
}

TEST(Alarms, ratios_that_are_far_from_one_for_several_steps) {
  expect_one(raised_by([](int, Json& line) { line["ratio_max"] = 80.0; }), "ratio_tails", "largest ratio of 80",
             "trainer.max_lag");
  expect_one(raised_by([](int, Json& line) { line["dropped_fraction"] = 0.2; }), "ratio_tails", "20 % masked",
             "trainer.max_lag");
  EXPECT_THAT(raised_by([](int step, Json& line) {
                if (step % 2 == 0) line["ratio_max"] = 80.0;
              }),
              IsEmpty())
      << "one step is chance";
}

TEST(Alarms, a_gradient_that_is_far_beyond_those_before) {
  expect_one(raised_by([](int step, Json& line) {
               if (step == 40) line["grad_norm"] = 20.0;
             }),
             "gradient_spike", "norm is 20,", "trainer.max_grad_norm");
}

TEST(Alarms, a_kind_of_task_that_is_unlearned_while_another_is_learned) {
  expect_one(raised_by([](int, Json& line) {
               line["success_by_kind"] = {{"echo", 0.1}, {"bug", 0.9}};
             }),
             "unlearned.echo", "kind echo were solved in 60 %", "trainer.learning_rate");
}

TEST(Alarms, a_reward_that_rises_while_success_does_not) {
  const Change rises = [](int step, Json& line) {
    line["learned_reward"] = 0.5 + 0.1 * (step - 30);
    line["success"] = 0.4;
  };
  expect_one(raised_by(rises), "reward_without_success", "success went from 50 % to 40 %", "reward.weights");
  EXPECT_THAT(raised_by([&](int step, Json& line) {
                rises(step, line);
                line["success"] = 0.5 + 0.01 * (step - 30);
              }),
              IsEmpty());
}

TEST(Alarms, a_loss_without_a_gradient_where_there_is_something_to_learn) {
  expect_one(raised_by([](int, Json& line) { line["grad_norm"] = 0.0; }), "dead_loss", "gradient of 0",
             "algorithm.name");
  EXPECT_THAT(raised_by([](int, Json& line) {
                line["grad_norm"] = 0.0;
                line["groups_with_signal"] = 0;
                line["success"] = 1.0;
                line.erase("success_by_kind");
              }),
              IsEmpty())
      << "there is nothing to learn";
}

// Groups of one, which a teacher makes possible, never have a signal of their own.
TEST(Alarms, a_loss_without_a_gradient_beside_a_teacher) {
  const auto taught = [](double kl) {
    return raised_by([kl](int, Json& line) {
      line["grad_norm"] = 0.0;
      line["groups_with_signal"] = 0;
      line["success"] = 1.0;
      line.erase("success_by_kind");
      line["loss_metrics"] = {{"teacher_kl", kl}};
    });
  };
  expect_one(taught(0.2), "dead_loss", "the teacher is 0.2 nats a token away", "algorithm.name");
  EXPECT_THAT(taught(0), IsEmpty()) << "it thinks the same";
}

TEST(Alarms, one_that_holds_is_raised_again_after_some_time_and_not_each_step) {
  Alarms alarms;
  std::vector<int> steps;
  for (int step = 1; step <= 150; ++step) {
    Json line = good_step(step);
    line["max_abs_logprob_diff"] = step % 2;  // comes and goes
    if (!alarms.step(line).empty()) steps.push_back(step);
  }
  EXPECT_THAT(steps, ElementsAre(1, 1 + kAlarmAgain, 1 + 2 * kAlarmAgain));
}

TEST(Alarms, a_step_that_comes_again_takes_the_place_of_the_first) {
  Alarms once, twice;
  for (int step = 1; step <= 60; ++step) {
    Json line = good_step(step);
    if (step > 30) line["entropy"] = 0.03;
    Json early = line;
    early.erase("entropy");
    early.erase("grad_norm");
    (void)twice.step(early);
    EXPECT_EQ(once.step(line).size(), twice.step(line).size()) << step;
  }
}

TEST(Alarms, what_lines_lack_or_have_of_another_type_says_nothing) {
  Alarms alarms;
  for (int step = 1; step <= 40; ++step) {
    EXPECT_THAT(
        alarms.step({{"step", step}, {"success", "all"}, {"outcomes", 3}, {"success_by_kind", {{"a", Json()}}}}),
        IsEmpty());
  }
}

// One task of a kind a step, solved or not at all: its success is a coin, whatever is learned.
TEST(Alarms, tasks_that_are_solved_by_chance_are_not_unlearned) {
  Random random(7);
  int raised = 0;
  for (int run = 0; run < 20; ++run) {
    Alarms alarms;
    for (int step = 1; step <= 500; ++step) {
      Json line = good_step(step);
      for (const char* kind : {"a", "b", "c", "d"}) line["success_by_kind"][kind] = random.uniform() < 0.5 ? 1.0 : 0.0;
      raised += static_cast<int>(alarms.step(line).size());
    }
  }
  // 40,000 windows of chance.
  EXPECT_LE(raised, 4);
}

TEST(Alarms, steps_without_a_signal_are_no_collapse_of_the_entropy) {
  const auto alarms = raised_by([](int step, Json& line) {
    if (step % 5 == 0) return;
    line.update({{"groups_with_signal", 0}, {"entropy", 0.0}, {"grad_norm", 0.0}});
  });
  for (const Alarm& alarm : alarms) EXPECT_EQ(alarm.name, "no_signal") << alarm.evidence;
  EXPECT_FALSE(alarms.empty());
}

TEST(Alarms, one_token_of_many_with_a_large_ratio_is_no_tail) {
  const auto with = [](double mean) {
    return raised_by([mean](int, Json& line) { line.update({{"ratio_max", 40.0}, {"mismatch_kl", mean}}); });
  };
  EXPECT_THAT(with(1e-4), IsEmpty());
  expect_one(with(0.05), "ratio_tails", "largest ratio of 40", "trainer.max_lag");
}

TEST(Alarms, those_that_are_off_are_not_raised_and_the_others_are) {
  Alarms alarms({"truncation", "unlearned"});
  std::vector<std::string> names;
  for (int step = 1; step <= 60; ++step) {
    Json line = good_step(step);
    if (step > 30) {
      line["outcomes"] = {{"truncated", 32}};
      line["success_by_kind"] = {{"echo", 0.0}};
      line["max_abs_logprob_diff"] = 0.5;
    }
    for (const Alarm& alarm : alarms.step(line)) names.push_back(alarm.name);
  }
  EXPECT_THAT(names, ElementsAre("mismatch"));
}

TEST(Alarms, published_bytes_that_are_not_the_weights_are_named_at_once) {
  expect_one(raised_by([](int step, Json& line) {
               line["weights_audit"] = {{"version", step}, {"bad", Json::array()}};
               if (step == 40) line["weights_audit"]["bad"] = {"layers.0.qkv (fp8): relative error 1.7"};
             }),
             "published_weights", "layers.0.qkv (fp8)", "model.weights");
}

TEST(Alarms, a_store_of_weights_that_fails_step_after_step_is_named_and_one_that_failed_once_is_not) {
  const auto with = [](auto failures) {
    return raised_by([&](int step, Json& line) { line["trainer"] = {{"store_failures", uint64_t(failures(step))}}; });
  };
  EXPECT_THAT(with([](int step) { return step < 20 ? 0 : 1; }), IsEmpty());
  expect_one(with([](int step) { return step < 40 ? 0 : step - 39; }), "weight_store", "in 3 steps in a row",
             "trainer.weight_store");
}

}  // namespace
}  // namespace tandem::rollout
