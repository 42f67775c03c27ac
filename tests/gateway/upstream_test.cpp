#include "gateway/upstream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "gateway/answer_scan.h"
#include "tests/envs/scratch.h"

namespace tandem::gateway {
namespace {

using testing::HasSubstr;

std::string url(std::string base, std::string_view path) {
  return url_of({.url = std::move(base)}, path).value_or("none");
}

TEST(Upstream, paths_go_behind_its_url) {
  EXPECT_EQ(url("http://a:8000", "/v1/chat/completions"), "http://a:8000/v1/chat/completions");
  EXPECT_EQ(url("http://a:8000/", "/inference/v1/generate"), "http://a:8000/inference/v1/generate");
  EXPECT_EQ(url("https://a/v1/", "/v1/chat/completions"), "https://a/v1/chat/completions");
  EXPECT_EQ(url("https://a/api/v1", "/v1/messages"), "https://a/api/v1/messages");
  EXPECT_EQ(url("https://a/v1beta/openai", "/v1/chat/completions"), "https://a/v1beta/openai/chat/completions");
  EXPECT_EQ(url("https://a/v1beta/openai", "/tokenize"), "none");
}

TEST(Upstream, of_a_command_line) {
  const auto plain = upstream_of("http://10.0.0.1:8000/v1");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->name, "10.0.0.1:8000");
  EXPECT_EQ(plain->rename, "");
  const auto named = upstream_of("coder=https://a.example/v1?");
  EXPECT_FALSE(named) << "a query";
  EXPECT_EQ(upstream_of("coder=https://a.example/v1")->rename, "coder");
  EXPECT_FALSE(upstream_of("=http://a"));
  EXPECT_FALSE(upstream_of("a.example:80"));
  EXPECT_FALSE(upstream_of("http://user:secret@a.example"));
  EXPECT_THAT(check_upstreams({*plain, *plain}).to_string(), HasSubstr("two upstreams are called"));
  EXPECT_FALSE(check_upstreams({}));
}

class UpstreamBook : public testing::Test {
 protected:
  Result<std::vector<UpstreamTerms>> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_upstreams(path_);
  }
  envs::Scratch scratch_;
  fs::path path_ = scratch_.path / "upstreams.yaml";
};

TEST_F(UpstreamBook, has_keys_from_the_environment_and_from_files) {
  ::setenv("TANDEM_TEST_UPSTREAM_KEY", "secret-1", 1);
  std::ofstream(scratch_.path / "key") << "secret-2\n";
  const auto book =
      read("a:\n  url: http://a:1\n  key_env: TANDEM_TEST_UPSTREAM_KEY\n  models: [coder=gpt-x, other]\n" +
           std::string("b:\n  url: http://b:1\n  slots: 3\n  tokens_per_minute: 5\n  key_file: ") +
           (scratch_.path / "key").string() + "\n");
  ::unsetenv("TANDEM_TEST_UPSTREAM_KEY");
  ASSERT_TRUE(book) << book.error().to_string();
  ASSERT_EQ(book->size(), 2u);
  EXPECT_EQ((*book)[0].key, "secret-1");
  EXPECT_EQ((*book)[0].models.at("coder"), "gpt-x");
  EXPECT_EQ((*book)[0].models.at("other"), "other");
  EXPECT_EQ((*book)[1].key, "secret-2");
  EXPECT_EQ((*book)[1].slots, 3);
}

TEST_F(UpstreamBook, says_what_is_wrong) {
  const auto wrong = [&](const std::string& text) { return read(text).error().to_string(); };
  EXPECT_THAT(wrong("a:\n  slots: 3\n"), HasSubstr("a.url is missing"));
  EXPECT_THAT(wrong("a:\n  url: ftp://a\n"), HasSubstr("neither http:// nor https://"));
  EXPECT_THAT(wrong("a:\n  url: http://a\n  key_env: TANDEM_TEST_NOT_SET\n"), HasSubstr("TANDEM_TEST_NOT_SET"));
  EXPECT_THAT(wrong("a:\n  url: http://a\n  solts: 3\n"), HasSubstr("slots"));
  EXPECT_THAT(wrong("a:\n  url: http://a\n  models: [x=1, x=2]\n"), HasSubstr("twice"));
  EXPECT_THAT(wrong("a b:\n  url: http://a\n"), HasSubstr("names of upstreams"));
  EXPECT_FALSE(read("- a\n"));
}

TEST(AnswerScan, tokens_of_streams_and_bodies) {
  AnswerScan chat;
  chat.feed("data: {\"choices\":[1]}\n\ndata: {\"choices\":[2]}\n\n");
  EXPECT_FALSE(chat.notes().counted);
  EXPECT_EQ(chat.notes().answer_tokens, 2u) << "its events, where it does not say";
  chat.feed("data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9,\"prompt_tokens_details\":{\"cached_");
  chat.feed("tokens\":3}}}\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(chat.notes().counted);
  EXPECT_EQ(chat.notes().prompt_tokens, 7u);
  EXPECT_EQ(chat.notes().answer_tokens, 9u);
  EXPECT_EQ(chat.notes().cached_tokens, 3u);
  AnswerScan messages;
  messages.feed(
      "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n"
      "event: message_delta\ndata: {\"usage\":{\"output_tokens\":8}}\n\n");
  EXPECT_EQ(messages.notes().prompt_tokens, 5u);
  EXPECT_EQ(messages.notes().answer_tokens, 8u);
  AnswerScan response;
  response.feed(
      "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"object\":"
      "\"response\"}}\n\n");
  EXPECT_EQ(response.notes().response_id, "resp_1");
  AnswerScan body;
  body.read({{"object", "response"}, {"id", "resp_2"}, {"usage", {{"input_tokens", -5}, {"output_tokens", "x"}}}});
  EXPECT_EQ(body.notes().response_id, "resp_2");
  EXPECT_EQ(body.notes().prompt_tokens, 0u);
}

}  // namespace
}  // namespace tandem::gateway
