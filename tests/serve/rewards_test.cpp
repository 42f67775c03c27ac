// The path of rewards of a server in this process: bits, refusals, and models without a head.
#include "serve/rewards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "serve/server.h"
#include "tests/within.h"
#include "wire/http_client.h"

namespace tandem::serve {
namespace {

using testing::HasSubstr;

const fs::path kServedModel = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "sft" / "model";

// Tokens as the letters of all messages.
Result<std::vector<int32_t>> letters_of(const Json& conversation) {
  std::vector<int32_t> tokens;
  for (const Json& message : conversation["messages"]) {
    if (message["role"] != "assistant" && message["role"] != "user")
      return fail(Status::invalid("somebody else speaks"));
    for (const char letter : message["content"].get<std::string>()) tokens.push_back(letter);
  }
  return tokens;
}

class ServedRewardPath : public testing::Test {
 protected:
  ServedRewardPath() : folder_(fs::path(testing::TempDir()) / ("served-rewards-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::copy(kServedModel, folder_);
    const int width = model::read_config(folder_)->width;
    for (int i = 0; i <= width; ++i) head_.weight.push_back(std::cos(static_cast<float>(i)));
    EXPECT_TRUE(model::write_reward_head(head_, folder_));
    const auto lane = [](const char* name, const fs::path& directory) {
      LaneSettings settings{.names = {name}, .directory = directory, .slots = 2, .max_tokens = 128};
      settings.reward_reader = [](const fs::path&, const model::RewardHead&) { return RewardReader(letters_of); };
      return settings;
    };
    ServerSettings settings{.front = {.host = "127.0.0.1", .port = 0},
                            .models = {lane("plain", kServedModel), lane("judge", folder_)},
                            .version = "1"};
    auto server = Server::listen(std::move(settings), clock_);
    EXPECT_TRUE(server) << server.error().to_string();
    server_ = std::move(*server);
    loop_ = std::thread([this] {
      const Status status = server_->serve([this] { ready_ = true; }, stop_, read_keys_);
      EXPECT_TRUE(status) << status.to_string();
      ended_ = true;
    });
    EXPECT_TRUE(within(60s, [&] { return ready_ || ended_; }));
  }
  ~ServedRewardPath() override {
    stop_ = true;
    loop_.join();
    fs::remove_all(folder_);
  }
  struct Answer {
    int status = 0;
    std::string body;
  };
  Answer ask(const Json& body) const {
    Answer answer;
    wire::OutgoingRequest request{.url = server_->url() + "/v1/rewards", .method = "POST"};
    request.headers = {{"Content-Type", "application/json"}};
    request.body = dump_json(body);
    request.limit = 120s;
    const auto head = wire::http_request(
        request,
        [&](const wire::HttpHead&, std::string_view bytes) {
          answer.body += bytes;
          return Status();
        },
        std::stop_token());
    if (head) answer.status = head->status;
    return answer;
  }
  static Json conversation(const std::string& text) {
    return {{"messages", {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", text}}}}};
  }

  const fs::path folder_;
  model::RewardHead head_;
  SystemClock clock_;
  std::unique_ptr<Server> server_;
  std::atomic<bool> ready_{false}, ended_{false}, stop_{false}, read_keys_{false};
  std::thread loop_;
};

TEST_F(ServedRewardPath, gives_the_bits_of_the_model_alone_and_beside_others) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto weights = std::move(*model::load_weights(folder_, false));
  ASSERT_TRUE(weights.pack(stream));
  auto model = std::move(*model::RewardModel::create(std::make_shared<const model::Weights>(std::move(weights)),
                                                     std::move(stream), head_));
  std::vector<Json> asked;
  std::vector<double> expected, got(12);
  for (int i = 0; i < 12; ++i) {
    asked.push_back(conversation("an answer" + std::string(static_cast<size_t>(i * 7), 'x')));
    const auto tokens = letters_of(asked.back());
    expected.push_back(*model.reward(*tokens));
  }
  std::vector<std::thread> clients;
  for (size_t i = 0; i < asked.size(); ++i) {
    clients.emplace_back([&, i] {
      Json body = asked[i];
      if (i % 2 == 0) body["model"] = "judge";
      const auto answer = ask(body);
      EXPECT_EQ(answer.status, 200) << answer.body;
      if (answer.status == 200) got[i] = parse_json(answer.body)->at("terms")["reward_model"].get<double>();
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(got, expected);
}

TEST_F(ServedRewardPath, takes_an_episode_and_refuses_what_is_none_by_name) {
  Json episode = conversation("b");
  episode.update({{"version", 1},
                  {"task", Json::object()},
                  {"outcome", "completed"},
                  {"answer", "b"},
                  {"calls", Json::array()},
                  {"files", Json::array()},
                  {"files_complete", true},
                  {"grade", {{"reward", 1.0}}}});
  EXPECT_EQ(ask(episode).body, ask(conversation("b")).body);
  const auto refused = [&](const Json& body, int status, const char* words) {
    const auto answer = ask(body);
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(words));
  };
  Json other = conversation("b");
  other["model"] = "plain";
  refused(other, 400, "is no reward model: it has no reward_head.safetensors");
  other["model"] = "nobody";
  refused(other, 404, "there is no model");
  refused({{"messages", {{{"role", "tool"}, {"content", "r"}}}}}, 400, "somebody else speaks");
  refused(conversation(std::string(600, 'x')), 400, "the model takes 512 at most");
  refused(Json::object(), 400, "messages");
  other = conversation("b");
  other["mesages"] = 1;
  refused(other, 400, "mesages");
}

}  // namespace
}  // namespace tandem::serve
