// The model of an evaluation behind OpenAI-compatible servers.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "envs/episodes/profile.h"
#include "eval/model_source.h"
#include "eval/suite.h"

namespace tandem::eval {

struct EndpointTerms {
  std::vector<std::string> urls;  // in the order in which they are asked
  std::string model;              // its name there
  std::string key;
  double temperature = 1;
  int max_new_tokens = 1024;
  std::vector<std::string> tools;
  std::string system;                                      // message, as a profile has it
  envs::Compaction compaction;                             // the same
  int requests_per_minute = 0;                             // to each server; 0: any number
  std::map<std::string, int> requests_per_minute_of = {};  // by URL, of servers that have a limit of their own
  Duration request_limit = std::chrono::seconds(600);
};

// The suite's terms, but for the model's name where that is empty. kInvalid where the variable of the key is not set,
// or an URL is none.
Result<EndpointTerms> endpoint_terms(const Suite& suite);

// The name of the only model that a server has. kInvalid where it has several, kUnavailable where it does not answer.
Result<std::string> only_model_of(const EndpointTerms& terms);

// Thread safety: all of it.
class EndpointSource final : public ModelSource {
 public:
  // `clock` outlives the source.
  EndpointSource(EndpointTerms terms, const Clock& clock) : terms_(std::move(terms)), clock_(clock) {}
  Result<std::unique_ptr<rollout::AgentModel>> begin(const envs::Task& task, uint64_t seed,
                                                     std::vector<envs::ForeignTool> foreign) override;

  // Waits until one more request may be sent to this server of the terms, by its limit; false where `stop` was asked
  // for.
  bool wait_for_turn(const std::string& url, const std::stop_token& stop);
  // In the order in which the next sample asks them: those that were absent when last looked at come last.
  std::vector<std::string> urls() const;
  // Notes whether server `number` of the terms answers.
  void note_presence(size_t number, bool present);
  // When a server answered last, if ever.
  std::optional<Time> heard() const;
  void note_answer();

 private:
  const EndpointTerms terms_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, std::deque<Time>> sent_;  // by URL, of the last minute
  std::optional<Time> heard_;
  std::vector<bool> absent_;  // by server; those beyond its end are not
};

// Asks the servers of an endpoint now and then whether they are there, on a thread of its own, and says so once when
// none has answered anything for `patience`.
class EndpointWatch {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // Tells `source` which servers are there, too. `on_gone` is called on the watch's thread. `source` and `clock`
  // outlive the watch.
  EndpointWatch(const EndpointTerms& terms, EndpointSource& source, const Clock& clock,
                std::function<void(std::string why)> on_gone, Duration patience = kPatience);

 private:
  void watch(const std::stop_token& stop);

  const std::vector<std::string> urls_;  // of lists of models
  const std::string key_;
  EndpointSource& source_;
  const Clock& clock_;
  const std::function<void(std::string why)> on_gone_;
  const Duration patience_;
  std::jthread thread_;
};

}  // namespace tandem::eval
