// Training on chats beside transformers: the same ids, the same mask, the loss of the same steps.
// tests/golden/make_sft.py makes what is expected.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "tests/envs/scratch.h"
#include "trainer/sft/sample_set.h"

namespace tandem::trainer {
namespace {

const fs::path kGolden = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "sft";

Json read_json(const fs::path& path) { return *parse_json(*read_file(path)); }

std::vector<Json> chats() {
  std::vector<Json> all;
  const std::string text = *read_file(kGolden / "chats.jsonl");
  for (const auto line : split(trim(text), '\n')) all.push_back(*parse_json(line));
  return all;
}

Sample sample_of(const ChatRenderer& renderer, const Json& json) {
  const auto chat = read_chat(json);
  EXPECT_TRUE(chat) << chat.error().to_string();
  auto sample = renderer.sample(*chat);
  EXPECT_TRUE(sample) << sample.error().to_string();
  return sample ? *sample : Sample{};
}

// The golden model with the template that has no generation blocks.
fs::path plain_model(const envs::Scratch& folder) {
  fs::copy(kGolden / "model", folder.path, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  fs::copy_file(kGolden / "plain.jinja", folder.path / "chat_template.jinja", fs::copy_options::overwrite_existing);
  return folder.path;
}

TEST(SftGolden, ids_and_mask_are_those_of_transformers_with_generation_blocks_and_without) {
  const Json expected = read_json(kGolden / "expected.json");
  const envs::Scratch folder;
  for (const fs::path& model : {kGolden / "model", plain_model(folder)}) {
    const auto renderer = ChatRenderer::load(model, {});
    ASSERT_TRUE(renderer) << renderer.error().to_string();
    size_t number = 0;
    for (const Json& chat : chats()) {
      const Sample sample = sample_of(*renderer, chat);
      const Json& one = expected["chats"][number++];
      EXPECT_EQ(Json(sample.tokens), one["ids"]) << model << " " << number;
      EXPECT_EQ(Json(sample.trained), one["mask"]) << model << " " << number;
      EXPECT_TRUE(renderer->ends_its_turn(sample));
    }
    EXPECT_EQ(number, expected["chats"].size());
  }
}

TEST(SftGolden, arguments_in_openais_notation_are_the_objects_that_they_say) {
  const auto renderer = ChatRenderer::load(kGolden / "model", {});
  ASSERT_TRUE(renderer);
  int calls = 0;
  for (Json chat : chats()) {
    const Sample as_objects = sample_of(*renderer, chat);
    for (Json& message : chat["messages"]) {
      if (!message.contains("tool_calls")) continue;
      for (Json& call : message["tool_calls"]) {
        call["function"]["arguments"] = call["function"]["arguments"].dump(2);
        ++calls;
      }
    }
    EXPECT_EQ(sample_of(*renderer, chat).tokens, as_objects.tokens);
  }
  EXPECT_EQ(calls, 4);
}

// Templates as their makers publish them, none with generation blocks.
TEST(SftGolden, the_turns_of_published_templates_are_told) {
  for (const char* name : {"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "Qwen3-Coder"}) {
    const envs::Scratch folder;
    const fs::path model = plain_model(folder);
    fs::copy_file(kGolden.parent_path() / "chat_templates" / fmt::format("{}.jinja", name),
                  model / "chat_template.jinja", fs::copy_options::overwrite_existing);
    const auto renderer = ChatRenderer::load(model, {});
    ASSERT_TRUE(renderer) << renderer.error().to_string();
    for (const Json& chat : chats()) {
      const auto expected = std::count_if(chat["messages"].begin(), chat["messages"].end(),
                                          [](const Json& message) { return message["role"] == "assistant"; });
      int turns = 0;
      for (const auto& run : renderer->runs_of(sample_of(*renderer, chat))) {
        turns += run.trained;
        EXPECT_TRUE(!run.trained || run.text.find("<tool_response>") == std::string::npos) << run.text;
        EXPECT_TRUE(!run.trained || run.text.ends_with("<|im_end|>")) << name << ": " << run.text;
      }
      EXPECT_EQ(turns, expected) << name;
    }
  }
}

TEST(SftGolden, the_first_steps_have_the_loss_and_the_gradient_of_transformers) {
  const Json expected = read_json(kGolden / "expected.json");
  const Json& o = expected["optimizer"];
  auto weights = model::load_weights(kGolden / "model", true);
  ASSERT_TRUE(weights) << weights.error().to_string();
  auto learner = Learner::create(std::move(*weights), *kernels::Stream::cpu(1),
                                 {.learning_rate = {.peak = o["learning_rate"].get<double>()},
                                  .beta1 = o["beta1"].get<double>(),
                                  .beta2 = o["beta2"].get<double>(),
                                  .epsilon = o["epsilon"].get<double>(),
                                  .weight_decay = o["weight_decay"].get<double>(),
                                  .max_grad_norm = o["max_grad_norm"].get<double>()});
  ASSERT_TRUE(learner) << learner.error().to_string();
  const auto renderer = ChatRenderer::load(kGolden / "model", {});
  std::vector<Sample> batch;
  for (const Json& chat : chats()) batch.push_back(sample_of(*renderer, chat));
  for (const Json& step : expected["steps"]) {
    const auto metrics = learner->imitate(batch);
    ASSERT_TRUE(metrics) << metrics.error().to_string();
    EXPECT_NEAR(metrics->loss / step["loss"].get<double>(), 1, 1e-3);
    EXPECT_NEAR(metrics->grad_norm / step["grad_norm"].get<double>(), 1, 1e-2);
  }
}

TEST(SftGolden, the_first_steps_of_an_adapter_have_the_loss_and_the_gradient_of_peft) {
  const fs::path adapter = kGolden.parent_path() / "adapters" / "training";
  const Json expected = read_json(adapter / "expected.json");
  const Json& o = expected["optimizer"];
  auto weights = model::load_weights(kGolden / "model", true);
  ASSERT_TRUE(weights) << weights.error().to_string();
  auto learner = Learner::create(
      std::move(*weights), *kernels::Stream::cpu(1),
      {.learning_rate = {.peak = o["learning_rate"].get<double>()},
       .beta1 = o["beta1"].get<double>(),
       .beta2 = o["beta2"].get<double>(),
       .epsilon = o["epsilon"].get<double>(),
       .weight_decay = o["weight_decay"].get<double>(),
       .max_grad_norm = o["max_grad_norm"].get<double>(),
       .low_rank = {
           .rank = 4, .alpha = 6, .targets = {"q_proj", "o_proj", "up_proj", "down_proj"}, .start = adapter.string()}});
  ASSERT_TRUE(learner) << learner.error().to_string();
  const auto renderer = ChatRenderer::load(kGolden / "model", {});
  std::vector<Sample> batch;
  for (const Json& chat : chats()) batch.push_back(sample_of(*renderer, chat));
  for (const Json& step : expected["steps"]) {
    const auto metrics = learner->imitate(batch);
    ASSERT_TRUE(metrics) << metrics.error().to_string();
    EXPECT_NEAR(metrics->loss / step["loss"].get<double>(), 1, 1e-3);
    EXPECT_NEAR(metrics->grad_norm / step["grad_norm"].get<double>(), 1, 1e-2);
  }
}

// Samples of one step are rows of one pass. None may see another, or the loss would depend on what a step happens to
// take together.
TEST(SftGolden, a_token_has_the_same_bits_whatever_its_sample_is_packed_with) {
  auto weights = model::load_weights(kGolden / "model", true);
  ASSERT_TRUE(weights);
  auto learner = Learner::create(std::move(*weights), *kernels::Stream::cpu(1), {.max_pass_tokens = 4096});
  ASSERT_TRUE(learner);
  const auto renderer = ChatRenderer::load(kGolden / "model", {});
  std::vector<Sample> batch;
  for (const Json& chat : chats()) batch.push_back(sample_of(*renderer, chat));
  std::vector<Sample> silent = batch;
  for (Sample& sample : silent) sample.trained.assign(sample.tokens.size(), 0);
  int compared = 0;
  for (size_t s = 0; s < batch.size(); ++s) {
    for (size_t i = 1; i < batch[s].tokens.size(); ++i) {
      if (!batch[s].trained[i] || i % 11 != 0) continue;
      silent[s].trained[i] = 1;
      const auto packed = learner->evaluate(silent), alone = learner->evaluate(std::span(&silent[s], 1));
      silent[s].trained[i] = 0;
      ASSERT_TRUE(packed && alone);
      EXPECT_EQ(*packed, *alone) << "sample " << s << ", token " << i;
      EXPECT_GT(*alone, 0);
      ++compared;
    }
  }
  EXPECT_GT(compared, 20);
}

}  // namespace
}  // namespace tandem::trainer
