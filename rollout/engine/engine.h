// Samples tokens for many sequences at once: continuous batching over paged keys and values.
//
// A sequence is token ids from first to last: a prompt, what the model says, what a tool answered, what the model says
// next. `add` starts it, each `step` runs one pass over a batch of sequences, a turn ends on a stop token or a limit,
// `extend` adds the tokens of a tool result and starts the next turn. Between turns a sequence is parked: it keeps its
// pages while nobody needs them. A prompt that several sequences share is computed once and its pages are shared.
//
// The token at a position depends on the tokens before it, the weights, and (seed, position), never on batch, order,
// slots, chunking, or whether pages were found or computed again (docs/numerics.md).
//
// New weights take effect between two steps. OnNewVersion decides about running turns; by default all keys and values
// are computed again, so every sampled token's logprob is that of one version of the weights given all tokens before
// it.
//
// Turns of a lower `priority` number go first: they preempt slots and pages of others, which recompute what they gave
// up and sample the same tokens.
//
// The engine holds queues, page ids and the plan of the next pass; a model::Executor runs it. With an executor of depth
// above 1, a step plans before the last samples are known; what a turn has planned beyond its end is discarded.
//
// Thread safety: none; one thread owns an engine.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/sampling.h"
#include "model/constraint/matcher.h"
#include "model/executor.h"
#include "rollout/engine/draft_length.h"
#include "rollout/engine/drafts.h"
#include "rollout/engine/kv_cache.h"
#include "rollout/engine/route_pages.h"

namespace tandem::rollout {

class DraftModel;

using SequenceId = uint64_t;

// How new weights affect running turns. kRecompute: keys and values are recomputed with the new weights. kKeep: keys
// and values stay, so new tokens are sampled over those of older weights; SampledToken::context_version tells which,
// and such pages are not shared. kFinish: a turn ends with the weights that it began with. One earlier version is kept
// for that; when another version is staged, turns that still run on it are recomputed with the live one.
enum class OnNewVersion : uint8_t { kRecompute, kKeep, kFinish };
// kInvalid, with the valid names, for any but recompute, keep and finish.
Result<OnNewVersion> on_new_version_named(std::string_view name);

// Speculative decoding. kNgram: a pass also has rows of drafted tokens, from n-grams of the sequence or its prediction.
// Samples and logprobs stay the same, with fewer passes.
enum class Speculation : uint8_t { kOff, kNgram };
// kInvalid, with the valid names, for an unknown one.
Result<Speculation> speculation_named(std::string_view name);

struct EngineSettings {
  int slots = 32;            // sequences that sample at once
  int pages = 0;             // of key/value memory; 0: enough for `slots` sequences of `max_tokens`, and half again
  int max_tokens = 1024;     // the longest sequence, prompt included
  int prefill_tokens = 512;  // prompt tokens that one step may take on beside the sampling rows
  int prefill_beside = 512;  // the same while others sample, so that a long prompt does not hold them up
  Speculation speculation = Speculation::kOff;
  OnNewVersion on_new_version = OnNewVersion::kRecompute;
  // Whether sampled tokens have their experts (SampledToken::routes), which are kept beside the pages. For mixtures of
  // experts only.
  bool record_routes = false;
};
// The number of pages of an engine with these settings.
int pages_of(const EngineSettings& settings);

// A constraint on a turn: its text must match the grammar. Stop tokens are allowed exactly where a text may end.
struct TurnConstraint {
  std::shared_ptr<const model::constraint::Grammar> grammar;
  std::shared_ptr<const model::constraint::Vocabulary> vocabulary;
};

struct TurnRequest {
  int max_new_tokens = 256;
  kernels::SamplingSettings sampling;
  // 1 / T where the policy is at temperature T, and `sampling.temperature` 1: logprobs are then of that policy. Above
  // 0; with another than 1 no logprobs of other tokens can be asked for.
  float logit_scale = 1;
  uint64_t seed = 0;
  std::vector<int32_t> stop_tokens;  // end the turn; kept in the sequence
  int min_new_tokens = 0;            // stop tokens cannot be drawn before
  std::optional<TurnConstraint> constraint;
  std::vector<model::TokenBias> bias;  // added to logits, each token at most once
  // OpenAI's penalties, taken off the logits of tokens that the turn has said: for each time, and for any time.
  float frequency_penalty = 0, presence_penalty = 0;
  int top_logprobs = 0;          // the likeliest tokens beside each that is sampled
  bool prompt_logprobs = false;  // of the tokens before the turn: all are then computed again
  int prompt_top_logprobs = 0;
  std::vector<int32_t> prediction;  // what the turn will probably say; changes no token
  int priority = 0;                 // lower goes first
  // Keys and values are shared among sequences of the same salt only. Fixed by the first turn of a sequence.
  std::string cache_salt;
  // The adapter of the sequence, with these and later weights; null: none. Fixed by the first turn, too. Keys and
  // values are shared among adapters of the same content.
  std::shared_ptr<const model::LiveAdapter> adapter;
  // Tokens come with those that they were drawn from (SampledToken::kept), and `logprob` is that among these: what is
  // cut off by `sampling` is then the policy's own. Goes without all that changes which tokens may be drawn.
  bool record_kept = false;
};

// Stop token, max_new_tokens, max_tokens of the engine; a constraint that can be followed no further, where no token
// was drawn.
enum class TurnEnd : uint8_t { kStop, kLength, kContext, kConstraint };

// A token of the prompt.
struct PromptLogprob {
  float logprob = 0;
  std::vector<model::TokenLogprob> top;
};

struct SampledToken {
  SequenceId sequence = 0;
  int32_t token = 0;
  float logprob = 0;           // the model's own, at the turn's logit_scale
  float sampling_logprob = 0;  // under the constraint, after temperature and truncation
  uint64_t version = 0;        // of the weights
  // The oldest version whose keys and values it was sampled from: `version`, except under kKeep.
  uint64_t context_version = 0;
  bool turn_ended = false;
  TurnEnd end = TurnEnd::kStop;
  std::vector<model::TokenLogprob> top;  // where the turn asks for them
  std::vector<PromptLogprob> prompt;     // with the first token of a turn that asks for them: of tokens 1, 2, ..
  int cached_tokens = 0;                 // with the first token of a turn: of the prompt, that were found computed
  double compute_seconds = 0;            // of the passes since the turn's last token, its part by rows
  bool predicted = false;                // a token of the prediction at its place, the first time that it is said
  // Where routes are recorded: a row (base/expert_routes.h) for each place of the sequence from `routes_from` on up to
  // the token before this one. No row is told twice: it is of the pass that the next token was sampled from, or of the
  // last one before it that computed the place.
  int routes_from = 0;
  std::vector<uint8_t> routes;
  std::vector<int32_t> kept;  // where the turn records them: ascending; empty: all
};

struct EngineCounters {
  uint64_t steps = 0, prompt_tokens = 0, shared_tokens = 0, sampled_tokens = 0, recomputed_tokens = 0;
  uint64_t mixed_tokens = 0;                         // sampled from keys and values of older weights than their own
  uint64_t preemptions = 0;                          // of turns, by others that go before them
  uint64_t drafted_tokens = 0, accepted_tokens = 0;  // guessed, and of them those that were sampled
  double forward_seconds = 0, sample_seconds = 0;
};

class Engine {
 public:
  // Makes the executor with the given numbers of pages and positions.
  using MakeExecutor = std::function<Result<std::unique_ptr<model::Executor>>(const model::ExecutorSettings&)>;
  // kInvalid names the setting that does not fit `config`, of the executor's model.
  static Result<Engine> create(const model::ModelConfig& config, uint64_t version, const MakeExecutor& make,
                               const EngineSettings& settings);
  // On a device; the weights are ready for it (model::Place::ready).
  static Result<Engine> create(const std::shared_ptr<const model::Weights>& weights, uint64_t version,
                               const model::Place& place, const EngineSettings& settings);
  // On a CPU; the weights are packed.
  static Result<Engine> create(std::shared_ptr<const model::Weights> weights, uint64_t version, kernels::Stream stream,
                               const EngineSettings& settings);

  // kInvalid: a token outside the vocabulary, an empty prompt, one that leaves no room to sample, an id in use, a
  // constraint without a stop token, or whose texts may hold one, or an adapter that was made for another model.
  // kUnfit: an adapter where the device holds none. The adapter is held until the last sequence that has it is
  // released.
  Status add(SequenceId id, std::vector<int32_t> prompt, const TurnRequest& turn);
  // The next turn of a parked sequence. kNotFound, or kExhausted where the tokens do not fit.
  Status extend(SequenceId id, std::span<const int32_t> tokens, const TurnRequest& turn);
  // Truncates a parked sequence to `length` tokens. kInvalid where that cuts more than its last turn, kNotFound for an
  // unknown one.
  Status rewind(SequenceId id, int length);
  // Forgets a sequence, whatever its state. Unknown ids are ignored.
  void release(SequenceId id);

  // Sets the model that drafts where the sequence itself gives no draft. Only with speculation; once.
  void draft_with(std::shared_ptr<DraftModel> model) { draft_model_ = std::move(model); }

  // Submits one pass and collects the oldest one that is due. Empty where there is no work, and where no pass is due.
  Result<std::vector<SampledToken>> step();

  // Allocates memory for new weights, to be filled by any thread (model/executor.h).
  Result<std::unique_ptr<model::StagedWeights>> stage_weights();
  // Takes effect for the passes submitted from then on.
  Status swap_weights(std::unique_ptr<model::StagedWeights> prepared, uint64_t version);
  // Returns to the weights before the last swap. kNotFound where their memory was staged meanwhile.
  Status roll_back_weights();

  // Gives the memory of keys and values back until `wake`. Collects the passes under way, and returns what they
  // sampled. All keys and values are computed again afterwards, with the weights that are live then; turns that were to
  // end with earlier ones go on with these. Steps do nothing meanwhile.
  Result<std::vector<SampledToken>> sleep();
  // kExhausted where others have the memory now; it can be called again then.
  Status wake();
  bool asleep() const { return asleep_; }

  bool knows(SequenceId id) const { return sequences_.contains(id); }
  bool idle() const { return running() == 0; }
  int running() const { return running_; }  // sequences in a turn, waiting ones included
  int free_slots() const;
  int adapters() const { return static_cast<int>(adapters_.size()); }  // that sequences have
  uint64_t version() const { return version_; }
  int vocabulary() const { return vocabulary_; }
  const EngineCounters& counters() const { return counters_; }
  model::GraphCounters graphs() const { return executor_->graphs(); }
  const EngineSettings& settings() const { return settings_; }
  std::string numerics_id() const { return executor_->numerics_id(); }
  model::WeightFormat format() const { return executor_->format(); }
  // The shape of recorded routes; any() is false without them.
  RouteShape route_shape() const { return route_pages_ ? route_pages_->shape() : RouteShape(); }

 private:
  struct Sequence {
    std::vector<int32_t> tokens;           // that are known
    std::vector<model::LaterToken> later;  // that follow them, in passes not collected yet
    int computed = 0;                      // positions whose keys and values are in pages, or will be
    PageTable pages;
    int remembered = 0;  // whole pages that others can find
    TurnRequest turn;
    uint64_t turn_number = 0;                             // of all turns of this engine
    std::shared_ptr<model::constraint::Matcher> matcher;  // of a turn with a constraint
    int turn_start = 0;                                   // tokens before the turn
    std::vector<PromptLogprob> prompt;                    // of tokens 1, 2, .. of a turn that asks for them
    std::map<int32_t, int> said;                          // by token, how often, of a turn with penalties
    int cached = 0;                                       // tokens that the turn found computed
    double compute_seconds = 0;                           // of passes, not said with a token yet
    std::string salt;
    std::shared_ptr<const model::LiveAdapter> adapter;
    model::AdapterId adapter_id = 0;  // of it in the executor
    uint64_t context_version = 0;     // the oldest that made some of its keys and values
    bool mixed = false;               // some of them are of older weights than others
    bool behind = false;              // the turn ends under the weights before the live ones
    bool in_turn = false;
    bool verifies = false;  // a pass with a draft of it is not collected yet
    Drafts drafts;
    std::vector<int32_t> proposed;  // by the draft model, for the next pass
    int matched = 0;                // tokens that it had right since the last that it had wrong
    DraftRecord record;
    DraftBalance balance;
    uint64_t touched = 0;  // step at which it last ran
    uint64_t first_turn = 0;
    int routes_told = 0;          // places whose rows were told
    std::vector<uint8_t> routes;  // of the places from there on, where they are recorded

    int length() const { return static_cast<int>(tokens.size() + later.size()); }
  };
  struct Chunk {
    SequenceId id = 0;
    Sequence* sequence = nullptr;
    int rows = 0;  // those of the draft included
    bool samples = false;
    Draft draft;
    DraftLoad load;
  };
  // A turn that waits for a slot, ordered by priority.
  struct Waiting {
    int priority = 0;
    uint64_t turn_number = 0;
    SequenceId id = 0;
    friend auto operator<=>(const Waiting&, const Waiting&) = default;
  };
  static Waiting place_of(SequenceId id, const Sequence& sequence) {
    return {sequence.turn.priority, sequence.turn_number, id};
  }
  // A pass that was submitted and not yet collected.
  struct Pass {
    struct Of {
      SequenceId sequence = 0;
      uint64_t turn_number = 0;
    };
    model::Ticket ticket = 0;
    uint64_t version = 0;
    // The draws of a sequence: one for each drafted token, and one before them.
    struct Said {
      Of of;
      Draft draft;
      DraftLoad load;
      uint64_t context_version = 0;
    };
    std::vector<Said> said;
    std::vector<size_t> draw_tops;  // by draw, which of the answer's tops is its; kNoTop: none
    struct PromptPick {
      Of of;
      int at = 0;  // in the sequence's prompt
      size_t top = 0;
    };
    std::vector<PromptPick> prompt;  // by pick
    struct Part {
      Of of;
      int rows = 0;
      int first = 0;                // place of the first row
      std::vector<int> pages = {};  // of its rows, where routes are recorded
    };
    // Pages that were copied from others or found by sequences before the pass, in order.
    struct RouteMove {
      int from = -1, to = -1;  // a copy of a page; else:
      Of of = {};
      std::vector<int> pages = {};  // whose first `count` places the sequence has found computed
      int count = 0;
    };
    std::vector<RouteMove> route_moves;
    std::vector<Part> parts;
    int rows = 0;
    bool samples_alone = true;  // no rows of prompts
  };

  Engine(std::unique_ptr<model::Executor> executor, int vocabulary, uint64_t version, EngineSettings settings);

  // An adapter in the executor, and how many sequences have it.
  struct HeldAdapter {
    model::AdapterId id = 0;
    int sequences = 0;
  };
  Result<model::AdapterId> hold(const std::shared_ptr<const model::LiveAdapter>& adapter);
  void let_go_of_adapter(const Sequence& sequence);

  Status check_tokens(std::span<const int32_t> tokens) const;
  Status check_turn(const TurnRequest& turn) const;
  void begin_turn(Sequence& sequence, const TurnRequest& turn);
  // Drops the sequence's pages; they are recomputed.
  void forget_pages(Sequence& sequence);
  void recompute(Sequence& sequence);
  void recompute_all();
  uint64_t version_of(const Sequence& sequence) const { return sequence.behind ? version_before_ : version_; }
  // Whether the next pass is of turns that end under the weights before: they take turns with the others.
  bool next_is_behind();
  void admit();
  void leave_queue(SequenceId id, const Sequence& sequence);
  std::vector<std::pair<SequenceId, Sequence*>> in_order() const;
  Sequence* give_up_pages(const Sequence& wanting);
  // The number of rows to compute now; 0 where the last sample must be known first.
  int missing(Sequence& sequence);
  Result<std::vector<Chunk>> schedule();
  void remember(Sequence& sequence, int computed, bool tail);
  Result<bool> make_room(Sequence& sequence, int tokens);
  Status submit(std::span<const Chunk> chunks);
  static constexpr size_t kNoTop = SIZE_MAX;
  static void ask_for_prompt(const Chunk& chunk, int row, model::Plan& plan, Pass& pass);
  // The token behind `drafted`, which follow what the sequence has. `matcher`: behind them too.
  static model::Draw draw_of(const Sequence& sequence, int row, std::span<const int32_t> drafted,
                             std::shared_ptr<model::constraint::Matcher> matcher);
  void ask_for_tokens(const Chunk& chunk, int row, model::Plan& plan, Pass& pass);
  Result<std::vector<SampledToken>> collect();
  // Takes one sequence of a pass, whose draws and their tops begin at `first`: its tokens up to the first that was not
  // drafted.
  void take_said(const Pass& pass, const Pass::Said& said, size_t first, model::Answer& answer,
                 std::vector<SampledToken>& sampled);
  // Takes the next token of the sequence; ends the turn where it was the last.
  SampledToken take(SequenceId id, Sequence& sequence, const kernels::Sampled& drawn, uint64_t version);
  // The draft for a sequence that lacks one row; empty where it is not worth its rows.
  Draft draft_of(Sequence& sequence, const DraftLoad& load);
  // The request to the draft model for a sequence without a draft of its own.
  Draft draft_by_model(Sequence& sequence, const DraftLoad& load);
  // Asks the draft model for all sequences that may draft in a pass of this load.
  Status ask_draft_model(bool behind, const DraftLoad& load);
  // The maximum number of tokens to draft now.
  int room_for_draft(const Sequence& sequence, const DraftLoad& load) const;
  // Whether it is worth waiting for what was sampled last.
  bool may_draft_soon(Sequence& sequence);
  DraftLoad load_before_drafts(bool behind);
  void settle(Sequence& sequence, const Pass::Said& said, int right);
  Sequence* running_turn(const Pass::Of& of);
  // ---- engine_routes.cpp: which experts the tokens went to ----
  // `copied`: the page that the last of the sequence's is a copy of, or -1.
  void find_routes(SequenceId id, const Sequence& sequence, int count, int copied);
  Status take_routes(const Pass& pass, const model::Answer& answer);
  Status tell_routes(Sequence& sequence, SampledToken& token) const;
  void keep_route(const Pass::Of& of, int place, std::span<const uint8_t> row);
  void end_turn(SequenceId id, Sequence& sequence, SampledToken& token, TurnEnd end);

  std::unique_ptr<model::Executor> executor_;
  int vocabulary_;
  uint64_t version_ = 0, version_before_ = 0;
  EngineSettings settings_;
  KvCache cache_;
  std::deque<Pass> passes_;  // the oldest first
  std::optional<RoutePages> route_pages_;
  std::vector<Pass::RouteMove> route_moves_;  // since the last pass that was submitted
  Status routes_lost_;
  uint64_t turns_ = 0;
  bool last_was_behind_ = false, asleep_ = false;
  std::map<SequenceId, Sequence> sequences_;  // ordered: schedules do not depend on hashing
  std::map<std::shared_ptr<const model::LiveAdapter>, HeldAdapter> adapters_;
  std::map<SequenceId, Sequence*> admitted_;  // turns that hold a slot
  std::set<Waiting> waiting_;                 // turns without
  int running_ = 0;
  PassCost pass_cost_;
  DraftRecord record_;  // of all sequences
  std::shared_ptr<DraftModel> draft_model_;
  EngineCounters counters_;
};

}  // namespace tandem::rollout
