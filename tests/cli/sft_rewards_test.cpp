// `tandem sft preference.loss=reward`: a reward model that tells which answer is preferred, and is the same whatever
// interrupts its training.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class SftRewards : public RunTest {
 protected:
  static Arguments command(const fs::path& out, const Arguments& more) {
    Arguments arguments = {TANDEM_BINARY,
                           "sft",
                           std::string("model=") + TANDEM_SOURCE_DIR "/tests/golden/sft/model",
                           "data.preferences=[" + pairs(0, 24).string() + "]",
                           "data.validation=[" + pairs(24, 32).string() + "]",
                           "out=" + out.string(),
                           "preference.loss=reward",
                           "threads=1",
                           "trainer.learning_rate=1e-3",
                           "trainer.epochs=6",
                           "trainer.tokens_per_step=400",
                           "trainer.checkpoint_every=4",
                           "reward.learning_rate=1e-2",
                           "validation.every=6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static int sft(const fs::path& out, const Arguments& more) { return Process(command(out, more), output()).wait(); }
  static fs::path pairs(int begin, int end) {
    const fs::path file = root() / ("reward-pairs-" + std::to_string(begin) + ".jsonl");
    if (fs::exists(file)) return file;
    std::ofstream lines(file);
    for (int i = begin; i < end; ++i) {
      const std::string name = "x" + std::to_string(i);
      Json line = {{"prompt", "name " + name}, {"chosen", "yes, " + name}, {"rejected", "no, never " + name}};
      if (i % 5 == 0) line["margin"] = 0.5;
      lines << line.dump() << "\n";
    }
    return file;
  }
  static std::vector<Json> lines_of(const fs::path& out, std::string_view event = "") {
    std::vector<Json> found;
    const std::string all = text(out.string() + ".work/metrics.jsonl");
    for (const auto line : split(trim(all), '\n')) {
      auto parsed = parse_json(line);
      if (!parsed || !parsed->is_object() || (!event.empty() && parsed->value("event", "") != event)) continue;
      parsed->erase("seconds");
      found.push_back(std::move(*parsed));
    }
    return found;
  }
  // What `tandem score --reward` answers: its lines on stdout.
  static std::vector<Json> score(const fs::path& model, const fs::path& input, const Arguments& more = {}) {
    Arguments arguments = {"score", "--reward", "--model", model.string(), "--input", input.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(tandem(arguments), 0) << text(output());
    std::vector<Json> answers;
    const std::string said = text(output());
    for (const auto line : split_lines(said)) {
      if (auto parsed = parse_json(line); parsed && parsed->is_object()) answers.push_back(std::move(*parsed));
    }
    return answers;
  }
};

TEST_F(SftRewards, are_learned_scored_and_the_same_after_interrupts) {
  const fs::path whole = root() / "judge", parts = root() / "judge-parts";
  ASSERT_EQ(sft(whole, {}), 0) << text(output());
  const auto steps = lines_of(whole, "step"), validations = lines_of(whole, "validation");
  ASSERT_GE(steps.size(), 12U);
  EXPECT_EQ(steps.front()["accuracy"], 0.5);
  EXPECT_EQ(steps.front()["reward"], 0) << "the head begins at 0";
  EXPECT_EQ(steps.back()["accuracy"], 1.0);
  EXPECT_GT(steps.back()["margin"].get<double>(), 1);
  EXPECT_EQ(validations.front()["accuracy"], 0.5);
  EXPECT_EQ(validations.back()["pairs"], 8);
  EXPECT_GE(validations.back()["accuracy"].get<double>(), 0.9);
  EXPECT_LT(validations.back()["loss"].get<double>(), 0.6);
  EXPECT_FALSE(fs::exists(whole.string() + ".work/reference.jsonl")) << "there is no reference";

  Arguments resumed;
  for (const size_t until : {2, 7}) {
    Process process(command(parts, resumed), output());
    ASSERT_TRUE(within(60s, [&] { return lines_of(parts, "step").size() >= until || !process.running(); }));
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
    EXPECT_FALSE(fs::exists(parts));
    resumed = {"--resume"};
  }
  // What was interrupted is a reward model, too.
  ASSERT_EQ(tandem({"export", parts.string() + ".work", (root() / "judge-half").string()}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("reward head: "));
  EXPECT_TRUE(fs::exists(root() / "judge-half" / "reward_head.safetensors"));
  ASSERT_EQ(sft(parts, resumed), 0) << text(output());
  for (const char* name : {"model.safetensors", "reward_head.safetensors"})
    EXPECT_EQ(digest_of(text(parts / name)), digest_of(text(whole / name))) << name;
  EXPECT_EQ(lines_of(parts), lines_of(whole));

  const auto by_engine = score(whole, pairs(24, 32), {"--json"});
  ASSERT_EQ(by_engine.size(), 9U) << text(output());
  // The model is that of the best validation, which added up the same numbers.
  Json best;
  for (const Json& validation : validations) {
    if (validation["best"] == true) best = validation;
  }
  double chosen = 0, rejected = 0;
  for (size_t i = 0; i < 8; ++i) {
    chosen += by_engine[i]["chosen"].get<double>();
    rejected += by_engine[i]["rejected"].get<double>();
  }
  EXPECT_EQ(chosen / 8 - rejected / 8, best["margin"].get<double>()) << "to the bit";
  EXPECT_EQ(by_engine.back()["pairs"], 8);
  EXPECT_EQ(by_engine.back()["accuracy"], best["accuracy"]);
  EXPECT_EQ(score(whole, pairs(24, 32), {"--json", "--path", "trainer"}), by_engine);
  EXPECT_EQ(score(whole, pairs(24, 32), {"--json", "--threads", "2"}), by_engine);
  score(whole, pairs(24, 32));
  EXPECT_THAT(text(output()), HasSubstr("8 pairs: right "));
  const fs::path wrong = root() / "wrong-margin.jsonl";
  std::ofstream(wrong) << R"({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "much"})"
                       << "\n";
  EXPECT_NE(tandem({"score", "--reward", "--model", whole.string(), "--input", wrong.string()}), 0);
  EXPECT_THAT(text(output()), HasSubstr("line 1: margin is"));

  ASSERT_EQ(tandem({"inspect", whole.string()}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("reward head"));
  fs::copy_file(whole / "model.safetensors", whole / "reward_head.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_EQ(tandem({"inspect", whole.string()}), 1);
  EXPECT_THAT(text(output()), HasSubstr("reward_head.safetensors: has a tensor"));
}

TEST_F(SftRewards, leave_the_model_as_it_is_where_the_head_alone_learns) {
  const fs::path out = root() / "head-alone";
  ASSERT_EQ(sft(out, {"reward.trunk=false", "reward.center_rewards_coefficient=0.01", "reward.margin=0.1",
                      "trainer.epochs=2"}),
            0)
      << text(output());
  EXPECT_THAT(text(output()), HasSubstr("the model stays as it is, centred by 0.01"));
  const fs::path same = root() / "same";
  ASSERT_EQ(tandem({"export", TANDEM_SOURCE_DIR "/tests/golden/sft/model", same.string()}), 0) << text(output());
  EXPECT_EQ(digest_of(text(out / "model.safetensors")), digest_of(text(same / "model.safetensors")));
  EXPECT_FALSE(fs::exists(same / "reward_head.safetensors"));
}

TEST_F(SftRewards, are_shown_and_keys_that_contradict_each_other_are_refused) {
  const fs::path out = root() / "never";
  ASSERT_EQ(sft(out, {"--show", "1"}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("yes, x0⟦<|im_end|>⟧"));
  ASSERT_EQ(sft(out, {"--dry-run"}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("head of rewards at learning rate 1.0e-02, with the model"));
  const auto refuses = [&](const Arguments& more, const char* words) {
    EXPECT_EQ(sft(out, more), 2) << words;
    EXPECT_THAT(text(output()), HasSubstr(words));
  };
  refuses({"preference.beta=0.2"}, "preference.beta is of training a policy on pairs");
  refuses({"preference.loss=sigmoid"}, "reward.learning_rate is of reward models, and preference.loss is sigmoid");
  refuses({"reward.trunk=false", "lora.rank=2"}, "reward.trunk is false, and lora.rank");
  const fs::path wrong = root() / "wrong-pairs.jsonl";
  std::ofstream(wrong) << R"({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "much"})"
                       << "\n";
  refuses({"data.preferences=[" + wrong.string() + "]"}, "wrong-pairs.jsonl:1: margin is \"much\", not a number");
  EXPECT_EQ(tandem({"score", "--reward", "--model", TANDEM_SOURCE_DIR "/tests/golden/sft/model", "--input",
                    pairs(0, 24).string()}),
            2);
  EXPECT_THAT(text(output()), HasSubstr("has no reward_head.safetensors: it is no reward model"));
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace tandem
