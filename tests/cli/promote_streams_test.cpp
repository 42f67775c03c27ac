// Streams that a candidate has begun when it fails: the served version goes on with them.
#include <set>

#include "model/safetensors.h"
#include "tests/cli/promote_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class PromoteStreams : public Promote {
 protected:
  // The served model, which computes NaN once it has read `token`.
  static fs::path breaks_at(int token) {
    const fs::path folder = root() / "candidates" / "breaks";
    fs::remove_all(folder);
    fs::copy(root() / "model", folder, fs::copy_options::recursive);
    const auto whole = model::Safetensors::open(root() / "model");
    EXPECT_TRUE(whole);
    const auto embedding = whole->get("model.embed_tokens.weight");
    EXPECT_TRUE(embedding);
    // Tokens are drawn by a matrix of their own, or no number would be drawn at all.
    std::vector<std::byte> broken(embedding->bytes.begin(), embedding->bytes.end());
    const size_t row = broken.size() / static_cast<size_t>(embedding->shape[0]);
    std::fill_n(broken.begin() + static_cast<ptrdiff_t>(row) * token, row, std::byte{0xff});
    std::vector<model::NamedTensor> tensors = {{"lm_head.weight", *embedding}};
    for (const auto& [name, tensor] : whole->tensors()) {
      tensors.push_back({name, tensor});
      if (name == "model.embed_tokens.weight") tensors.back().tensor.bytes = broken;
    }
    EXPECT_TRUE(model::write_safetensors(folder / "model.safetensors", tensors).ok());
    Json config = json(folder / "config.json");
    config["tie_word_embeddings"] = false;
    EXPECT_TRUE(write_file(folder / "config.json", dump_json(config)).ok());
    return folder;
  }
  static Json request(Json more = Json::object()) {
    Json body = chat("What is it?", {{"max_tokens", 24},
                                     {"seed", 7},
                                     {"temperature", 3},
                                     {"logit_bias", {{"2", -100}}},
                                     {"ignore_eos", true},
                                     {"logprobs", true},
                                     {"return_token_ids", true}});
    for (const auto& [key, value] : more.items()) body[key] = value;
    return body;
  }
  // A token in the middle of the first answer, which nothing before it has.
  static int token_within(const Json& answer) {
    const auto prompt = answer["prompt_token_ids"].get<std::vector<int>>();
    std::set<int> before(prompt.begin(), prompt.end());
    const auto tokens = answer["choices"][0]["token_ids"].get<std::vector<int>>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (before.insert(tokens[i]).second && i >= 4 && i + 4 < tokens.size()) return tokens[i];
    }
    ADD_FAILURE() << "no token stands in the middle for the first time: " << dump_json(answer);
    return 0;
  }
  void serve_on_trial(const fs::path& candidate) {
    const auto begun = admin("/promotion/begin", {{"directory", candidate.string()}});
    ASSERT_EQ(begun.status, 200) << begun.body;
    ASSERT_EQ(admin("/promotion/share", {{"share", 1}, {"lease_seconds", 600}}).status, 200);
  }
  // The choices that the chunks of a stream make together, as a whole answer has them.
  static Json put_together(const std::vector<Json>& chunks) {
    Json choices = Json::array();
    for (const Json& chunk : chunks) {
      EXPECT_EQ(chunk["id"], chunks.front()["id"]);
      for (const Json& piece : chunk["choices"]) {
        while (choices.size() <= piece["index"].get<size_t>())
          choices.push_back(
              {{"text", ""}, {"tokens", Json::array()}, {"logprobs", Json::array()}, {"finish", nullptr}});
        Json& choice = choices[piece["index"].get<size_t>()];
        if (const Json& text = piece["delta"].value("content", Json()); text.is_string())
          choice["text"] = choice["text"].get<std::string>() + text.get<std::string>();
        for (const Json& token : piece.value("token_ids", Json::array())) choice["tokens"].push_back(token);
        if (piece.contains("logprobs") && piece["logprobs"].is_object()) {
          for (const Json& token : piece["logprobs"]["content"]) choice["logprobs"].push_back(token["logprob"]);
        }
        if (piece.contains("finish_reason") && !piece["finish_reason"].is_null()) {
          EXPECT_TRUE(choice["finish"].is_null()) << "a choice ends once";
          choice["finish"] = piece["finish_reason"];
        }
      }
    }
    return choices;
  }
  static Json choices_of(const Json& whole) {
    Json choices = Json::array();
    for (const Json& choice : whole["choices"]) {
      Json logprobs = Json::array();
      for (const Json& token : choice["logprobs"]["content"]) logprobs.push_back(token["logprob"]);
      choices.push_back({{"text", choice["message"]["content"]},
                         {"tokens", choice["token_ids"]},
                         {"logprobs", logprobs},
                         {"finish", choice["finish_reason"]}});
    }
    return choices;
  }
  std::vector<Json> usage() const {
    std::vector<Json> lines;
    const std::string all = text(usage_);
    for (const auto line : split_lines(all)) lines.push_back(*parse_json(line));
    return lines;
  }
  const fs::path usage_ = root() / "usage.jsonl";
};

TEST_F(PromoteStreams, a_stream_that_has_begun_on_a_failing_candidate_goes_on_with_the_served_version) {
  fs::remove(usage_);
  start_server({"--usage-log", usage_.string()});
  const Json whole = post("/v1/chat/completions", request());
  serve_on_trial(breaks_at(token_within(whole)));
  const auto chunks = stream("/v1/chat/completions", request({{"stream_options", {{"include_usage", true}}}}));
  // The same weights, seed and places: not one token is other than without the failure.
  EXPECT_EQ(dump_json(put_together(chunks)), dump_json(choices_of(whole)));
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
  const Json after = state();
  EXPECT_EQ(after["candidate"]["outcomes"]["errors"], 1) << dump_json(after);
  EXPECT_EQ(after["candidate"]["lost_streams"], (Json{{"taken_over", 1}, {"cut", 0}}));
  EXPECT_EQ(after["current"]["outcomes"]["answers"], 2);
  EXPECT_EQ(metric("tandem_streams_taken_over_total"), 1);
  // Two lines of one id; what the first said is counted once more in the second, which alone is charged.
  ASSERT_TRUE(within(30s, [&] { return usage().size() == 3; })) << text(usage_);
  const Json lost = usage()[1], kept = usage()[2];
  EXPECT_EQ(lost["id"], kept["id"]);
  EXPECT_EQ(lost["outcome"], "elsewhere");
  EXPECT_EQ(kept["outcome"], "done");
  EXPECT_EQ(kept["answer_tokens"], whole["usage"]["completion_tokens"]);
  EXPECT_EQ(kept["taken_over_tokens"], lost["answer_tokens"]);
  EXPECT_GT(lost["answer_tokens"].get<int>(), 4);
  // What the client thinks of it counts for the version that it ended with.
  EXPECT_EQ(ask("/feedback", dump_json({{"id", chunks.front()["id"]}, {"accepted", true}})).status, 200);
  EXPECT_EQ(state()["current"]["outcomes"]["accepted"], 1);
}

TEST_F(PromoteStreams, all_answers_of_a_stream_go_on_and_those_that_have_ended_stay) {
  start_server();
  const Json more = {{"n", 3}, {"ignore_eos", false}, {"stop", "e"}};
  const Json first = post("/v1/chat/completions", request());
  const fs::path candidate = breaks_at(token_within(first));
  const Json whole = post("/v1/chat/completions", request({{"n", 3}}));
  const Json stopped = post("/v1/chat/completions", request(more));
  serve_on_trial(candidate);
  EXPECT_EQ(dump_json(put_together(stream("/v1/chat/completions", request({{"n", 3}})))), dump_json(choices_of(whole)));
  EXPECT_EQ(state()["candidate"]["lost_streams"]["taken_over"], 1);
  EXPECT_EQ(dump_json(put_together(stream("/v1/chat/completions", request(more)))), dump_json(choices_of(stopped)));
  EXPECT_EQ(state()["candidate"]["lost_streams"]["cut"], 0);
}

TEST_F(PromoteStreams, a_stream_that_no_other_version_can_go_on_with_ends_with_the_reason) {
  start_server();
  const fs::path candidate = breaks_at(token_within(post("/v1/chat/completions", request())));
  serve_on_trial(candidate);
  // Far too small to change a token.
  Json body = request({{"frequency_penalty", 1e-6}});
  body["stream"] = true;
  const auto cut = ask("/v1/chat/completions", dump_json(body));
  EXPECT_EQ(cut.status, 200);
  EXPECT_THAT(cut.body, HasSubstr("the served version does not go on with the answer: the request has penalties"));
  EXPECT_THAT(cut.body, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(state()["candidate"]["lost_streams"], (Json{{"taken_over", 0}, {"cut", 1}}));
  // The same request without a stream fails nobody.
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(request({{"frequency_penalty", 1e-6}}))).status, 200);
  // Of another tokenizer.
  EXPECT_EQ(admin("/promotion/end", {{"promote", false}}).status, 200);
  const std::string file = text(candidate / "tokenizer.json");
  ASSERT_TRUE(write_file(candidate / "tokenizer.json", file + "\n").ok());
  serve_on_trial(candidate);
  body = request();
  body["stream"] = true;
  EXPECT_THAT(ask("/v1/chat/completions", dump_json(body)).body,
              HasSubstr("its tokenizer, chat template or end tokens are others"));
}

TEST_F(PromoteStreams, a_candidate_that_fails_in_the_middle_goes_back_and_no_stream_fails) {
  start_server();
  const fs::path candidate = breaks_at(token_within(post("/v1/chat/completions", request())));
  std::atomic<int> whole = 0, broken = 0;
  {
    const std::jthread client([&](const std::stop_token& stop) {
      for (int i = 0; !stop.stop_requested(); ++i) {
        Json body = request({{"user", fmt::format("{}", i % 40)}});
        body["stream"] = true;
        const auto answer = ask("/v1/chat/completions", dump_json(body));
        const bool good = answer.status == 200 && answer.body.ends_with("data: [DONE]\n\n") &&
                          answer.body.find("\"error\"") == std::string::npos;
        ++(good ? whole : broken);
      }
    });
    EXPECT_EQ(tandem({"promote", candidate.string(), "--server", url_, "--out", (root() / "promotion").string(),
                      "--shares", "50,100", "--answers", "1000000", "--limit", "120"}),
              4)
        << text(output());
  }
  EXPECT_EQ(broken, 0) << "of " << whole;
  EXPECT_THAT(text(output()), HasSubstr("errors: +100.0 points"));
  EXPECT_THAT(text(output()), HasSubstr("and 0 ended with an error"));
  EXPECT_GT(audit().back()["figures"]["streams_taken_over"].get<double>(), 0);
}

}  // namespace
}  // namespace tandem
