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

TEST_F(Inspect, a_run_is_refused_with_what_its_name_could_mean_and_what_is_not_there_is_said) {
  fs::create_directories(root() / "a-run");
  ASSERT_TRUE(write_file(root() / "a-run" / "config.resolved.json", "{}"));
  EXPECT_EQ(tandem({"inspect", (root() / "a-run").string()}), 2);
  EXPECT_NE(text(output()).find("is a run, and no model directory"), std::string::npos) << text(output());
  EXPECT_EQ(tandem({"inspect", (root() / "a-run@3").string()}), 2);
  EXPECT_NE(text(output()).find("no checkpoint"), std::string::npos) << text(output());
  EXPECT_EQ(tandem({"inspect", (root() / "nowhere").string()}), 2);
  EXPECT_NE(text(output()).find("there is no file or folder"), std::string::npos) << text(output());
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
  EXPECT_EQ(gguf["problems"], Json::array());
  EXPECT_EQ(gguf["config"]["num_hidden_layers"], 2);
  EXPECT_GT(gguf["tokenizer"]["tokens"].get<int>(), 200);
  EXPECT_GT(gguf["memory"]["keys_and_values"].get<int>(), 0);
  const Json tensors = inspect(golden / "tiny-llama.safetensors", 0);
  EXPECT_EQ(tensors["parameters"], gguf["parameters"]);
  std::ofstream(root() / "broken.gguf") << "GGUF?";
  EXPECT_EQ(inspect(root() / "broken.gguf", 1)["problems"].size(), 1u);
}

TEST_F(Inspect, what_keeps_a_gguf_file_from_being_imported_is_said) {
  const Json blocks = inspect(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/gguf/blocks.gguf", 1);
  ASSERT_EQ(blocks["problems"].size(), 1u) << blocks;
  EXPECT_NE(blocks["problems"][0].get<std::string>().find("blocks.gguf: "), std::string::npos) << blocks;
  EXPECT_EQ(blocks["tensors"]["Q4_K"], 1);
}

TEST_F(Inspect, pickles_are_refused_with_how_to_convert_them) {
  const fs::path folder = root() / "pickled";
  ASSERT_TRUE(make_directories(folder));
  fs::copy(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters/lora/adapter_config.json", folder);
  std::ofstream(folder / "adapter_model.bin") << "PK\x03\x04" << std::string(100, 'x');
  std::ofstream(root() / "old.pth") << "\x80\x02" << std::string(100, 'x');
  for (const fs::path& path : {folder, folder / "adapter_model.bin", root() / "old.pth"}) {
    const Json found = inspect(path, 1);
    ASSERT_EQ(found["problems"].size(), 1u) << found;
    const auto problem = found["problems"][0].get<std::string>();
    EXPECT_NE(problem.find("a pickle checkpoint"), std::string::npos) << problem;
    EXPECT_NE(problem.find("safe_serialization=True"), std::string::npos) << problem;
  }
}

TEST_F(Inspect, a_sentence_encoder_and_an_adapter_say_what_they_are) {
  const fs::path golden = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden";
  const Json encoder = inspect(golden / "encoders" / "sentences", 0);
  EXPECT_EQ(encoder["family"], "bert");
  EXPECT_EQ(encoder["config"]["hidden_size"], json(golden / "encoders" / "sentences" / "config.json")["hidden_size"]);
  EXPECT_EQ(encoder["problems"], Json::array());
  const Json adapter = inspect(golden / "adapters" / "lora", 0);
  EXPECT_EQ(adapter["format"], "LoRA");
  EXPECT_EQ(adapter["adapter"]["rank"], 4);
  EXPECT_EQ(adapter["adapter"]["scale"], 1.5);
  EXPECT_EQ(adapter["adapter"]["targets"], (Json{"down_proj", "q_proj", "v_proj"}));
  for (const char* name : {"encoders/sentences", "adapters/lora"}) {
    const fs::path broken = root() / "without-weights";
    fs::remove_all(broken);
    fs::copy(golden / name, broken, fs::copy_options::recursive);
    for (const char* file : {"model.safetensors", "adapter_model.safetensors"}) fs::remove(broken / file);
    EXPECT_EQ(inspect(broken, 1)["problems"].size(), 1u) << name;
  }
}

TEST_F(Inspect, tensors_with_nan_are_named_where_numbers_are_read_and_wherever_they_are_loaded) {
  const fs::path model = root() / "nan";
  fs::copy(root() / "model", model, fs::copy_options::recursive);
  // The last tensor's last two numbers, bf16.
  std::fstream file(model / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  file.write("\x80\xff\xc0\x7f", 4);
  file.close();
  EXPECT_EQ(inspect(model, 0)["problems"], Json::array());
  ASSERT_EQ(tandem({"inspect", model.string(), "--numbers"}), 1);
  const std::string said = text(output());
  EXPECT_NE(said.find(", 2 are NaN or infinite"), std::string::npos) << said;
  ASSERT_TRUE(write_file(root() / "lines", "{\"tokens\":[3,5,8]}\n"));
  tandem({"score", "--model", model, "--input", root() / "lines", "--output", root() / "answers"});
  EXPECT_NE(text(output()).find(", 2 are NaN or infinite"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
