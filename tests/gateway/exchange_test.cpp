#include "gateway/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

using testing::Contains;
using testing::Key;
using testing::Not;
using testing::Pair;

TEST(Exchange, what_is_no_answer_is_asked_for_elsewhere) {
  for (const int status : {101, 302, 304, 500, 502, 504, 520, 521, 524, 999})
    EXPECT_EQ(failure_of({.status = status}), Failure::kFaulty) << status;
  for (const int status : {429, 503, 529}) EXPECT_EQ(failure_of({.status = status}), Failure::kOverloaded) << status;
  for (const int status : {401, 402, 403}) EXPECT_EQ(failure_of({.status = status}), Failure::kDenied) << status;
  for (const int status : {200, 204, 400, 404, 413, 422, 501})
    EXPECT_EQ(failure_of({.status = status}), std::nullopt) << status;
}

TEST(Exchange, a_404_says_whether_it_is_about_the_model) {
  const auto lacks = [](const char* body) { return lacks_the_model({.status = 404}, body); };
  EXPECT_TRUE(lacks(R"({"error":{"message":"there is none","type":"not_found_error","param":"model","code":404}})"));
  EXPECT_TRUE(
      lacks(R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":"model_not_found"}})"));
  EXPECT_TRUE(lacks(R"({"object":"error","message":"m","type":"NotFoundError","param":"model","code":404})"));
  EXPECT_FALSE(lacks(R"({"error":{"message":"no answer","param":null,"code":404}})"));
  EXPECT_FALSE(lacks(R"({"error":"not found"})"));
  EXPECT_FALSE(lacks("<html></html>"));
  EXPECT_FALSE(lacks_the_model({.status = 400}, R"({"error":{"param":"model"}})"));
}

TEST(Exchange, an_upstream_is_asked_by_get_where_a_client_asks_by_head) {
  Exchange exchange;
  exchange.request.method = "HEAD";
  exchange.request.path = "/v1/responses/resp_1";
  const auto transfer = transfer_of(exchange, {.url = "http://a:8000"}, {});
  ASSERT_TRUE(transfer);
  EXPECT_EQ(transfer->request.method, "GET") << "to HEAD there comes no body, which would be waited for";
  EXPECT_EQ(transfer->request.url, "http://a:8000/v1/responses/resp_1");
}

TEST(Exchange, only_a_process_of_ours_is_told_whose_a_request_is) {
  Exchange exchange;
  exchange.request.method = "POST";
  exchange.request.path = "/v1/chat/completions";
  exchange.request.headers = {{"x-tandem-caller", "somebody else"}};
  exchange.view.body = Json::object();
  exchange.key = std::make_shared<const serve::KeyTerms>(serve::KeyTerms{.name = "editor"});
  const auto ours = transfer_of(exchange, {.url = "http://a:8000", .key = "k", .names = {"m"}}, {});
  ASSERT_TRUE(ours);
  EXPECT_THAT(ours->request.headers, Contains(Pair("X-Tandem-Caller", "editor")));
  const auto other = transfer_of(exchange, {.url = "http://a:8000", .key = "k"}, {});
  ASSERT_TRUE(other);
  EXPECT_THAT(other->request.headers, Not(Contains(Key("X-Tandem-Caller"))));
}

TEST(Exchange, headers_of_an_upstream_are_one_line_each) {
  const auto headers = passed_headers({.status = 200,
                                       .headers = {{"content-type", "application/json"},
                                                   {"content-encoding", "gzip"},
                                                   {"x-request-id", "a\rX-Other: b"}}},
                                      {.name = "one"});
  EXPECT_THAT(headers, Contains(Pair("content-type", "application/json")));
  EXPECT_THAT(headers, Contains(Pair("content-encoding", "gzip")));
  EXPECT_THAT(headers, Not(Contains(Key("x-request-id"))));
}

}  // namespace
}  // namespace tandem::gateway
