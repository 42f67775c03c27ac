// `--dtype float32`: log-probabilities and greedy tokens of transformers in fp32, on both paths (make_models.py).
#include <cmath>
#include <fstream>

#include "tests/cli/run_fixture.h"
#include "tests/model/engine_logprobs.h"

namespace tandem {
namespace {

class Float32 : public RunTest {
 protected:
  // What a command answers to the lines, and its exit code.
  static std::pair<int, std::string> answer(Arguments arguments, const std::vector<Json>& lines) {
    std::ofstream file(root() / "lines");
    for (const Json& line : lines) file << line.dump() << "\n";
    file.close();
    arguments.insert(arguments.end(),
                     {"--input", (root() / "lines").string(), "--output", (root() / "answers").string()});
    fs::remove(root() / "answers");
    const int code = tandem(arguments);
    return {code, fs::exists(root() / "answers") ? text(root() / "answers") : ""};
  }
  static std::vector<Json> cases_of(const Json& expected) {
    std::vector<Json> lines;
    for (const Json& item : expected["cases"]) lines.push_back({{"tokens", item["tokens"]}});
    return lines;
  }
};

TEST_F(Float32, scores_are_those_of_transformers_on_both_paths_for_every_family) {
  for (const char* name : model::kGoldenModels) {
    const Json expected = model::expected_of(name);
    const Arguments score = {"score", "--model", model::golden_model(name).string(), "--dtype", "float32", "--path"};
    std::vector<std::string> answers;
    for (const char* path : {"engine", "trainer"}) {
      Arguments arguments = score;
      arguments.push_back(path);
      const auto [code, out] = answer(arguments, cases_of(expected));
      ASSERT_EQ(code, 0) << name << ": " << text(output());
      answers.push_back(out);
    }
    EXPECT_EQ(answers[0], answers[1]) << name;
    size_t line = 0;
    for (const auto part : split(trim(answers[0]), '\n')) {
      const Json found = *parse_json(part), &exact = expected["cases"][line++]["logprobs"];
      ASSERT_EQ(found["logprobs"].size(), exact.size() + 1);
      for (size_t i = 0; i < exact.size(); ++i) {
        ASSERT_NEAR(found["logprobs"][i + 1].get<double>(), exact[i].get<double>(), 1e-4) << name << " at " << i;
      }
    }
    EXPECT_EQ(line, expected["cases"].size());
  }
}

TEST_F(Float32, greedy_tokens_are_those_of_transformers_for_every_family) {
  for (const char* name : model::kGoldenModels) {
    const Json greedy = model::expected_of(name)["greedy"];
    const auto [code, out] =
        answer({"generate", "--model", model::golden_model(name).string(), "--dtype", "float32"},
               {{{"tokens", greedy["prompt"]}, {"temperature", 0}, {"max_tokens", 24}, {"ignore_eos", true}}});
    ASSERT_EQ(code, 0) << name << ": " << text(output());
    EXPECT_EQ((*parse_json(trim(out)))["tokens"], greedy["tokens"]) << name;
  }
}

TEST_F(Float32, is_taken_where_the_config_says_so_unless_told_otherwise) {
  const fs::path golden = model::golden_model("llama"), copy = root() / "in-float32";
  fs::copy(golden, copy);
  Json config = json(golden / "config.json");
  config["dtype"] = "float32";
  std::ofstream(copy / "config.json") << config.dump();
  const auto lines = cases_of(model::expected_of("llama"));
  const auto score = [&](const fs::path& model, const Arguments& options) {
    Arguments arguments = {"score", "--model", model.string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const auto [code, out] = answer(arguments, lines);
    EXPECT_EQ(code, 0) << text(output());
    return out;
  };
  const std::string bf16 = score(golden, {}), float32 = score(golden, {"--dtype", "float32"});
  EXPECT_NE(bf16, float32);
  EXPECT_EQ(score(copy, {}), float32);
  EXPECT_EQ(score(copy, {"--dtype", "bfloat16"}), bf16);
  EXPECT_EQ(score(copy, {"--weights", "bf16"}), bf16);
  EXPECT_NE(answer({"score", "--model", golden.string(), "--dtype", "float32", "--weights", "fp8"}, lines).first, 0);
  EXPECT_NE(text(output()).find("--weights fp8 goes with --dtype bfloat16"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
