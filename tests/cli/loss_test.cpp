// `tandem loss` beside torch and other float64 forms: tests/golden/make_losses.py, make_policy_losses.py and
// make_credit.py wrote what is compared with.
#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

void expect_near(const Json& got, const Json& expected, const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  for (size_t row = 0; row < got.size(); ++row) {
    ASSERT_EQ(got[row].size(), expected[row].size()) << where;
    for (size_t i = 0; i < got[row].size(); ++i) {
      const double wanted = expected[row][i].get<double>();
      EXPECT_NEAR(got[row][i].get<double>(), wanted, 1e-10 * std::max(1.0, std::abs(wanted)))
          << where << "[" << row << "][" << i << "]";
    }
  }
}

class Loss : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_directories(folder_)); }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<Json> answers(const std::string& lines, int expected_code) {
    std::ofstream(folder_ / "in") << lines;
    const Arguments arguments = {
        TANDEM_BINARY, "loss", "--input", (folder_ / "in").string(), "--output", (folder_ / "out").string()};
    EXPECT_EQ(Process(arguments, folder_ / "said").wait(60s), expected_code) << text(folder_ / "said");
    std::vector<Json> found;
    const std::string all = text(folder_ / "out");
    for (const auto line : split(trim(all), '\n')) found.push_back(*parse_json(line));
    return found;
  }

  // The answers to the batches of a golden file, once they were found to be what its script computed in float64.
  std::vector<Json> expect_golden(const std::string& file, size_t least) {
    std::vector<Json> cases;
    std::string lines;
    const std::string golden = text(fs::path(TANDEM_SOURCE_DIR "/tests/golden") / file);
    for (const auto line : split(trim(golden), '\n')) {
      cases.push_back(*parse_json(line));
      lines += cases.back()["batch"].dump() + "\n";
    }
    EXPECT_GE(cases.size(), least);
    auto found = answers(lines, 0);
    EXPECT_EQ(found.size(), cases.size());
    for (size_t i = 0; i < std::min(found.size(), cases.size()); ++i) {
      SCOPED_TRACE("line " + std::to_string(i + 1) + ": " + cases[i]["batch"]["algorithm"].dump());
      if (found[i].contains("error")) {
        ADD_FAILURE() << found[i].dump();
        continue;
      }
      const Json& expected = cases[i]["expected"];
      EXPECT_NEAR(found[i]["loss"].get<double>(), expected["loss"].get<double>(), 1e-10);
      expect_near(found[i]["grad_logprobs"], expected["grad_logprobs"], "grad_logprobs");
      expect_near(found[i]["advantages"], expected["advantages"], "advantages");
    }
    return found;
  }

 private:
  const fs::path folder_ = fs::temp_directory_path() / ("tandem-loss-test-" + std::to_string(::getpid()));
};

TEST_F(Loss, every_algorithm_gives_the_loss_the_gradient_and_the_advantages_of_torch) {
  std::vector<Json> cases;
  std::string lines;
  const std::string golden = text(TANDEM_SOURCE_DIR "/tests/golden/losses.jsonl") +
                             text(TANDEM_SOURCE_DIR "/tests/golden/policy_losses.jsonl");
  for (const auto line : split(trim(golden), '\n')) {
    cases.push_back(*parse_json(line));
    lines += cases.back()["batch"].dump() + "\n";
  }
  ASSERT_GT(cases.size(), 330u);
  const auto found = answers(lines, 0);
  ASSERT_EQ(found.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("line " + std::to_string(i + 1) + ": " + cases[i]["batch"]["algorithm"].dump());
    const Json& expected = cases[i]["expected"];
    ASSERT_FALSE(found[i].contains("error")) << found[i].dump();
    const double loss = expected["loss"].get<double>();
    EXPECT_NEAR(found[i]["loss"].get<double>(), loss, 1e-10 * std::max(1.0, std::abs(loss)));
    expect_near(found[i]["grad_logprobs"], expected["grad_logprobs"], "grad_logprobs");
    expect_near(found[i]["advantages"], expected["advantages"], "advantages");
    EXPECT_GT(found[i]["metrics"]["tokens"].get<double>(), 0);
  }
}

TEST_F(Loss, of_a_teacher_is_that_of_its_float64_form) {
  const auto found = expect_golden("distill.jsonl", 29);
  ASSERT_FALSE(found.empty());
  // By hand: -1 - -0.5 and -0.25 - -2, whose mean is 0.625.
  EXPECT_DOUBLE_EQ(found[0]["metrics"]["teacher_kl"].get<double>(), 0.625);
  EXPECT_EQ(found[0]["metrics"]["teacher_unlikely"], 0);
}

// The float64 form counts every part of a tree once; here a trunk has a share in each of its rows.
TEST_F(Loss, of_samples_that_share_trunks_is_that_of_their_trees) { expect_golden("branches.jsonl", 48); }

TEST_F(Loss, of_trunks_that_do_not_fit_their_rows_is_refused) {
  const auto found = answers(
      "{\"logprobs\": [[-1, -2], [-1, -3]], \"advantages\": [[1, 1], [2, 2]], \"trunks\": [[0, 3], [0, 3]]}\n"
      "{\"logprobs\": [[-1, -2], [-1, -3]], \"advantages\": [[1, 1], [2, 2]], \"trunks\": [[0, 1], [0, 2]]}\n"
      "{\"logprobs\": [[-1, -2], [-1, -3]], \"advantages\": [[1, 1], [2, 2]], \"trunks\": [[0, 1], 5]}\n"
      "{\"logprobs\": [[-1, -2], [-1, -3]], \"advantages\": [[1, 1], [2, 2]], \"trunks\": [[0, 1]]}\n",
      1);
  ASSERT_EQ(found.size(), 4u);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::vector<std::string> words = {"trunks[0] has 3 tokens, and the row has 2",
                                            "trunk 0 has 1 tokens in row 0 and 2 in row 1", "trunks[1] is 5",
                                            "trunks does not have an item for each of the 2 rows"};
    EXPECT_NE(found[i].dump().find(words[i]), std::string::npos) << found[i].dump();
  }
}

TEST_F(Loss, credit_that_looks_beyond_the_mean_of_a_group_is_that_of_its_float64_form) {
  std::vector<Json> cases;
  std::string lines;
  const std::string golden = text(TANDEM_SOURCE_DIR "/tests/golden/credit.jsonl");
  for (const auto line : split(trim(golden), '\n')) {
    cases.push_back(*parse_json(line));
    lines += cases.back()["batch"].dump() + "\n";
  }
  ASSERT_GE(cases.size(), 23u);
  const auto found = answers(lines, 0);
  ASSERT_EQ(found.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("line " + std::to_string(i + 1) + ": " + cases[i]["batch"]["algorithm"].dump());
    ASSERT_FALSE(found[i].contains("error")) << found[i].dump();
    expect_near(found[i]["advantages"], cases[i]["expected"]["advantages"], "advantages");
  }
}

TEST_F(Loss, a_line_that_cannot_be_answered_is_named_and_the_others_are_answered) {
  const auto found = answers(
      "{\"id\": 1, \"logprobs\": [[-1, -2], [-1]], \"rewards\": [1, 0], \"groups\": [0, 0]}\n"
      "{\"id\": 2, \"logprobs\": [[-1, -2]], \"advantages\": [[1, 1]], \"logprob\": 1}\n"
      "{\"id\": 3, \"logprobs\": [[-1, null]], \"advantages\": [[1, 1]]}\n"
      "{\"id\": 4, \"logprobs\": [[-1, -2]], \"mask\": [[0, 0]], \"advantages\": [[1, 1]]}\n"
      "{\"id\": 5, \"logprobs\": [[-1, -2]], \"advantages\": [[1, 1]], \"algorithm\": {\"name\": \"grppo\"}}\n"
      "{\"id\": 6, \"logprobs\": [], \"advantages\": []}\n"
      "{\"id\": 7, \"logprobs\": [[-1, -2]], \"mask\": [[1, 2]], \"advantages\": [[1, 1]]}\n"
      "{\"id\": 8, \"algorithm\": {\"name\": \"gigpo\"}, \"logprobs\": [[-1, -2]], \"rewards\": [1], \"groups\": [0]}\n"
      "{\"id\": 9, \"algorithm\": {\"name\": \"gigpo\"}, \"logprobs\": [[-1, -2]], \"rewards\": [1], \"groups\": [0], "
      "\"anchors\": [[4, 5]]}\n"
      "{\"id\": 10, \"algorithm\": {\"name\": \"pass_at_k\", \"pass_at_k\": {\"k\": 1.5}}, \"logprobs\": [[-1]], "
      "\"rewards\": [1], \"groups\": [0]}\n"
      "{\"id\": 11, \"logprobs\": [[-1], [-2]], \"rewards\": [1, 0], \"groups\": [18446744073709551615, -1]}\n",
      1);
  ASSERT_EQ(found.size(), 11u);
  const auto message = [&](size_t i) { return found[i]["error"]["message"].get<std::string>(); };
  EXPECT_NE(message(0).find("logprobs[1] does not have 2 numbers"), std::string::npos) << message(0);
  EXPECT_NE(message(1).find("logprob"), std::string::npos) << message(1);
  EXPECT_NE(message(2).find("logprobs[0][1] is null"), std::string::npos) << message(2);
  EXPECT_EQ(found[3]["loss"], 0.0);  // nothing counts
  EXPECT_NE(message(4).find("did you mean"), std::string::npos) << message(4);
  EXPECT_NE(message(5).find("no tokens"), std::string::npos) << message(5);
  EXPECT_NE(message(6).find("mask[0][1] is 2"), std::string::npos) << message(6);
  EXPECT_NE(message(7).find("advantage gigpo needs \"anchors\""), std::string::npos) << message(7);
  EXPECT_NE(message(8).find("anchors[0] has 2 states, and the row has 1 turns"), std::string::npos) << message(8);
  EXPECT_NE(message(9).find("algorithm.pass_at_k.k is 1.5, not a whole number"), std::string::npos) << message(9);
  EXPECT_NE(message(10).find("groups[0] is 18446744073709551615, not a whole number below"), std::string::npos)
      << message(10);
}

TEST_F(Loss, equal_rewards_have_no_advantage_whatever_is_added_to_their_deviation) {
  const auto found = answers(
      "{\"algorithm\": {\"name\": \"grpo\", \"std_epsilon\": 0}, \"logprobs\": [[-1], [-2], [-1]], "
      "\"rewards\": [0.1, 0.1, 0.1], \"groups\": [0, 0, 0]}\n"
      "{\"algorithm\": {\"name\": \"grpo\", \"std_epsilon\": 0}, \"logprobs\": [[-1], [-2], [-1]], "
      "\"rewards\": [[0.7], [0.7], [0.7]], \"groups\": [3, 3, 3]}\n"
      "{\"algorithm\": {\"name\": \"reinforce++\"}, \"logprobs\": [[-1], [-2], [-1]], "
      "\"rewards\": [[0.7], [0.7], [0.7]], \"groups\": [3, 3, 3]}\n",
      0);
  ASSERT_EQ(found.size(), 3u);
  for (const Json& answer : found) EXPECT_EQ(answer.at("advantages"), Json::parse("[[0.0], [0.0], [0.0]]"));
}

TEST_F(Loss, turns_of_rows_are_given_where_tokens_alone_do_not_say_them) {
  const auto line = [](const std::string& more) {
    return R"({"algorithm":{"name":"gigpo"},"logprobs":[[-1,-1,-1],[-1,-1,-1]],"groups":[0,0],"rewards":[1,0],)"
           R"("mask":[[1,1,1],[1,1,0]],)" +
           more + "}\n";
  };
  const std::string of_two = R"("anchors":[[1,2],[1,3]],"segments":)";
  const auto found = answers(line(of_two + "[[0,0,1],[0,1,-1]]") + line(R"("anchors":[[1],[1]])") +
                                 line(of_two + "[[1,1,1],[0,1,-1]]") + line(of_two + "[[0,2,2],[0,1,-1]]") +
                                 line(of_two + "[[0,1,0],[0,1,-1]]") + line(of_two + "[[0,0,1],[0,1,1]]") +
                                 line(of_two + "[[0,0,-1],[0,1,-1]]") + line(of_two + "[[0,0,1]]") +
                                 line(of_two + "[[0,0,1.5],[0,1,-1]]"),
                             1);
  ASSERT_EQ(found.size(), 9u);
  EXPECT_TRUE(found[0].contains("loss")) << found[0].dump();
  EXPECT_TRUE(found[1].contains("loss")) << found[1].dump();
  const char* const words[] = {"segments[0][0] is 1, not 0",
                               "segments[0][1] is 2, not 0 or 1",
                               "segments[0][2] is 0, not 1 or 2",
                               "segments[1][2] is 1, and a token that does not count is of turn -1",
                               "segments[0][2] is -1, and the mask counts that token",
                               "segments does not have the 2 rows",
                               "segments[0][2] is 1.5"};
  for (size_t i = 0; i < std::size(words); ++i) {
    const std::string message =
        found[i + 2].contains("error") ? found[i + 2]["error"]["message"].get<std::string>() : "";
    EXPECT_NE(message.find(words[i]), std::string::npos) << message << " / " << words[i];
  }
}

TEST_F(Loss, what_is_not_finite_is_an_error) {
  const auto found = answers(
      "{\"algorithm\": {\"name\": \"dppo\"}, \"logprobs\": [[-0.1], [-1]], \"rollout_logprobs\": [[-900], [-1]], "
      "\"rewards\": [0, 1], \"groups\": [0, 0]}\n"
      "{\"logprobs\": [[-1], [-2]], \"rewards\": [1e308, -1e308], \"groups\": [0, 0]}\n"
      "{\"algorithm\": {\"name\": \"ppo\"}, \"logprobs\": [[-1], [-2]], \"values\": [[1e200], [0]], "
      "\"rewards\": [1, 0]}\n",
      1);
  ASSERT_EQ(found.size(), 3u);
  const auto message = [&](size_t i) { return found[i]["error"]["message"].get<std::string>(); };
  EXPECT_NE(message(0).find("not finite"), std::string::npos) << message(0);
  EXPECT_NE(message(1).find("rewards[0] is 1e+308, beyond 1e+100"), std::string::npos) << message(1);
  EXPECT_NE(message(2).find("values[0][0] is 1e+200, beyond 1e+100"), std::string::npos) << message(2);
}

}  // namespace
}  // namespace tandem
