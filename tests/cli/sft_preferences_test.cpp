// `tandem sft` on pairs of answers: the model comes to prefer what is preferred, and is the same whatever interrupts
// it.
#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class SftPreferences : public RunTest {
 protected:
  static Arguments command(const fs::path& out, Arguments more) {
    Arguments arguments = {TANDEM_BINARY,
                           "sft",
                           std::string("model=") + TANDEM_SOURCE_DIR "/tests/golden/sft/model",
                           "data.preferences=[" + pairs().string() + "]",
                           "out=" + out.string(),
                           "threads=1",
                           "trainer.learning_rate=1e-3",
                           "trainer.epochs=6",
                           "trainer.tokens_per_step=400",
                           "trainer.checkpoint_every=4",
                           "preference.beta=0.2",
                           "data.validation=[" + pairs().string() + "]",
                           "validation.every=6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static int sft(const fs::path& out, const Arguments& more) { return Process(command(out, more), output()).wait(); }
  static fs::path pairs() {
    const fs::path file = root() / "pairs.jsonl";
    if (fs::exists(file)) return file;
    std::ofstream lines(file);
    for (int i = 0; i < 24; ++i) {
      const std::string name = "x" + std::to_string(i);
      lines << Json{{"prompt", "name " + name}, {"chosen", "yes, " + name}, {"rejected", "no, never " + name}}.dump()
            << "\n";
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
  static bool says(std::string_view words) { return text(output()).find(words) != std::string::npos; }
};

TEST_F(SftPreferences, are_learned_and_an_interrupted_training_goes_on_to_the_same_model) {
  const fs::path whole = root() / "preferred", parts = root() / "preferred-parts";
  ASSERT_EQ(sft(whole, {}), 0) << text(output());
  const auto steps = lines_of(whole, "step"), validations = lines_of(whole, "validation");
  ASSERT_GE(steps.size(), 12U);
  EXPECT_NEAR(steps.front()["loss"].get<double>(), 0.6931, 1e-4);  // ln 2: nothing has moved yet
  EXPECT_NEAR(validations.front()["loss"].get<double>(), 0.6931, 1e-4);
  EXPECT_EQ(validations.front()["accuracy"], 0.5);
  EXPECT_EQ(validations.back()["pairs"], 24);
  EXPECT_EQ(validations.back()["accuracy"], 1.0);
  EXPECT_GT(validations.back()["margin"].get<double>(), 0.5);
  EXPECT_LT(validations.back()["loss"].get<double>(), 0.5);

  // First while the reference is computed, or soon after, then in the middle.
  const fs::path reference = parts.string() + ".work/reference.jsonl";
  Arguments resumed;
  for (const size_t until : {0, 5}) {
    Process process(command(parts, resumed), output());
    const auto there = [&] { return until == 0 ? fs::exists(reference) : lines_of(parts, "step").size() >= until; };
    ASSERT_TRUE(within(60s, [&] { return there() || !process.running(); }));
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
    EXPECT_FALSE(fs::exists(parts));
    resumed = {"--resume"};
  }
  ASSERT_EQ(sft(parts, resumed), 0) << text(output());
  EXPECT_EQ(digest_of(text(parts / "model.safetensors")), digest_of(text(whole / "model.safetensors")));
  EXPECT_EQ(lines_of(parts), lines_of(whole));
}

TEST_F(SftPreferences, are_shown_marked_and_counted_before_anything_is_trained) {
  const fs::path out = root() / "not-made";
  ASSERT_EQ(sft(out, {"--show", "2"}), 0) << text(output());
  EXPECT_TRUE(says("pairs.jsonl:2, chosen: ")) << text(output());
  EXPECT_TRUE(says("⟦yes, x1")) << text(output());
  EXPECT_TRUE(says("⟦no, never x1")) << text(output());
  ASSERT_EQ(sft(out, {"--dry-run"}), 0) << text(output());
  EXPECT_TRUE(says("24 pairs")) << text(output());
  EXPECT_TRUE(says("loss sigmoid, beta 0.2")) << text(output());
  EXPECT_EQ(sft(out, {"--show", "25"}), 2);
  EXPECT_TRUE(says("there are 24 pairs to train on")) << text(output());
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(SftPreferences, keys_that_contradict_each_other_are_refused) {
  const auto refuses = [&](const Arguments& more, const char* words) {
    EXPECT_EQ(sft(root() / "never", more), 2) << words;
    EXPECT_TRUE(says(words)) << text(output());
  };
  refuses({"data.train=[" + pairs().string() + "]"}, "data.train and data.preferences both name files");
  refuses({"preference.loss=dpo"}, "sigmoid");
  refuses({"preference.loss=ipo", "preference.label_smoothing=0.1"}, "label_smoothing is of the loss sigmoid");
  refuses({"data.preferences=[" + (root() / "model").string() + "]"}, "is a folder, and not that of a run");
  refuses({"data.preferences=[]", "data.train=[" + pairs().string() + "]"}, "preference.beta is of pairs of answers");
}

}  // namespace
}  // namespace tandem
