// `tandem score --path torch`: the model in LibTorch's operators beside ours, and beside transformers' figures.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "base/random.h"
#include "tests/cli/run_fixture.h"
#include "tests/envs/scratch.h"
#include "tests/model/engine_logprobs.h"
#include "trainer/torch/function_loader.h"

namespace tandem {
namespace {

using model::golden_model;
using testing::HasSubstr;

// Both sides add in float32, in different orders. The largest difference on these models is 1e-5.
constexpr double kFloat32Bound = 5e-5;
// The bound of our bf16, which rounds after every operation: the mean by transformers' own bf16, and of one token at
// most this.
constexpr double kBf16Bound = 0.3;

struct Answer {
  std::vector<double> logprobs;
  std::vector<int32_t> argmax;
};

class OracleTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto library = trainer::find_torch(); !library) GTEST_SKIP() << library.error().message();
  }

  int score(const fs::path& model, const std::string& lines, Arguments more) {
    scratch_.put("lines", lines);
    Arguments arguments = {TANDEM_BINARY, "score",       "--model",  model.string(),
                           "--input",     path("lines"), "--output", path("answers")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Process(arguments, path("said")).wait();
  }
  std::vector<Answer> answers(const fs::path& model, const std::vector<std::vector<int32_t>>& texts, Arguments more) {
    std::string lines;
    for (const auto& tokens : texts) lines += Json{{"tokens", tokens}}.dump() + "\n";
    EXPECT_EQ(score(model, lines, std::move(more)), 0) << said();
    std::vector<Answer> found;
    const std::string all = scratch_.get("answers");
    for (const auto line : split(trim(all), '\n')) {
      const auto json = parse_json(line);
      if (!json || !json->contains("logprobs")) {
        ADD_FAILURE() << line;
        return {};
      }
      EXPECT_TRUE((*json)["logprobs"][0].is_null());
      Answer& answer = found.emplace_back();
      for (size_t i = 1; i < (*json)["logprobs"].size(); ++i) {
        answer.logprobs.push_back((*json)["logprobs"][i].get<double>());
      }
      answer.argmax = (*json)["argmax"].get<std::vector<int32_t>>();
    }
    EXPECT_EQ(found.size(), texts.size());
    return found;
  }

  // A copy of a golden model whose config.json says something else.
  fs::path altered(const std::string& name, const std::function<void(Json&)>& alter) {
    const fs::path copy = scratch_.path / ("altered-" + std::to_string(copies_++));
    fs::copy(golden_model(name), copy);
    Json config = json(copy / "config.json");
    alter(config);
    scratch_.put(copy.filename().string() + "/config.json", config.dump());
    return copy;
  }
  static std::vector<std::vector<int32_t>> golden_texts(const std::string& name) {
    std::vector<std::vector<int32_t>> texts;
    const Json expected = model::expected_of(name);
    for (const Json& item : expected["cases"]) {
      texts.push_back(item["tokens"].get<std::vector<int32_t>>());
    }
    return texts;
  }
  std::string path(const std::string& name) const { return (scratch_.path / name).string(); }
  std::string said() { return scratch_.get("said"); }

  envs::Scratch scratch_;
  int copies_ = 0;
};

double largest_difference(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  double largest = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_EQ(a[i].logprobs.size(), b[i].logprobs.size());
    for (size_t t = 0; t < std::min(a[i].logprobs.size(), b[i].logprobs.size()); ++t) {
      const double difference = std::abs(a[i].logprobs[t] - b[i].logprobs[t]);
      largest = std::isfinite(difference) ? std::max(largest, difference) : INFINITY;
    }
  }
  return largest;
}

constexpr const char* kFp8Model = "llama-fp8";

class OracleFamily : public OracleTest {};
INSTANTIATE_TEST_SUITE_P(Golden, OracleFamily, testing::ValuesIn(model::kGoldenModels), model::model_name);
INSTANTIATE_TEST_SUITE_P(Fp8, OracleFamily, testing::Values(kFp8Model), model::model_name);

TEST_P(OracleFamily, is_our_float32_within_5e_5_and_chooses_the_same_tokens) {
  const auto texts = golden_texts(GetParam());
  const auto torch = answers(golden_model(GetParam()), texts, {"--path", "torch"});
  const auto ours = answers(golden_model(GetParam()), texts, {"--path", "trainer", "--dtype", "float32"});
  EXPECT_LE(largest_difference(torch, ours), kFloat32Bound);
  // No two logits of these models are nearer than what tells them apart.
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(torch[i].argmax.size(), texts[i].size());
    EXPECT_EQ(torch[i].argmax, ours[i].argmax);
  }
}

TEST_P(OracleFamily, our_bf16_is_as_near_to_it_as_transformers_bf16_is_to_fp32) {
  const auto texts = golden_texts(GetParam());
  const auto torch = answers(golden_model(GetParam()), texts, {"--path", "torch"});
  const auto ours = answers(golden_model(GetParam()), texts, {"--path", "trainer", "--dtype", "bfloat16"});
  EXPECT_LE(largest_difference(torch, ours), kBf16Bound);
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t t = 0; t < torch[i].logprobs.size(); ++t) sum += std::abs(torch[i].logprobs[t] - ours[i].logprobs[t]);
    count += torch[i].logprobs.size();
  }
  EXPECT_LE(sum / static_cast<double>(count), 2 * model::expected_of(GetParam())["bf16_error"].get<double>());
}

TEST_P(OracleFamily, is_what_transformers_computes_in_float32) {
  // Its figures are of the dequantised matrices rounded to bf16, which the oracle does not round.
  if (GetParam() == std::string(kFp8Model)) GTEST_SKIP() << "transformers rounds these weights to bf16";
  const Json cases = model::expected_of(GetParam())["cases"];
  std::vector<Answer> expected;
  for (const Json& item : cases) expected.push_back({item["logprobs"].get<std::vector<double>>(), {}});
  const auto torch = answers(golden_model(GetParam()), golden_texts(GetParam()), {"--path", "torch"});
  EXPECT_LE(largest_difference(torch, expected), kFloat32Bound);
}

// A model that reads one thing wrongly must be seen: the oracle reads it so, and our path as it is.
struct Fault {
  const char* model;
  const char* name;
  std::function<void(Json&)> plant;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.model << ": " << fault.name; }

TEST_F(OracleTest, a_planted_fault_exceeds_the_bound) {
  const auto in_rope = [](const char* key, Json value) {
    return [key, value](Json& config) {
      const char* place = config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
      ASSERT_TRUE(config.contains(place) && config[place].contains(key)) << key;
      config[place][key] = value;
    };
  };
  const auto set = [](const char* key, Json value) {
    return [key, value](Json& config) {
      ASSERT_NE(config.value(key, Json()), value) << key;
      config[key] = value;
    };
  };
  const Fault faults[] = {
      {"llama", "another theta of RoPE", in_rope("rope_theta", 20000.0)},
      {"llama-linear", "another factor", in_rope("factor", 2.5)},
      {"llama-llama3", "another original context", in_rope("original_max_position_embeddings", 48)},
      {"qwen2-yarn", "another factor", in_rope("factor", 3.0)},
      {"llama-yarn-mscale", "another mscale", in_rope("mscale", 0.5)},
      {"mistral", "a window of one more", [](Json& c) { c["sliding_window"] = c["sliding_window"].get<int>() + 1; }},
      {"qwen2-window", "a window of one less",
       [](Json& c) { c["sliding_window"] = c["sliding_window"].get<int>() - 1; }},
      {"qwen3", "another epsilon", set("rms_norm_eps", 1e-3)},
      {"qwen3-moe", "an expert less",
       [](Json& c) { c["num_experts_per_tok"] = c["num_experts_per_tok"].get<int>() - 1; }},
      {"qwen3-moe-plain", "weights normalised", set("norm_topk_prob", true)},
      {"glm4-moe", "another scale of experts", set("routed_scaling_factor", 1.25)},
      {"deepseek-v3", "pairs of RoPE in halves", set("rope_interleave", false)},
      {"deepseek-v3", "a group more", set("topk_group", 3)},
      {"kimi-k2", "another factor", in_rope("factor", 31.0)},
  };
  for (const Fault& fault : faults) {
    const fs::path wrong = altered(fault.model, fault.plant);
    const auto texts = golden_texts(fault.model);
    const auto torch = answers(wrong, texts, {"--path", "torch"});
    const auto ours = answers(golden_model(fault.model), texts, {"--path", "trainer", "--dtype", "float32"});
    EXPECT_GT(largest_difference(torch, ours), 10 * kFloat32Bound) << testing::PrintToString(fault);
  }
}

// Rows of queries and of logits are taken 256 at a time.
TEST_F(OracleTest, texts_longer_than_what_is_computed_at_once_agree) {
  Random random(7);
  for (const char* name : {"llama", "qwen2-window", "glm4", "deepseek-v3"}) {
    const fs::path longer = altered(name, [](Json& config) { config["max_position_embeddings"] = 1024; });
    std::vector<std::vector<int32_t>> texts;
    for (const size_t length : {1, 255, 256, 257, 513, 700}) {
      std::vector<int32_t>& tokens = texts.emplace_back(length);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(101));
    }
    const auto torch = answers(longer, texts, {"--path", "torch"});
    const auto ours = answers(longer, texts, {"--path", "trainer", "--dtype", "float32"});
    EXPECT_LE(largest_difference(torch, ours), kFloat32Bound) << name;
    ASSERT_EQ(torch.size(), texts.size());
    EXPECT_TRUE(torch[0].logprobs.empty());
    EXPECT_EQ(torch[0].argmax, ours[0].argmax);
  }
}

TEST_F(OracleTest, an_adapter_is_added_as_peft_adds_it) {
  for (const char* name : {"lora", "rslora"}) {
    const fs::path folder = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters" / name;
    const Json expected = json(folder / "expected.json");
    const fs::path base =
        golden_model(json(folder / "adapter_config.json")["base_model_name_or_path"].get<std::string>());
    const std::vector<std::vector<int32_t>> texts = {expected["tokens"].get<std::vector<int32_t>>()};
    const auto torch = answers(base, texts, {"--path", "torch", "--adapter", folder.string()});
    const auto without = answers(base, texts, {"--path", "torch"});
    const std::vector<Answer> peft = {{expected["logprobs"].get<std::vector<double>>(), {}}};
    EXPECT_LE(largest_difference(torch, peft), kFloat32Bound) << name;
    EXPECT_GT(largest_difference(torch, without), 10 * kFloat32Bound) << name;
  }
}

TEST_F(OracleTest, what_it_does_not_do_is_refused_by_name) {
  const std::string line = R"({"tokens":[1,2,3]})";
  const std::pair<Arguments, std::string> refused[] = {
      {{"--dtype", "bfloat16"}, "--path torch does not go with --dtype bfloat16"},
      {{"--weights", "fp8"}, "--path torch does not go with --weights fp8"},
      {{"--device", "emulated:0"}, "--path torch does not go with --device emulated:0"},
      {{"--adapter", (fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters/lora").string(), "--live"},
       "--path torch does not go with --live"},
  };
  for (const auto& [more, words] : refused) {
    Arguments arguments = {"--path", "torch"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(score(golden_model("llama"), line, arguments), 2);
    EXPECT_THAT(said(), HasSubstr(words));
  }
  EXPECT_EQ(score(golden_model("llama"), R"({"tokens":[1,101]})", {"--path", "torch"}), 1);
  EXPECT_THAT(scratch_.get("answers"), HasSubstr("tokens[1] is 101, expected 0 to 100"));
}

}  // namespace
}  // namespace tandem
