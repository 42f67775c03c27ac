// `tandem embed`: embeddings of transformers, one answer a line whatever is wrong with the others (make_encoders.py).
#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

const fs::path kEncoder = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/encoders/sentences";

class Embed : public RunTest {
 protected:
  static std::pair<int, std::vector<Json>> answers(const std::string& lines, Arguments options = {}) {
    std::ofstream(root() / "lines") << lines;
    fs::remove(root() / "answers");
    Arguments arguments = {"embed", "--model", kEncoder.string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(),
                     {"--input", (root() / "lines").string(), "--output", (root() / "answers").string()});
    const int code = tandem(arguments);
    std::vector<Json> found;
    const std::string all = text(root() / "answers");
    for (const auto line : split(trim(all), '\n')) found.push_back(*parse_json(line));
    return {code, found};
  }
};

TEST_F(Embed, gives_the_embeddings_of_transformers_in_order_and_says_what_it_cut) {
  const Json expected = *parse_json(text(kEncoder / "expected.json"));
  std::string lines;
  for (size_t i = 0; i < expected.size(); ++i) {
    lines += Json{{"id", i}, {"text", expected[i]["text"]}}.dump() + "\n";
  }
  const auto [code, found] = answers(lines);
  ASSERT_EQ(code, 0) << text(output());
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i]["id"], i);
    EXPECT_EQ(found[i].value("truncated", false), expected[i]["truncated"].get<bool>()) << i;
    ASSERT_EQ(found[i]["embedding"].size(), expected[i]["embedding"].size());
    for (size_t k = 0; k < expected[i]["embedding"].size(); ++k) {
      ASSERT_NEAR(found[i]["embedding"][k].get<double>(), expected[i]["embedding"][k].get<double>(), 2e-6);
    }
  }
}

TEST_F(Embed, an_embedding_does_not_depend_on_the_lines_around_it_or_on_threads) {
  const std::string line = R"({"id": "x", "text": "The file was deleted."})";
  std::string many = line + "\n";
  for (int i = 0; i < 300; ++i) many += R"({"text": "one two three four )" + std::string(i % 40, 'a') + "\"}\n";
  const auto [code, found] = answers(many + line, {"--threads", "3"});
  ASSERT_EQ(code, 0) << text(output());
  ASSERT_EQ(found.size(), 302u);
  const auto alone = answers(line, {"--threads", "1"}).second;
  EXPECT_EQ(found.front(), alone[0]);
  EXPECT_EQ(found.back(), alone[0]);
}

TEST_F(Embed, a_bad_line_is_answered_in_its_place_and_the_others_go_on) {
  const auto [code, found] = answers(
      "{\"id\":1,\"text\":\"a\"}\n{\"id\":2,\"text\":7}\nnot "
      "json\n{\"id\":3,\"texts\":\"a\"}\n\n{\"id\":4,\"text\":\"\"}");
  EXPECT_EQ(code, 1);
  ASSERT_EQ(found.size(), 5u);
  EXPECT_TRUE(found[0].contains("embedding"));
  EXPECT_EQ(found[1]["id"], 2);
  EXPECT_EQ(found[1]["error"]["message"], "line 2: \"text\" must be a string");
  EXPECT_NE(found[2]["error"]["message"].get<std::string>().find("line 3"), std::string::npos);
  EXPECT_EQ(found[3]["error"]["message"], "line 4: unknown key \"texts\"; did you mean \"text\"?");
  EXPECT_TRUE(found[4].contains("embedding"));
}

TEST_F(Embed, a_model_that_is_no_encoder_is_refused) {
  std::ofstream(root() / "lines") << "";
  const std::string llama = (fs::path(TANDEM_SOURCE_DIR) / "tests/golden/models/llama").string();
  EXPECT_EQ(tandem({"embed", "--model", llama, "--input", (root() / "lines").string()}), 1);
  EXPECT_NE(text(output()).find("tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace tandem
