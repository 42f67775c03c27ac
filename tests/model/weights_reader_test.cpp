// Checkpoints that are not what their config.json says.
#include <fmt/format.h>

#include <cmath>

#include "base/file.h"
#include "model/safetensors.h"
#include "model/unused_tensors.h"
#include "model/weights.h"
#include "tests/model/engine_logprobs.h"

namespace tandem::model {
namespace {

class WeightsReader : public testing::Test {
 protected:
  WeightsReader() { fs::copy(golden_model("llama"), folder_); }
  ~WeightsReader() override { fs::remove_all(folder_); }

  // The error of reading the checkpoint with some of its shapes reversed.
  std::string load_with_reversed(const std::vector<std::string>& reversed) {
    const auto checkpoint = std::move(*Safetensors::open(golden_model("llama")));
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      tensors.push_back({name, tensor});
      if (std::ranges::count(reversed, name) > 0) std::ranges::reverse(tensors.back().tensor.shape);
    }
    EXPECT_TRUE(write_safetensors(folder_ / "model.safetensors", tensors));
    return error();
  }
  std::string load_with_config(const char* key, int64_t value) {
    Json config = *parse_json(*read_file(golden_model("llama") / "config.json"));
    config[key] = value;
    EXPECT_TRUE(write_file(folder_ / "config.json", config.dump()));
    return error();
  }
  std::string error() {
    const auto weights = load_weights(folder_, false);
    return weights ? "" : weights.error().to_string();
  }

  fs::path folder_ = fs::temp_directory_path() / fmt::format("tandem-weights-{}", ::getpid());
};

TEST_F(WeightsReader, tensors_of_other_shapes_are_refused_all_at_once_though_they_hold_as_many_numbers) {
  EXPECT_EQ(load_with_reversed({}), "");
  const std::string error =
      load_with_reversed({"model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"});
  EXPECT_NE(error.find("2 tensors are not of the shape that config.json says"), std::string::npos) << error;
  EXPECT_NE(error.find("model.layers.0.mlp.up_proj.weight is [30, 50] and not [50, 30]"), std::string::npos) << error;
  EXPECT_NE(error.find("model.layers.1.mlp.down_proj.weight is [50, 30] and not [30, 50]"), std::string::npos) << error;
}

TEST_F(WeightsReader, a_head_with_other_numbers_than_the_embeddings_it_is_tied_to_is_refused) {
  const auto checkpoint = std::move(*Safetensors::open(golden_model("llama")));
  Json config = *parse_json(*read_file(golden_model("llama") / "config.json"));
  config["tie_word_embeddings"] = true;
  ASSERT_TRUE(write_file(folder_ / "config.json", config.dump()).ok());
  TensorView head = checkpoint.get("model.embed_tokens.weight").value();
  std::vector<std::byte> numbers(head.bytes.begin(), head.bytes.end());
  head.bytes = numbers;
  const auto read_with_head = [&] {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : checkpoint.tensors())
      if (name != "lm_head.weight") tensors.push_back({name, tensor});
    tensors.push_back({"lm_head.weight", head});
    tensors.push_back({"model.layers.9.extra", checkpoint.get("model.norm.weight").value()});
    EXPECT_TRUE(write_safetensors(folder_ / "model.safetensors", tensors));
    return error();
  };
  EXPECT_EQ(read_with_head(), "");
  EXPECT_EQ(unused_tensors(*Safetensors::open(folder_), *read_config(folder_)),
            std::vector<std::string>{"model.layers.9.extra"});
  numbers[0] ^= std::byte{1};
  EXPECT_NE(read_with_head().find("lm_head.weight has other numbers"), std::string::npos);
}

TEST_F(WeightsReader, float32_weights_are_written_with_all_their_digits_and_what_stands_beside_them_is_kept) {
  auto weights = std::move(*load_weights(golden_model("llama"), false, WeightFormat::kFloat32));
  for (float& number : weights.flat<float>())
    if (number != 0) number = std::nextafter(number, 2.0f);  // what lies between parameters is 0
  const fs::path source = folder_ / "source", out = folder_ / "out";
  fs::create_directories(source / "additional_chat_templates");
  ASSERT_TRUE(write_file(source / "additional_chat_templates/tool_use.jinja", "T").ok());
  ASSERT_TRUE(write_file(source / "generation_config.json", R"({"temperature":0.6,"eos_token_id":[9]})").ok());
  ASSERT_TRUE(save_weights(weights, out, source, DType::kF32).ok());
  EXPECT_EQ(load_weights(out, false, WeightFormat::kFloat32)->digest(), weights.digest());
  const Json generation = *parse_json(*read_file(out / "generation_config.json"));
  EXPECT_EQ(generation["temperature"], 0.6);
  EXPECT_NE(generation.value("eos_token_id", Json()), Json::array({9})) << "the model's own comes first";
  EXPECT_EQ(*read_file(out / "additional_chat_templates/tool_use.jinja"), "T");
  // Rounded as float16 has them, they are read back from it.
  EXPECT_GT(round_to_float16(weights), 0u);
  ASSERT_TRUE(save_weights(weights, out, source, DType::kF16).ok());
  EXPECT_EQ(load_weights(out, false, WeightFormat::kFloat32)->digest(), weights.digest());
}

TEST_F(WeightsReader, sizes_that_the_file_cannot_hold_are_refused_before_memory_is_taken_for_them) {
  EXPECT_NE(load_with_config("num_hidden_layers", 100'000'000).find("too few for the 100000000 layers"),
            std::string::npos);
  const std::string error = load_with_config("intermediate_size", 134'217'728);
  EXPECT_NE(error.find("is [50, 30] and not [134217728, 30]"), std::string::npos) << error;
}

}  // namespace
}  // namespace tandem::model
