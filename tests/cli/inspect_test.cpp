// `tandem inspect`: what a model is, and all that stands in the way of using it.
#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class Inspect : public RunTest {
 protected:
  static Json inspect(const fs::path& path, int expected_code) {
    EXPECT_EQ(tandem({"inspect", path.string(), "--json", "--context", "100", "--sequences", "3"}), expected_code)
        << text(output());
    return json(output());
  }
};

TEST_F(Inspect, a_model_directory_tells_its_shape_and_what_it_takes) {
  const Json found = inspect(root() / "model", 0);
  EXPECT_EQ(found["family"], "llama");
  EXPECT_EQ(found["problems"], Json::array());
  EXPECT_GT(found["tensors"]["BF16"].get<int>(), 10);
  EXPECT_GT(found["tokenizer"]["tokens"].get<int>(), 200);
  EXPECT_EQ(found["chat_template"]["tool_dialect"], "hermes");
  const Json& config = found["config"];
  const auto number = [&](const char* key) { return config[key].get<uint64_t>(); };
  const uint64_t token = 2 * 2 * number("num_hidden_layers") * number("num_key_value_heads") * number("head_dim");
  EXPECT_EQ(found["memory"]["keys_and_values_per_token"], token);
  EXPECT_EQ(found["memory"]["keys_and_values"], token * 100 * 3);
  // What safetensors holds is what was counted: a tied head has no tensor of its own.
  EXPECT_NEAR(static_cast<double>(fs::file_size(root() / "model" / "model.safetensors")),
              2 * found["parameters"].get<double>(), 1e4);
  ASSERT_EQ(tandem({"inspect", (root() / "model").string()}), 0);
  EXPECT_NE(text(output()).find("to train"), std::string::npos) << text(output());
}

TEST_F(Inspect, every_problem_of_a_directory_is_named_at_once) {
  const fs::path folder = root() / "inspected";
  ASSERT_TRUE(make_directories(folder));
  std::ofstream(folder / "config.json") << R"({"model_type": "mamba"})";
  std::ofstream(folder / "tokenizer.json") << "{";
  const Json found = inspect(folder, 1);
  std::string problems;
  for (const Json& problem : found["problems"]) problems += problem.get<std::string>() + "\n";
  for (const char* part : {"mamba", "tokenizer.json", "safetensors", "template"})
    EXPECT_NE(problems.find(part), std::string::npos) << part << " is not in\n" << problems;
}

TEST_F(Inspect, single_files_are_read_too) {
  const fs::path golden = TANDEM_SOURCE_DIR "/tests/golden/gguf";
  const Json gguf = inspect(golden / "tiny-llama.gguf", 0);
  EXPECT_EQ(gguf["format"], "GGUF");
  EXPECT_EQ(gguf["family"], "llama");
  const Json tensors = inspect(golden / "tiny-llama.safetensors", 0);
  EXPECT_EQ(tensors["parameters"], gguf["parameters"]);
  std::ofstream(root() / "broken.gguf") << "GGUF?";
  EXPECT_EQ(inspect(root() / "broken.gguf", 1)["problems"].size(), 1u);
}

}  // namespace
}  // namespace tandem
