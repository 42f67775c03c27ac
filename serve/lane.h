// One served model: requests wait for a slot, are sampled, and are answered while their tokens come.
//
// Thread safety: none; the server's loop owns it. What prepares requests (`view`) belongs to the thread that does.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/live_adapter.h"
#include "model/routes.h"
#include "model/weights.h"
#include "serve/admission.h"
#include "serve/endpoints.h"
#include "serve/engine_thread.h"
#include "serve/metrics.h"
#include "serve/outcomes.h"
#include "serve/rewards.h"
#include "wire/http_server.h"

namespace tandem::serve {

struct LaneSettings {
  std::vector<std::string> names;  // of the model; the first stands in answers to requests without one
  fs::path directory;
  model::WeightFormat format = model::WeightFormat::kBf16;
  int slots = 16;
  int max_tokens = 0;  // prompt and answer together; 0: the model's, at most 8192
  int queue = 1024;    // answers of a class and of those above it that wait, at most
  std::array<Duration, kPriorities.size()> longest_wait = {};  // of a class, before it is refused; zero: any
  rollout::Speculation speculation = rollout::Speculation::kNgram;
  fs::path draft_model;                 // directory of a smaller one that guesses; empty: none
  bool salt_by_key = false;             // what was computed of prompts is shared within a key alone
  bool routes = false;                  // of a mixture of experts the engine records which experts tokens go to
  model::Place place;                   // where it computes
  MakeRewardReader reward_reader = {};  // of a model with a head of rewards; null: heads are passed over
};

// How a pause treats running answers: they end, are suspended, or are cut with an error.
enum class PauseMode : uint8_t { kWait, kKeep, kAbort };

class Lane {
 public:
  // Loads the model.
  static Result<std::unique_ptr<Lane>> load(LaneSettings settings, const Clock& clock);

  // Requests are read against this, by one thread.
  ModelView view(const std::string& name) {
    return {.name = name,
            .text = text_,
            .config = config_,
            .constraints = constraints_,
            .max_tokens = max_tokens_,
            .routes = settings_.routes ? model::route_shape(config_) : RouteShape()};
  }

  // The times of one answer; a time that never came is Time{}.
  struct AnswerTimes {
    Time started{}, first_token{}, last_token{};
    uint64_t tokens = 0;
    Duration text{};  // that tokens took to become text, reasoning and calls
  };
  struct Spent {
    uint64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
    uint64_t taken_over_tokens = 0;           // of the answer, that another version had said before this one went on
    double seconds = 0, compute_seconds = 0;  // since it arrived; its share of the passes, by rows
    std::string_view outcome;                 // done, error, ended (by the server), gone (its client), elsewhere
    std::vector<AnswerTimes> answers = {};
  };
  struct Exchange;
  struct Request {
    uint64_t number = 0;  // of the HTTP request
    std::string id;
    std::string key, session;  // whose it is
    std::string adapter;       // that it names as its model; empty: none
    Time arrived{};
    Prepared prepared;
    wire::HttpReply reply;
    // Takes it over where this lane has no room for it, or its engine fails before anything of the answer was sent;
    // null: nobody does.
    std::function<void()> elsewhere;
    // The same of a stream that has begun: gives it to another lane's `take_over`. An error: the stream stays, and ends
    // with it. Null: nobody does.
    std::function<Status(std::unique_ptr<Exchange>& stream)> go_on;
    // Called with the resources used, when an accepted request ends at a lane; may be null.
    std::function<void(const Spent&)> spent;
  };
  // Answers now or later, in any case.
  void submit(Request request);
  // Goes on with a stream that `from` has begun: the prompt and the tokens said so far are read, and the next ones are
  // sampled with the same seed. The client sees one stream, of one id. kUnfit: of what the request asks for, or where
  // the versions read tokens differently; kUnavailable and kExhausted: no engine, no room. `stream` stays where it
  // fails.
  Status take_over(std::unique_ptr<Exchange>& stream, const std::shared_ptr<Lane>& from);
  // Its client is no longer there. Unknown numbers are ignored.
  void gone(uint64_t number);
  // New answers wait. A second pause may be stricter than the first.
  void pause(PauseMode mode);
  void resume();
  bool paused() const { return paused_; }
  // Gives back the memory of weights and pages; answers wait. False where some are being sampled.
  bool sleep();
  bool asleep() const { return asleep_; }
  // What sleep gives back: loads it for `wake`; on any thread, while asleep.
  struct Awake {
    rollout::Engine engine;
    std::shared_ptr<ServedRewards> rewards;
  };
  Result<Awake> load_awake() const;
  void wake(Awake awake);
  // Ends all requests with this error.
  void end_all(int http_status, const std::string& message) {
    end_those(http_status, message, [](const Request&) { return true; });
  }
  // The same of some.
  void end_those(int http_status, const std::string& message, const std::function<bool(const Request&)>& which);

  const RewardSeat& rewards() const { return rewards_; }

  int wake_fd() const { return engine_->wake_fd(); }
  void take_news();
  Duration busy() const { return engine_->busy(); }  // of its engine, in one step

  size_t requests() const { return exchanges_.size(); }
  const LaneSettings& settings() const { return settings_; }
  // The digest of its files when it was loaded (model/model_digest.h); empty: not known yet.
  const std::string& digest() const { return digest_; }
  void set_digest(std::string digest) { digest_ = std::move(digest); }
  int max_tokens() const { return max_tokens_; }
  // An adapter as this model is computed with it. kInvalid where it does not fit, kUnfit where the device holds none.
  // On any thread.
  Result<std::shared_ptr<const model::LiveAdapter>> prepare(const model::Adapter& adapter) const;
  // Whether `prepare` of an equal model gave it.
  bool takes(const model::LiveAdapter& adapter) const;
  const Status& trouble() const { return trouble_; }
  ModelGauges gauges() const;
  const Outcomes& outcomes() const { return outcomes_; }
  // Streams that it had begun and lost: those that another lane went on with, and those that ended with an error.
  uint64_t streams_taken_over() const { return streams_taken_over_; }
  uint64_t streams_cut() const { return streams_cut_; }
  void note_error() { ++outcomes_.errors; }
  void note_feedback(bool accepted) { ++(accepted ? outcomes_.accepted : outcomes_.rejected); }

  struct Exchange {
    std::shared_ptr<Lane> begun_by;  // whose tokenizer it is read with, until it ends; null: this lane
    uint64_t taken_over_tokens = 0;
    Request request;
    std::vector<Choice> choices;
    std::vector<AnswerId> answers;   // by choice
    std::vector<AnswerTimes> times;  // by choice
    std::shared_ptr<wire::HttpStream> stream;
    EventWriter out;
    size_t open = 0;       // choices that have not ended
    bool started = false;  // one of them has had a slot
    uint64_t cached_tokens = 0;
    double compute_seconds = 0;
    bool begun = false;
    AnswerView view() const {
      return {.prompts = request.prepared.generation.prompts, .choices = choices, .n = request.prepared.generation.n};
    }
  };

 private:
  struct Place {
    uint64_t number = 0;
    size_t choice = 0;
  };

  Lane(LaneSettings settings, TextSide text, model::ModelConfig config, int max_tokens,
       std::shared_ptr<ServedRewards> rewards, std::unique_ptr<EngineThread> engine, const Clock& clock);
  static Result<rollout::Engine> engine_of(const LaneSettings& settings,
                                           const std::shared_ptr<const model::Weights>& weights, int max_tokens);
  void hold();

  void act(const AdmissionActions& actions);
  void start(AnswerId answer);
  void take(rollout::SampledToken token);
  void send(Exchange& exchange);
  void finish(uint64_t number);
  // Ends it with an error, where its client can still hear it.
  void fail(uint64_t number, int http_status, const std::string& message);
  // Lets another lane go on with a stream that has begun; false where it ends with the error, with the cause in
  // `message`.
  bool hand_on(std::unique_ptr<Exchange>& exchange, std::string& message);
  void release(Exchange& exchange);
  void count(const Exchange& exchange);
  void say_spent(const Exchange& exchange, std::string_view outcome) const;

  const LaneSettings settings_;
  const TextSide text_;
  const model::ModelConfig config_;
  Constraints constraints_;
  const int max_tokens_;
  RewardSeat rewards_;
  const Clock& clock_;
  Admission admission_;
  ModelMetrics metrics_;
  Outcomes outcomes_;
  Status trouble_;
  std::string digest_;
  uint64_t streams_taken_over_ = 0, streams_cut_ = 0;
  bool paused_ = false, asleep_ = false;
  AnswerId last_answer_ = 0;
  std::map<uint64_t, std::unique_ptr<Exchange>> exchanges_;  // by number
  std::map<AnswerId, Place> places_;
  std::unique_ptr<EngineThread> engine_;  // goes first
};

}  // namespace tandem::serve
