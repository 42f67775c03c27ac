// How a teacher behind an endpoint is asked: by the form that it knows, again where that may help, and no longer than
// is allowed.
#include "trainer/teacher_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/cli/scripted_server.h"
#include "tests/within.h"

namespace tandem::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::vector<int32_t>> kOne = {{5, 6}};

class TeacherClientTest : public testing::Test {
 protected:
  TeacherClient client(int retries = 0, double seconds = 60, int concurrency = 1) {
    return TeacherClient({.url = server_.url() + "/v1",
                          .model = "big",
                          .key_env = {},
                          .key_file = {},
                          .seconds = seconds,
                          .retries = retries,
                          .concurrency = concurrency},
                         "secret", clock_);
  }
  void say(const std::string& body, int status = 200) {
    server_.answer({status, {{"Content-Type", "application/json"}}, body});
  }
  // Of a prompt of these tokens, by vLLM's form.
  void score(const std::vector<int32_t>& tokens) {
    Json list = Json::array({nullptr});
    for (size_t i = 1; i < tokens.size(); ++i) {
      Json entry = Json::object();
      entry[std::to_string(tokens[i])] = {{"logprob", -0.5 * tokens[i]}};
      list.push_back(entry);
    }
    say(Json{{"choices", Json::array({{{"prompt_logprobs", list}}})}}.dump());
  }
  void choose() { score({0, 0, 0}); }

  SystemClock clock_;
  ScriptedServer server_;
};

TEST_F(TeacherClientTest, the_first_form_that_is_answered_is_kept) {
  choose();
  score({5, 6});
  score({5, 6});
  auto teacher = client();
  EXPECT_THAT((*teacher.logprobs(kOne))[0], ElementsAre(0, -3));
  EXPECT_THAT((*teacher.logprobs(kOne))[0], ElementsAre(0, -3));
  EXPECT_EQ(teacher.form(), TeacherForm::kPromptLogprobs);
  ASSERT_EQ(server_.requests().size(), 3u);
  EXPECT_EQ(server_.requests()[2].dump(),
            R"({"model":"big","prompt":[5,6],"temperature":1,"max_tokens":1,"prompt_logprobs":0})");
  EXPECT_EQ(server_.header(2, "authorization"), "Bearer secret");
}

TEST_F(TeacherClientTest, a_server_without_prompt_logprobs_is_asked_to_echo) {
  say(R"({"choices": [{"text": "x", "prompt_logprobs": null}]})");
  say(R"({"error": {"message": "unknown field prompt_logprobs"}})", 400);
  say(R"({"choices": [{"logprobs": {"token_logprobs": [null, -1, -1]}}]})");
  say(R"({"choices": [{"logprobs": {"token_logprobs": [null, -2.5]}}]})");
  auto teacher = client();
  EXPECT_THAT((*teacher.logprobs(kOne))[0], ElementsAre(0, -2.5));
  EXPECT_EQ(teacher.form(), TeacherForm::kEcho);
}

TEST_F(TeacherClientTest, a_server_that_knows_no_form_is_refused_with_what_it_said_to_each) {
  for (int i = 0; i < 3; ++i) say(R"({"choices": [{"text": "x"}]})");
  const auto refused = client().logprobs(kOne);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalid);
  EXPECT_THAT(refused.error().message(), HasSubstr("the teacher big at " + server_.url() + "/v1: does not say"));
  EXPECT_THAT(refused.error().message(), HasSubstr("by \"echo with logprobs\" it answered without a list"));
}

TEST_F(TeacherClientTest, what_may_pass_is_asked_again_and_a_refusal_is_not) {
  choose();
  say("busy", 503);
  score({5, 7});  // of another sequence
  score({5, 6});
  auto teacher = client(2);
  EXPECT_THAT((*teacher.logprobs(kOne))[0], ElementsAre(0, -3));
  EXPECT_EQ(teacher.use().requests, 4u);
  EXPECT_EQ(teacher.use().failed, 2u);

  say(R"({"error": {"message": "the prompt has 2 tokens, secret"}})", 400);
  const auto refused = teacher.logprobs(kOne);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalid);
  EXPECT_THAT(refused.error().message(), HasSubstr("a sequence of 2 tokens: answered 400: "));
  EXPECT_THAT(refused.error().message(), HasSubstr("[key]"));
  EXPECT_EQ(teacher.use().requests, 5u);
}

TEST_F(TeacherClientTest, the_last_failure_is_the_result) {
  choose();
  auto teacher = client(1);
  for (int i = 0; i < 2; ++i) say(R"({"choices": [{"prompt_logprobs": [null, {"6": {"logprob": null}}]}]})");
  const auto corrupt = teacher.logprobs(kOne);
  ASSERT_FALSE(corrupt);
  EXPECT_EQ(corrupt.error().code(), Code::kCorrupt);
  EXPECT_THAT(corrupt.error().message(), HasSubstr("of token 6 at 1 the logprob null"));

  for (int i = 0; i < 2; ++i) server_.answer({ScriptedServer::kCut, {}, ""});
  const auto cut = teacher.logprobs(kOne);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code(), Code::kUnavailable);
}

TEST_F(TeacherClientTest, a_silent_server_is_waited_for_until_the_deadline_or_a_stop) {
  choose();
  auto teacher = client(0, 2);
  server_.answer({ScriptedServer::kNever, {}, ""});
  const auto slow = teacher.logprobs(kOne);
  ASSERT_FALSE(slow);
  EXPECT_EQ(slow.error().code(), Code::kDeadline);

  choose();
  auto patient = client(5, 3000);
  server_.answer({ScriptedServer::kNever, {}, ""});
  std::stop_source stop;
  std::jthread stopping([&] {
    EXPECT_TRUE(within(60s, [&] { return server_.requests().size() == 4; }));
    stop.request_stop();
  });
  const auto stopped = patient.logprobs(kOne, stop.get_token());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
}

TEST_F(TeacherClientTest, one_failure_ends_the_requests_beside_it) {
  choose();
  say("no", 400);
  for (int i = 0; i < 3; ++i) server_.answer({ScriptedServer::kNever, {}, ""});
  const std::vector<std::vector<int32_t>> four(4, {5, 6});
  auto teacher = client(0, 3000, 4);
  const auto failed = teacher.logprobs(four);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kInvalid) << failed.error().message();
}

TEST_F(TeacherClientTest, the_context_and_the_name_are_checked_where_the_server_says_them) {
  say(R"({"data": [{"id": "big", "max_model_len": 512}]})");
  const Status tight = client().prepare(nullptr, 512);
  EXPECT_EQ(tight.code(), Code::kInvalid);
  EXPECT_THAT(tight.message(), HasSubstr("takes sequences of 512 tokens, and rollout.max_tokens is 512"));
  EXPECT_THAT(tight.hint(), HasSubstr("rollout.max_tokens to 511"));
  say(R"({"data": [{"id": "small"}]})");
  EXPECT_THAT(client().prepare(nullptr, 512).message(), HasSubstr("no model \"big\": it serves small"));
  say("no such path", 404);
  choose();
  EXPECT_TRUE(client().prepare(nullptr, 512));
  const SystemClock clock;
  TeacherClient nobody({.url = "http://127.0.0.1:1/v1", .model = "big", .key_env = {}, .key_file = {}}, "", clock);
  EXPECT_EQ(nobody.prepare(nullptr, 8).code(), Code::kUnavailable);
}

}  // namespace
}  // namespace tandem::trainer
