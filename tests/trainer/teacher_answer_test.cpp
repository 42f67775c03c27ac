// What a teacher behind an endpoint may answer: the forms that servers have, and everything that is none.
#include "trainer/teacher_answer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"

namespace tandem::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kForm = TeacherForm::kPromptLogprobs;
const std::vector<int32_t> kAsked = {5, 6, 7};

std::string answer_of(const std::string& list) {
  return fmt::format(R"({{"choices": [{{"index": 0, "text": "x", "prompt_logprobs": {}}}]}})", list);
}
std::string echo_of(const std::string& list) {
  return fmt::format(
      R"({{"choices": [{{"text": "x", "logprobs": {{"token_logprobs": {}, "tokens": ["a", "b", "c"]}}}}]}})", list);
}
const model::Tokenizer& words_of_a_model() {
  static const auto tokenizer = model::Tokenizer::load(TANDEM_SOURCE_DIR "/tests/golden/tokenizers/qwen2");
  return *tokenizer;
}
// As vLLM says which tokens a text has; `more` goes before them.
std::string tokens_said(std::vector<int32_t> ids, const std::vector<int32_t>& more = {}) {
  ids.insert(ids.begin(), more.begin(), more.end());
  Json list = Json::array({nullptr});
  for (size_t i = 1; i < ids.size(); ++i) {
    Json entry = Json::object();
    entry[std::to_string(ids[i])] = {{"logprob", -1}, {"rank", 1}};
    list.push_back(entry);
  }
  return answer_of(list.dump());
}

TEST(TeacherAnswer, each_form_gives_the_logprob_of_every_token_but_the_first) {
  const std::string list = R"([null, {"6": {"logprob": -0.25, "rank": 3, "decoded_token": "b"}, "9": {"logprob": -0.1}},
                               {"7": {"logprob": 0.0}}])";
  EXPECT_THAT(*read_teacher_logprobs(kForm, answer_of(list), kAsked), ElementsAre(0, -0.25f, 0));
  // Of servers that have it beside the choices.
  const std::string beside = fmt::format(R"({{"choices": [{{"text": ""}}], "prompt_logprobs": {}}})", list);
  EXPECT_THAT(*read_teacher_logprobs(TeacherForm::kPromptLogprobsTop, beside, kAsked), ElementsAre(0, -0.25f, 0));
  EXPECT_THAT(*read_teacher_logprobs(TeacherForm::kEcho, echo_of("[null, -0.25, -3]"), kAsked),
              ElementsAre(0, -0.25f, -3));
}

TEST(TeacherAnswer, a_float_comes_back_with_its_bits) {
  for (const float bits : {-0.1f, -1.17549435e-38f, -12.3456789f, -9.99e-5f}) {
    const auto text =
        answer_of(fmt::format(R"([null, {{"6": {{"logprob": {}}}}}, {{"7": {{"logprob": -1}}}}])", Json(bits).dump()));
    EXPECT_EQ((*read_teacher_logprobs(kForm, text, kAsked))[1], bits);
  }
}

TEST(TeacherAnswer, what_is_no_logprob_of_each_token_is_refused_with_its_place) {
  const auto refused = [&](const std::string& answer, const std::string& words, Code code = Code::kCorrupt,
                           TeacherForm form = kForm) {
    const auto read = read_teacher_logprobs(form, answer, kAsked);
    ASSERT_FALSE(read) << answer;
    EXPECT_EQ(read.error().code(), code) << read.error().message();
    EXPECT_THAT(read.error().message(), HasSubstr(words)) << answer;
  };
  const auto entry = [&](const std::string& logprob) {
    return answer_of(fmt::format(R"([null, {{"6": {{"logprob": {}}}}}, {{"7": {{"logprob": -1}}}}])", logprob));
  };
  for (const char* text : {"", "<html>", "{\"choices\": [", "NaN"}) refused(text, "no JSON");
  for (const char* text : {"null", "[]", "7", "{}", R"({"choices": {}})", R"({"choices": []})", R"({"choices": [1]})",
                           R"({"choices": [{}, {}]})"})
    refused(text, "\"choices\" of one object");
  for (const char* list : {"null", "{}", "7", "\"x\""}) refused(answer_of(list), "without a list \"prompt_logprobs\"");
  for (const char* list : {"[]", "[{}]", "[-1]"}) refused(answer_of(list), "does not begin with null");
  refused(answer_of("[null]"), "of 1 tokens, and was asked about 3");
  refused(answer_of("[null, {}, {}, {}]"), "of 4 tokens, and was asked about 3");
  for (const char* list : {"[null, null, null]", "[null, {}, {}]", "[null, -1, -1]",
                           R"([null, {"66": {"logprob": -1}}, {}])", R"([null, {"6": -1}, {"7": -1}])"})
    refused(answer_of(list), "says nothing of token 6 at 1");
  for (const char* logprob : {"null", "\"-1\"", "true", "[]", "{}"}) refused(entry(logprob), "which is no number");
  for (const char* logprob : {"0.5", "1e300", "-1e300", "12345678901234567890"})
    refused(entry(logprob), "no logarithm of a probability");
  refused(entry("NaN"), "no JSON");
  refused(entry("-Infinity"), "no JSON");
  for (const char* logprob : {"-9999.0", "-1e6"}) refused(entry(logprob), "a probability of 0", Code::kInvalid);

  const auto of_echo = TeacherForm::kEcho;
  refused(answer_of("[null, {}, {}]"), "without a list \"logprobs.token_logprobs\"", Code::kCorrupt, of_echo);
  refused(echo_of("[-1, -1, -1]"), "does not begin with null", Code::kCorrupt, of_echo);
  refused(echo_of("[null, -1]"), "of 2 tokens", Code::kCorrupt, of_echo);
  refused(echo_of("[null, null, -1]"), "the logprob null", Code::kCorrupt, of_echo);
  refused(R"({"choices": [{"logprobs": null}]})", "without a list", Code::kCorrupt, of_echo);
}

TEST(TeacherAnswer, a_request_asks_for_nothing_but_the_prompt) {
  const Json first = *parse_json(teacher_request(kForm, "m", kAsked));
  EXPECT_EQ(first.dump(), R"({"model":"m","prompt":[5,6,7],"temperature":1,"max_tokens":1,"prompt_logprobs":0})");
  const Json echo = *parse_json(teacher_request(TeacherForm::kEcho, "m", std::string("a b")));
  EXPECT_EQ(echo.dump(), R"({"model":"m","prompt":"a b","temperature":1,"max_tokens":0,"echo":true,"logprobs":0})");
}

TEST(TeacherAnswer, a_text_has_the_tokens_of_the_model_with_or_without_what_stands_around_it) {
  const auto& tokenizer = words_of_a_model();
  const std::string text = "two words, 世界";
  const auto ids = *tokenizer.encode(text);
  EXPECT_TRUE(check_teacher_tokens(kForm, tokens_said(ids), text, tokenizer));
  auto other = ids;
  ++other[2];
  const Status differs = check_teacher_tokens(kForm, tokens_said(other), text, tokenizer);
  EXPECT_EQ(differs.code(), Code::kInvalid);
  EXPECT_THAT(differs.message(), HasSubstr("token 2 is {\"" + std::to_string(other[2]) + "\""));
  const Status more = check_teacher_tokens(kForm, tokens_said(ids, {1, 2}), text, tokenizer);
  EXPECT_THAT(more.message(),
              HasSubstr(fmt::format("are {} tokens there, and {} of the model", ids.size() + 2, ids.size())));

  Json pieces = Json::array(), logprobs = Json::array();
  for (const auto id : ids) {
    // As servers write a part of a character.
    const auto bytes = tokenizer.bytes_of(id);
    const bool is_ascii = std::ranges::all_of(bytes, [](char c) { return c > 0; });
    pieces.push_back(is_ascii ? bytes : std::string_view("\xEF\xBF\xBD"));
    logprobs.push_back(logprobs.empty() ? Json() : Json(-1));
  }
  const auto echo = [&] {
    return Json{{"choices", {{{"logprobs", {{"tokens", pieces}, {"token_logprobs", logprobs}}}}}}}.dump();
  };
  EXPECT_TRUE(check_teacher_tokens(TeacherForm::kEcho, echo(), text, tokenizer));
  pieces[1] = "other";
  EXPECT_THAT(check_teacher_tokens(TeacherForm::kEcho, echo(), text, tokenizer).message(), HasSubstr("\"other\""));
  pieces[1] = 7;
  EXPECT_EQ(check_teacher_tokens(TeacherForm::kEcho, echo(), text, tokenizer).code(), Code::kCorrupt);
}

TEST(TeacherAnswer, special_tokens_have_the_names_of_the_model) {
  const auto& tokenizer = words_of_a_model();
  const int32_t end = *tokenizer.find("<|end|>");
  const std::vector<int32_t> asked = {5, end};
  const auto said = [&](const std::string& name) {
    return answer_of(fmt::format(R"([null, {{"{}": {{"logprob": -1, "decoded_token": {}}}}}])", end, name));
  };
  EXPECT_TRUE(check_teacher_names(kForm, said("\"<|end|>\""), asked, tokenizer));
  EXPECT_TRUE(check_teacher_names(kForm, said("\"\""), asked, tokenizer));
  EXPECT_TRUE(check_teacher_names(kForm, said("null"), asked, tokenizer));
  const Status other = check_teacher_names(kForm, said("\"<|eot|>\""), asked, tokenizer);
  EXPECT_EQ(other.code(), Code::kInvalid);
  EXPECT_THAT(other.message(), HasSubstr("\"<|eot|>\" there, and \"<|end|>\" of the model"));
}

TEST(TeacherAnswer, the_list_of_models_says_the_context_and_which_there_are) {
  EXPECT_EQ(*read_teacher_context(R"({"data": [{"id": "a"}, {"id": "m", "max_model_len": 4096}]})", "m"), 4096);
  for (const char* text :
       {"", "7", "{}", R"({"data": 1})", R"({"data": []})", R"({"data": [1, {"id": 2}]})", R"({"data": [{"id": "m"}]})",
        R"({"data": [{"id": "m", "max_model_len": -1}]})", R"({"data": [{"id": "m", "max_model_len": "x"}]})"}) {
    const auto context = read_teacher_context(text, "m");
    ASSERT_TRUE(context) << text;
    EXPECT_EQ(*context, std::nullopt) << text;
  }
  const auto none = read_teacher_context(R"({"data": [{"id": "a"}, {"id": "b"}]})", "m");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kInvalid);
  EXPECT_THAT(none.error().message(), HasSubstr("no model \"m\": it serves a, b"));
}

}  // namespace
}  // namespace tandem::trainer
