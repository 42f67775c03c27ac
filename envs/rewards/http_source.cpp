// reward.http: a server gets the episode by POST and answers with its terms.
#include "envs/rewards/source.h"
#include "wire/json_request.h"

namespace tandem::envs {
namespace {

class HttpSource final : public RewardSource {
 public:
  HttpSource(const RewardSettings& settings, std::string key) : settings_(settings), key_(std::move(key)) {}
  std::string name() const override { return "reward.http"; }
  std::string identity() const override { return "http " + settings_.http; }

  Result<RewardAnswer> ask(const Question& question) override {
    const auto answer = TRY(wire::request_json({.url = settings_.http,
                                                .key = key_,
                                                .body = question.text,
                                                .seconds = question.seconds,
                                                .largest_answer = static_cast<size_t>(settings_.output_bytes)}));
    return read_reward_answer(answer, question.episode.turns());
  }

 private:
  const RewardSettings settings_;
  const std::string key_;
};

}  // namespace

Result<std::unique_ptr<RewardSource>> http_source(const RewardSettings& settings) {
  return std::make_unique<HttpSource>(settings, TRY(wire::read_server_key(settings.key_env, settings.key_file)));
}

}  // namespace tandem::envs
