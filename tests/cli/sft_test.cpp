// `tandem sft` on transcripts, from the files to a model; whatever interrupts it, the same one.
#include <algorithm>
#include <fstream>
#include <random>

#include "tests/cli/run_fixture.h"
#include "tests/repetitions.h"

namespace tandem {
namespace {

const fs::path kSftGolden = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "sft";

class Sft : public RunTest {
 protected:
  static Arguments command(const fs::path& out, Arguments more) {
    Arguments arguments = {TANDEM_BINARY,
                           "sft",
                           "model=" + (kSftGolden / "model").string(),
                           "data.train=[" + (kSftGolden / "chats.jsonl").string() + "]",
                           "out=" + out.string(),
                           "threads=1",
                           "trainer.learning_rate=1e-3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static int sft(const fs::path& out, const Arguments& more) { return Process(command(out, more), output()).wait(); }
  static fs::path work(const fs::path& out) { return out.string() + ".work"; }
  static fs::path file(const std::string& name, const std::string& content) {
    std::ofstream(root() / name) << content;
    return root() / name;
  }
  static std::vector<Json> lines_of(const fs::path& path, std::string_view event = "") {
    std::vector<Json> found;
    const std::string all = text(path);
    for (const auto line : split(trim(all), '\n')) {
      auto parsed = parse_json(line);
      if (parsed && parsed->is_object() && (event.empty() || parsed->value("event", "") == event))
        found.push_back(std::move(*parsed));
    }
    return found;
  }
  static bool says(std::string_view words) { return text(output()).find(words) != std::string::npos; }
};

TEST_F(Sft, a_training_that_is_interrupted_and_goes_on_gives_the_same_model) {
  const Arguments job = {"trainer.epochs=30", "trainer.tokens_per_step=500", "trainer.checkpoint_every=7",
                         "data.validation=[" + (kSftGolden / "chats.jsonl").string() + "]", "validation.every=5"};
  const fs::path whole = root() / "whole", parts = root() / "parts";
  ASSERT_EQ(sft(whole, job), 0) << text(output());
  EXPECT_TRUE(says(whole.string()));
  auto expected = lines_of(work(whole) / "metrics.jsonl");
  const auto steps = lines_of(work(whole) / "metrics.jsonl", "step");
  ASSERT_GE(steps.size(), 40u);
  EXPECT_LT(steps.back()["loss"].get<double>(), 0.8 * steps.front()["loss"].get<double>());

  Arguments resumed = job;
  int interrupts = 0;
  for (const int until : {5, 20}) {
    Process process(command(parts, resumed), output());
    const auto there = [&] {
      return lines_of(work(parts) / "metrics.jsonl", "step").size() >= static_cast<size_t>(until);
    };
    ASSERT_TRUE(within(60s, [&] { return there() || !process.running(); }));
    process.signal(interrupts == 0 ? SIGTERM : SIGINT);
    ASSERT_EQ(process.wait(), 75) << text(output());
    EXPECT_TRUE(says("the same command with --resume goes on"));
    EXPECT_FALSE(fs::exists(parts));
    if (++interrupts == 1) resumed.push_back("--resume");
  }
  ASSERT_EQ(sft(parts, resumed), 0) << text(output());
  EXPECT_TRUE(says("going on after step"));
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"})
    EXPECT_EQ(digest_of(text(parts / name)), digest_of(text(whole / name))) << name;
  auto found = lines_of(work(parts) / "metrics.jsonl");
  for (auto* each : {&expected, &found}) {
    for (Json& line : *each) line.erase("seconds");
  }
  EXPECT_EQ(found, expected);
  for (const fs::path& folder : {work(whole), work(parts)}) {
    EXPECT_FALSE(fs::exists(folder / "checkpoints"));
    EXPECT_TRUE(fs::exists(folder / "config.json"));
  }
  EXPECT_EQ(sft(parts, resumed), 0);
  EXPECT_TRUE(says("its training has ended")) << text(output());
  EXPECT_EQ(sft(parts, job), 2);
  EXPECT_TRUE(says("is there already")) << text(output());
}

// Ended by kill -9 at moments that a random number chooses; whatever was lost is taken again, to the same bits.
TEST_F(Sft, a_warm_start_that_is_killed_again_and_again_gives_the_same_model) {
  const uint64_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("random moments by seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto job = [&](const fs::path& out, bool resume) {
    Arguments arguments = {TANDEM_BINARY,
                           "sft",
                           "model=" + (root() / "model").string(),
                           "out=" + out.string(),
                           "kinds=[set,count]",
                           "transcripts_per_step=2",
                           "stages.first.steps=40",
                           "stages.second.steps=20",
                           "checkpoint_seconds=0",
                           "threads=1",
                           "--json"};
    if (resume) arguments.push_back("--resume");
    return arguments;
  };
  const fs::path whole = root() / "whole-start", parts = root() / "parts-start";
  ASSERT_EQ(Process(job(whole, false), output()).wait(), 0) << text(output());
  const auto told = lines_of(output(), "step");
  ASSERT_EQ(told.size(), 60u);

  int64_t behind = 0;  // steps that a checkpoint has
  for (int attempt = 0; attempt < repetitions(5, 50); ++attempt) {
    const size_t until = random() % 12;
    fs::remove(output());  // what the one before said must not count for one that is killed before it says anything
    Process process(job(parts, true), output());
    ASSERT_TRUE(within(60s, [&] { return lines_of(output(), "step").size() >= until || !process.running(); }));
    process.signal(SIGKILL);
    process.wait();
    const auto resumed = lines_of(output(), "resumed"), saved = lines_of(output(), "checkpoint");
    // What was saved is not lost.
    if (!resumed.empty()) {
      EXPECT_GE(resumed[0]["step"].get<int64_t>(), behind) << text(output());
    }
    if (!saved.empty()) behind = saved.back()["step"].get<int64_t>();
    if (fs::exists(parts)) break;
  }
  ASSERT_EQ(Process(job(parts, true), output()).wait(), 0) << text(output());
  EXPECT_EQ(digest_of(text(parts / "model.safetensors")), digest_of(text(whole / "model.safetensors")));
  EXPECT_FALSE(fs::exists(work(parts) / "checkpoints"));
  EXPECT_EQ(Process(job(parts, true), output()).wait(), 0);
  EXPECT_TRUE(says("its training has ended")) << text(output());
}

TEST_F(Sft, a_warm_start_that_is_stopped_saves_and_goes_on_with_its_own_config_alone) {
  const fs::path out = root() / "stopped-start";
  const Arguments job = {"sft",
                         "model=" + (root() / "model").string(),
                         "out=" + out.string(),
                         "kinds=[set]",
                         "transcripts_per_step=2",
                         "stages.first.steps=100000",
                         "threads=1"};
  Arguments begin = job;
  begin.insert(begin.begin(), TANDEM_BINARY);
  fs::remove(output());
  {
    Process process(begin, output());
    ASSERT_TRUE(within(60s, [&] { return says("step   2/") || !process.running(); }));
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait(), 75) << text(output());
  }
  EXPECT_TRUE(says("the same command with --resume goes on")) << text(output());
  EXPECT_TRUE(fs::exists(work(out) / "checkpoints" / "latest"));
  EXPECT_EQ(tandem(job), 1);
  EXPECT_TRUE(says("is of a training that has not ended")) << text(output());
  Arguments other = job;
  other.insert(other.end(), {"seed=7", "--resume"});
  EXPECT_EQ(tandem(other), 2);
  EXPECT_TRUE(says("seed was 1 and is 7")) << text(output());
  // Demonstrations that are all too long are an error, not a wait without end.
  const std::string short_out = "out=" + (root() / "short-start").string();
  EXPECT_EQ(tandem({"sft", job[1], short_out, "max_tokens=64"}), 2);
  EXPECT_TRUE(says("demonstrations in a row are longer than max_tokens=64")) << text(output());
  // Nothing was learned, so the same command may have another config.
  EXPECT_EQ(tandem({"sft", job[1], short_out, "kinds=[count]", "transcripts_per_step=2", "stages.first.steps=1",
                    "stages.second.steps=0"}),
            0)
      << text(output());
}

TEST_F(Sft, goes_on_with_nothing_but_what_it_began_with) {
  const fs::path out = root() / "changed";
  const Arguments job = {"trainer.epochs=1000", "trainer.checkpoint_every=3"};
  {
    Process process(command(out, job), output());
    ASSERT_TRUE(within(60s, [&] { return fs::exists(work(out) / "checkpoints" / "latest") || !process.running(); }));
    process.signal(SIGKILL);
    process.wait();
  }
  EXPECT_EQ(sft(out, job), 1);
  EXPECT_TRUE(says("is of a training that has not ended")) << text(output());
  EXPECT_EQ(sft(out, {"trainer.epochs=900", "--resume"}), 2);
  EXPECT_TRUE(says("trainer.epochs was 1000 and is 900")) << text(output());
  // A checkpoint on the way is a model too.
  ASSERT_EQ(tandem({"export", work(out), root() / "on-the-way", "--verify"}), 0) << text(output());
  // The same names, and another content.
  const fs::path moving = file("moving.jsonl", text(kSftGolden / "chats.jsonl"));
  const fs::path other = root() / "other-content";
  const Arguments with_file = {"data.train=[" + moving.string() + "]", "trainer.epochs=1000",
                               "trainer.checkpoint_every=3"};
  {
    Process process(command(other, with_file), output());
    ASSERT_TRUE(within(60s, [&] { return fs::exists(work(other) / "checkpoints" / "latest") || !process.running(); }));
    process.signal(SIGKILL);
    process.wait();
  }
  file("moving.jsonl", text(kSftGolden / "chats.jsonl") + text(kSftGolden / "chats.jsonl"));
  Arguments again = with_file;
  again.push_back("--resume");
  EXPECT_EQ(sft(other, again), 2);
  EXPECT_TRUE(says("the checkpoint is of other transcripts")) << text(output());
}

TEST_F(Sft, stops_early_and_keeps_the_best_model) {
  const fs::path out = root() / "early";
  // Learning by heart what is not validated: validation gets worse.
  const fs::path train = file("train.jsonl", R"({"messages": [{"role": "user", "content": "Capital of France?"}, )"
                                             R"({"role": "assistant", "content": "xx xx xx"}]})");
  ASSERT_EQ(sft(out, {"data.train=[" + train.string() + "]",
                      "data.validation=[" + (kSftGolden / "chats.jsonl").string() + "]", "trainer.epochs=200",
                      "trainer.warmup_share=0", "trainer.schedule=constant", "validation.every=2",
                      "validation.patience=3", "--json"}),
            0)
      << text(output());
  const auto ends = lines_of(output(), "end"), validations = lines_of(output(), "validation");
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0]["end"], "stopped_early");
  EXPECT_LT(ends[0]["step"].get<int>(), 200);
  const int best = ends[0]["best_step"].get<int>();
  EXPECT_EQ(ends[0]["step"].get<int>(), best + 6);
  for (const Json& validation : validations) {
    if (validation["step"] == 0) continue;
    EXPECT_GE(validation["loss"].get<double>(), ends[0]["best_loss"].get<double>());
  }
  // The model is that of the best step: training so far and no further gives it again.
  const fs::path again = root() / "early-again";
  ASSERT_EQ(sft(again, {"data.train=[" + train.string() + "]", "trainer.epochs=200", "trainer.warmup_share=0",
                        "trainer.schedule=constant", "trainer.steps=" + std::to_string(best)}),
            0);
  EXPECT_EQ(digest_of(text(again / "model.safetensors")), digest_of(text(out / "model.safetensors")));
}

TEST_F(Sft, shows_a_sample_with_what_is_learned_from_marked) {
  const fs::path out = root() / "never";
  ASSERT_EQ(sft(out, {"--show", "2"}), 0) << text(output());
  EXPECT_TRUE(says("<|im_start|>user\nCapital of France?<|im_end|>\n<|im_start|>assistant\n⟦Paris.<|im_end|>⟧\n"))
      << text(output());
  EXPECT_TRUE(says("chats.jsonl:2: 102 tokens")) << text(output());
  ASSERT_EQ(sft(out, {"--show", "3", "--json"}), 0);
  const Json shown = json(output());
  EXPECT_EQ(shown["ids"].size(), shown["mask"].size());
  EXPECT_EQ(shown["parts"][1]["trained"], true);
  EXPECT_EQ(sft(out, {"--show", "7"}), 2);
  EXPECT_TRUE(says("there are 6 samples")) << text(output());
  ASSERT_EQ(sft(out, {"--dry-run"}), 0);
  EXPECT_TRUE(says("6 transcripts, 1068 tokens, 359 of them learned from")) << text(output());
  EXPECT_FALSE(fs::exists(work(out)));
}

TEST_F(Sft, what_cannot_be_trained_on_is_named_at_once_and_nothing_is_begun) {
  const fs::path out = root() / "never";
  const fs::path bad =
      file("bad.jsonl", R"({"messages": [{"role": "user", "content": "q"}]})"
                        "\n{\"messages\": \n"
                        R"({"messages": [{"role": "user", "content": "q"}, {"role": "robot", "content": "a"}]})"
                        "\n");
  const std::string train = "data.train=[" + bad.string() + "," + (root() / "missing.jsonl").string() + "]";
  EXPECT_EQ(sft(out, {train}), 2);
  for (const char* part : {"4 of what data names cannot be learned from", "bad.jsonl:1: has no assistant message",
                           "bad.jsonl:2: ", "bad.jsonl:3: messages[1] (robot): role \"robot\" is not known",
                           "missing.jsonl: No such file or directory"})
    EXPECT_TRUE(says(part)) << part << "\n" << text(output());
  EXPECT_EQ(sft(out, {"data.train=[" + file("empty.jsonl", "\n").string() + "]"}), 2);
  EXPECT_TRUE(says("empty.jsonl: is empty")) << text(output());
  EXPECT_EQ(sft(out, {"data.max_tokens=20"}), 2);
  EXPECT_TRUE(
      says("every transcript to train on is longer than data.max_tokens=20: the shortest of those has 31 tokens"))
      << text(output());
  EXPECT_EQ(sft(out, {"stages.first.steps=3"}), 2);
  EXPECT_TRUE(says("stages.first.steps is of the warm start")) << text(output());
  EXPECT_EQ(tandem({"sft", "data.max_tokens=20"}), 2);
  EXPECT_TRUE(says("data.max_tokens is of training on transcripts, and data.train names none")) << text(output());
  EXPECT_EQ(sft(out, {"validation.patience=3"}), 2);
  EXPECT_TRUE(says("nothing is validated")) << text(output());
  EXPECT_EQ(tandem({"sft", "nowhere.yaml"}), 2);
  EXPECT_FALSE(fs::exists(out) || fs::exists(work(out)));
}

TEST_F(Sft, the_page_of_all_keys_is_the_one_that_is_printed) {
  ASSERT_EQ(tandem({"config", "reference", "--of", "sft"}), 0);
  EXPECT_EQ(text(output()), text(fs::path(TANDEM_SOURCE_DIR) / "docs" / "sft-config.md"))
      << "tandem config reference --of sft > docs/sft-config.md";
  for (const char* config : {"sft.yaml", "warm_start.yaml"}) {
    Arguments arguments = {"config", "check", "--of", "sft", fs::path(TANDEM_SOURCE_DIR) / "configs" / config};
    if (config[0] == 's') arguments.push_back("data.train=[chats.jsonl]");
    EXPECT_EQ(tandem(arguments), 0) << text(output());
  }
}

TEST_F(Sft, learns_from_the_good_episodes_of_a_run_with_the_same_tokenizer) {
  const fs::path run_dir = root() / "run", out = root() / "of-run";
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=2", "tasks.floors=false"}, run_dir), 0) << text(output());
  size_t good = 0;
  for (const Json& episode : episodes(run_dir, true))
    good += episode["split"] == "train" && episode["reward"] == 1.0 && !episode["tokens"].empty();
  ASSERT_GT(good, 0u);
  const std::string model = "model=" + (run_dir / "model").string(), train = "data.train=[" + run_dir.string() + "]";
  ASSERT_EQ(sft(out, {model, train, "trainer.epochs=1", "--json"}), 0) << text(output());
  EXPECT_EQ(lines_of(output(), "begin")[0]["train"]["samples"], good);
  EXPECT_GT(lines_of(output(), "begin")[0]["left_out"]["heldout"].get<int>(), 0);
  // The lines of `tandem episodes --tokens` are the same episodes.
  const fs::path lines = file("episodes.jsonl", text(root() / "episodes"));
  ASSERT_EQ(sft(root() / "never", {model, "data.train=[" + lines.string() + "]", "--dry-run", "--json"}), 0)
      << text(output());
  EXPECT_EQ(lines_of(output(), "begin")[0]["train"]["samples"], good);
  EXPECT_EQ(sft(root() / "never", {train}), 2);
  EXPECT_TRUE(says("its episodes are tokens of another tokenizer")) << text(output());
}

}  // namespace
}  // namespace tandem
