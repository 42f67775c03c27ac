// Which experts of a mixture a server's tokens went to, for those that ask: those of a pass over all of them.
#include <gmock/gmock.h>

#include "model/executor.h"
#include "model/routes.h"
#include "model/weights.h"
#include "tests/cli/serve_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

const fs::path kMixture = TANDEM_SOURCE_DIR "/tests/golden/models/qwen3-moe";

std::string decoded(const std::string& base64) {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0, held = 0;
  for (const char letter : base64) {
    if (letter == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kLetters.find(letter));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 255);
  }
  return bytes;
}

class ServeRoutes : public Serve {
 protected:
  static Json request(Json more = Json::object()) {
    Json body = {{"model", "mixture"},
                 {"token_ids", {5, 17, 90, 3, 41, 8, 77, 12, 60, 1}},
                 {"sampling_params", {{"max_tokens", 12}, {"seed", 3}, {"ignore_eos", true}}}};
    for (const auto& [key, value] : more.items()) body[key] = value;
    return body;
  }
  // The file of numpy that stands for the experts of these tokens but the last.
  static std::string expected_file(const std::vector<int32_t>& tokens) {
    auto weights = std::make_shared<model::Weights>(std::move(*model::load_weights(kMixture, false)));
    auto stream = std::move(*kernels::Stream::cpu(1));
    EXPECT_TRUE(weights->pack(stream));
    auto executor =
        std::move(*model::make_cpu_executor(weights, std::move(stream), {.pages = 4, .max_positions = 200}));
    const std::vector<int> pages = {0, 1, 2, 3};
    EXPECT_TRUE(executor->clear(pages));
    model::Plan plan;
    plan.batch.add(tokens, 0, pages);
    plan.routes = true;
    const auto routes = executor->collect(*executor->submit(std::move(plan)))->routes;
    const size_t bytes = (tokens.size() - 1) * model::route_shape(weights->config()).row_bytes();
    std::string head =
        fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({}, 2, 3), }}", tokens.size() - 1);
    head.resize(117, ' ');  // with what stands before it and the line's end 128
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + head + "\n" +
           std::string(reinterpret_cast<const char*>(routes.data()), bytes);
  }
  static std::vector<int32_t> whole(const Json& choice) {
    auto tokens = request()["token_ids"].get<std::vector<int32_t>>();
    for (const Json& token : choice["token_ids"]) tokens.push_back(token.get<int32_t>());
    return tokens;
  }
};

TEST_F(ServeRoutes, are_those_of_a_pass_over_prompt_and_answer) {
  start({"--model", "mixture=" + kMixture.string(), "--routes"});
  // The second finds the prompt computed.
  for (int time = 0; time < 2; ++time) {
    const Json answer = post("/inference/v1/generate", request({{"return_routed_experts", true}}));
    const Json& choice = answer["choices"][0];
    ASSERT_EQ(choice["token_ids"].size(), 12u);
    EXPECT_EQ(decoded(choice["routed_experts"].get<std::string>()), expected_file(whole(choice)));
  }
  EXPECT_FALSE(post("/inference/v1/generate", request())["choices"][0].contains("routed_experts"));
  // In a stream they come at the end, once.
  std::vector<Json> ids;
  std::string routes;
  for (const Json& event : stream("/inference/v1/generate", request({{"return_routed_experts", true}}))) {
    for (const Json& choice : event["choices"]) {
      for (const Json& token : choice["token_ids"]) ids.push_back(token);
      if (!choice.contains("routed_experts")) continue;
      EXPECT_EQ(routes, "");
      routes = choice["routed_experts"].get<std::string>();
      EXPECT_EQ(ids.size(), 12u);
    }
  }
  EXPECT_EQ(decoded(routes), expected_file(whole({{"token_ids", ids}})));
  // A model without experts has none, and so has no answer.
  const Json asked = {{"return_routed_experts", true}};
  auto refused =
      ask("/inference/v1/generate", dump_json(request({{"model", "tiny"}, {"return_routed_experts", true}})));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("return_routed_experts"));
  EXPECT_THAT(refused.body, HasSubstr("no mixture of experts"));
  Json none = request(asked);
  none["sampling_params"]["max_tokens"] = 0;
  refused = ask("/inference/v1/generate", dump_json(none));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("max_tokens"));
  EXPECT_THAT(ask("/openapi.json", "", "", "GET").body, HasSubstr("return_routed_experts"));
}

TEST_F(ServeRoutes, are_refused_where_the_server_records_none) {
  start({"--model", "mixture=" + kMixture.string()});
  const auto refused = ask("/inference/v1/generate", dump_json(request({{"return_routed_experts", true}})));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("--routes"));
}

}  // namespace
}  // namespace tandem
