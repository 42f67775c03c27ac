// Trains weights: one optimizer step from a batch of samples, by reinforcement or from demonstrations.
//
// Samples are dealt to virtual slots (slots.h), merged into prefix trees (token_tree.h) of bounded size, and run
// through the Tape; gradients are summed slot by slot, and slots as a tree; then the norm is clipped and the optimizer
// moves fp32 masters, from which the bf16 weights are rounded; with LoRA the masters are the factors, merged into the
// weights (low_rank.h). A step is a function of the weights, the moments and the batch: the same bits on every run with
// any number of threads.
//
// Each of several ranks takes the slots of a sub-tree, and owns a part of the masters and moments where AdamW moves all
// weights; the weights are whole on every rank. All ranks make the same calls with the same arguments: a step, a save
// and a load end with the same outcome on all, and the bits are those of one rank.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/expert_routes.h"
#include "base/json.h"
#include "base/keep_sets.h"
#include "base/prompt_hint.h"
#include "model/executor.h"
#include "model/reward_head.h"
#include "model/weights.h"
#include "trainer/learn/buffers.h"
#include "trainer/learn/entropy_control.h"
#include "trainer/learn/low_rank.h"
#include "trainer/learn/norm_history.h"
#include "trainer/learn/optimizer.h"
#include "trainer/learn/own_functions.h"
#include "trainer/learn/parts.h"
#include "trainer/learn/preference_loss.h"
#include "trainer/learn/ranks.h"
#include "trainer/learn/reward_loss.h"
#include "trainer/learn/sequence_loss.h"
#include "trainer/learn/slots.h"
#include "trainer/learn/tape.h"
#include "trainer/learn/teacher_term.h"
#include "trainer/learn/value_head.h"

namespace tandem::trainer {

struct Sample {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;    // [tokens]: 1 where the model said the token and learns from it
  std::vector<float> logprobs;     // [tokens]: of the sampler, where trained; empty for demonstrations
  std::vector<uint64_t> versions;  // [tokens]: of the weights that sampled it; empty for demonstrations
  double advantage = 0;            // or the reward: Learner::reinforce
  std::optional<uint64_t> group;   // samples of one group follow each other; none: a group of its own
  // The reward of each turn, on the last token of the turn; the rest of the reward is on the last token of all. Empty:
  // none.
  std::vector<double> turn_rewards = {};
  uint32_t part = 0;  // of the algorithm: which of its parts the sample is learned by
  // Where segments begin that see nothing of those before them, ascending; empty: there is one. The sample is one
  // sequence of the loss whatever their number. The last turn of a segment that another follows is a summary, which has
  // no turn reward of its own.
  std::vector<uint32_t> later_segments = {};
  // The experts of the sampler's tokens, which passes of the trained model replay; empty: its routers choose. Reference
  // models and teachers always choose.
  ExpertRoutes routes = {};
  // The tokens that each was drawn from, where the sampler cut some off: all logprobs of the sample, those of reference
  // model and teacher too, are among these. Empty: it was drawn from all.
  KeepSets kept = {};
  // Numbers of the episode, by name: what functions of the user's own may take. Empty where none does.
  std::map<std::string, double> metrics = {};
  // Samples of one group with the same `trunk` share their first `trunk_tokens` tokens, which were sampled once; below
  // 0: none.
  int64_t trunk = -1;
  uint32_t trunk_tokens = 0;
  // [tokens]: of a teacher that was asked elsewhere, where trained; empty: none was.
  std::vector<float> teacher_logprobs = {};
  // What its prompt may be read with (Teacher::hint). It lies before the first token that is trained.
  PromptHint hint = {};
};

// The part number of a demonstration, whose term is Algorithm::demonstrations. It has no logprobs, versions or group,
// and follows all sampled samples.
inline constexpr uint32_t kDemonstrationPart = UINT32_MAX;

// The samples that were drawn from the policy.
std::span<const Sample> without_demonstrations(std::span<const Sample> samples);
// The number of trained tokens with a logprob: the first token of a sample has none.
double trained_tokens(std::span<const Sample> samples);

// Runs of samples of one group.
std::vector<SlotGroup> groups_of(std::span<const Sample> samples);

// The slice of a checkpoint that the weights are rounded from: the weights in fp32, or with LoRA the factors.
inline constexpr const char* kMasters = "masters";
// The slice of gradients: dLoss/dparameter, fp32, in the layout of the weights.
inline constexpr const char* kGradients = "gradients";

// Metrics of one minibatch and its update.
struct UpdateMetrics {
  int epoch = 1, minibatch = 1;  // from 1
  double loss = 0, grad_norm = 0;
  double ratio_mean = 1, ratio_max = 1, clip_fraction = 0;
  double approx_kl = 0;  // mean of r - 1 - ln r, the policy before the step to this one
  int64_t tokens = 0;    // that the loss counts
  bool spike = false;    // it was left out by OptimizerSettings::skip_spikes
  bool taken = true;     // false: approx_kl was beyond BatchUpdates::kl_stop, and the step ended before this update
};

// In a step of several updates loss, norm, entropy, ratios, clips and corrections are means over those that were taken,
// ratio_max is the largest, and the other numbers are of the batch, by the policy before the step.
struct StepMetrics {
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  int skipped_spikes = 0;  // updates that were left out (OptimizerSettings::skip_spikes)
  double entropy = 0;      // nats a token, mean over trained tokens of samples that have a gradient
  double mismatch_kl = 0;  // mean of r - 1 - ln r, sampler to trainer
  double clip_fraction = 0;
  double kl = 0;                // from the reference model, where the algorithm has a KL term
  double correction_mean = 1;   // weight of a token for what the sampler did differently
  double dropped_fraction = 0;  // of tokens, by that weight
  double ratio_mean = 1, ratio_max = 1;
  int64_t trained_tokens = 0;  // counted by the loss
  int64_t sample_tokens = 0;   // whole samples
  int64_t tree_tokens = 0;     // rows really computed
  double max_abs_logprob_diff =
      0;  // against the sampler, over tokens of versions that are at hand: this one, and some of the last
  int64_t compared_tokens = 0;
  // Rows times layers with experts: those whose recorded experts were replayed, and of them those for which the current
  // router would choose others.
  int64_t routes_taken = 0, routes_changed = 0;
  // Tokens of samples with kept tokens; of them those from whose distribution something was cut off; and how many
  // tokens were left there, in all.
  int64_t kept_of = 0, truncated = 0, kept = 0;
  std::map<std::string, double> of_loss;  // that this loss alone has: a critic's, or those of the user's own
  std::vector<UpdateMetrics> updates;     // of a step of several
  // Where kinds of task have algorithms of their own: loss, samples, tokens and means of each (parts.h).
  std::map<std::string, std::map<std::string, double>> parts = {};
};

// Moves means into the fields of the same names; nothing where no token counted.
void take_means(std::map<std::string, double> means, StepMetrics& metrics);

class Learner {
 public:
  // Starts from a model; the moments are zero. kInvalid for ranks that are no power of two, or more than the slots.
  static Result<Learner> create(model::Weights weights, kernels::Stream stream, const OptimizerSettings& settings,
                                Ranks ranks = {});
  // Passes run at `place`; masters, moments and what is done with them lie on the host.
  static Result<Learner> create(model::Weights weights, const model::Place& place, const OptimizerSettings& settings,
                                Ranks ranks = {});

  // Memory of a learner after its first step, without the activations of its passes (Tape::row_bytes_of). Of several
  // ranks the first holds most.
  struct Memory {
    size_t masters_and_gradients = 0, optimizer = 0;
    size_t slots = 0;  // lies where passes run; `on_device`: not on the host
    model::Weights::Memory weights;
    size_t previous = 0, reference = 0;  // weights to check samples of the version before, and of a KL term
    size_t teacher = 0;                  // weights of another model
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  static Result<Memory> memory_of(const model::ModelConfig& config, model::WeightFormat format,
                                  const OptimizerSettings& settings, bool with_reference, int ranks = 1,
                                  const model::ModelConfig* teacher = nullptr, bool on_device = false);
  Memory memory() const;

  const model::Weights& weights() const { return *weights_; }
  int64_t steps() const { return steps_; }
  void set_learning_rate(double rate) { settings_.learning_rate.peak = rate; }
  // Copies the current weights as the reference model of a KL term. Costs their size in memory, and a forward pass for
  // each batch.
  Status keep_reference();
  // Sets the teacher, a second model of any shape with which reinforce() compares every sampled token once a step
  // (teacher_term.h); its weights do not change. Costs their size in memory, and a forward pass for each batch.
  // kInvalid where it has fewer tokens.
  Status keep_teacher(model::Weights weights);
  // Prepares what reinforce() with this algorithm needs beside the model: a reference model, a critic. Call before
  // load().
  Status prepare(const Algorithm& algorithm);
  // Counts a step whose batch has nothing to learn from.
  void skip() { ++steps_, ++updates_; }
  std::string numerics_id() const;
  // Gives back what passes hold of a device between two steps: weights, activations, gradients. The next step has it
  // made again, with the same bits. Nothing where passes run on the host.
  void give_back_device();

  // One step on sampled trajectories. `version` is that of the current weights; the exactness check compares tokens of
  // it. Where the batch has one update, the policy before the step is the current one. Without a correction, ratios are
  // taken against the sampler; with one, ratios are 1 and the correction's weight carries the difference to the
  // sampler.
  //
  // With several updates (OptimizerSettings::updates) a forward pass over the batch comes first: ratios are taken
  // against those logprobs, which corrections compare with the sampler, and advantages and returns are made once. Each
  // update divides by the counts of its minibatch and is a step of the optimizer; the learning rate is that of the
  // step. An error leaves the updates before it in the weights.
  //
  // Demonstrations (kDemonstrationPart) are the last of the samples; those of several updates are dealt to the
  // minibatches. Samples are learned by the parts of the algorithm that they name (parts.h). Where is_of_whole_batch(),
  // the advantage of a sample is its reward, and the loss is batch_loss() over the logprobs of all samples, which costs
  // a second forward pass. Its errors are returned, and nothing has moved.
  //
  // Where the algorithm's teacher is behind an endpoint, every drawn sample has its logprobs; else kInternal. Where the
  // teacher is the model itself with hints (Teacher::hint), a forward pass over the samples with theirs comes first.
  Result<StepMetrics> reinforce(std::span<const Sample> samples, const Algorithm& algorithm, uint64_t version);
  // Sets the custom functions of the algorithm.
  void use(OwnFunctions functions) { functions_ = std::move(functions); }
  // One step on demonstrations: mean negative log-likelihood of the trained tokens.
  Result<StepMetrics> imitate(std::span<const Sample> samples);
  // One step on pairs of answers, as preference_loss() has them; `reference` are their sums_of_logprobs() under the
  // model that the training started from. Of the answers of a pair only the trained tokens count, one at least. A
  // second forward pass comes first, since the loss is of whole answers.
  Result<StepMetrics> prefer(std::span<const Sample> answers, std::span<const double> reference,
                             const PreferenceLoss& loss);
  // Gives the model a head of rewards, at zero or as `start` has it, that learns at `learning_rate` by the schedule of
  // the model's. `notes` go into its file. Call before load(); not beside a critic.
  Status keep_reward_head(double learning_rate, const std::optional<model::RewardHead>& start,
                          std::map<std::string, std::string> notes);
  // The reward of each sample, of the state of its last trained token; no step.
  Result<std::vector<double>> rewards(std::span<const Sample> samples);
  // One step on pairs of answers, as reward_loss() has them. A second forward pass comes first, as in prefer(). Without
  // RewardLoss::trunk the weights keep their bits.
  Result<StepMetrics> learn_rewards(std::span<const Sample> answers, std::span<const double> margins,
                                    const RewardLoss& loss);
  // The sum over each sample's trained tokens; no step.
  Result<std::vector<double>> sums_of_logprobs(std::span<const Sample> samples);
  // The mean negative log-likelihood; no step.
  Result<double> evaluate(std::span<const Sample> samples);

  // A Hugging Face directory (model::save_weights); with LoRA the factors too, in adapter/ of it, in PEFT's format.
  // `source` is the model that was learned from. Any rank can do it alone.
  Status export_model(const fs::path& directory, const fs::path& source) const;

  // Writes masters and moments to one folder, whole or not at all: the folder is written aside and renamed. Of several
  // ranks each writes what it owns, to a file of its own. `progress` is the training's own state, returned by
  // checkpoint_progress().
  Status save(const fs::path& folder, const Json& progress = {});
  // Any number of ranks may have written it. kCorrupt where a digest differs, kInvalid for another model or optimizer.
  Status load(const fs::path& folder);
  // Describes the first difference of masters and moments from a checkpoint; empty where all are equal. For one rank.
  // Errors are those of load.
  Result<std::optional<std::string>> difference_from(const fs::path& folder);

 private:
  // `tape` is that of a device; null: the CPU's.
  static Result<Learner> create(model::Weights weights, kernels::Stream stream, std::unique_ptr<Tape> tape,
                                const OptimizerSettings& settings, Ranks ranks);
  Learner(model::Weights weights, kernels::Stream stream, std::unique_ptr<LowRank> low_rank, Optimizer optimizer,
          const OptimizerSettings& settings, Ranks ranks, std::optional<Piece> shard);
  static std::vector<SliceSpec> specs_of(const model::ParameterLayout& layout, const LowRank* low_rank,
                                         const std::optional<Piece>& shard);
  Status take_masters();
  // The masters: of the weights, or with LoRA of the factors.
  Slice masters() { return buffers_.at(kMasters); }
  ConstSlice masters() const { return buffers_.at(kMasters); }
  // A slice that a checkpoint stores (masters, optimizer state), with its offset in the whole.
  struct StateSlice {
    Slice slice;
    size_t begin = 0;
    bool is_whole = false;  // on every rank, where others are shared out
  };
  std::vector<StateSlice> state();
  struct ShardNote;
  Result<Json> write_shards(const fs::path& aside);
  Status write_state(const fs::path& aside, const fs::path& folder, const Json& shards, const Json& progress);
  // Returns the metadata of a checkpoint. kInvalid where it is of another model or optimizer.
  Result<Json> state_of_checkpoint(const fs::path& folder) const;
  Status read_checkpoint(const fs::path& folder);
  // Rebuilds the weights from the masters, and everything derived from them.
  Status rebuild_weights();
  // This rank's part of a slice over all elements of the model.
  Slice own(const Slice& whole) const;
  // Gathers the rounded weights of all ranks on all ranks.
  Status gather_weights();
  std::string description() const;
  // The numbers of one sample's trained tokens, in order.
  struct TokenLogprobs {
    // Empty without a reference model, a critic, a teacher that was asked.
    std::vector<double> logprobs, ref_logprobs, values, teacher_logprobs;
  };
  // Whether values are rewards, of the states of the trained tokens themselves: a critic's are of those before.
  bool gives_rewards() const { return critic_ && critic_->kind() == HeadKind::kReward; }
  // The critic's pass, while gradients are computed.
  struct ValuePass {
    std::span<const double> gradients;  // dLoss/dvalue, [samples, length]
    size_t length = 0;
    bool trunk = false;
    std::vector<double> sum;  // dLoss/dhead, written
  };
  // Results of a sample, exchanged among ranks.
  struct Outcome {
    double loss = 0;
    LossCounts counts;
    double max_abs_logprob_diff = 0;
    int64_t compared_tokens = 0;
    double entropy = 0;  // sum over its trained tokens, where it has a gradient
    int64_t entropy_tokens = 0;
    double moved = 0;        // sum of r - 1 - ln r, from the policy before the step
    double value_error = 0;  // the critic's, sum of squares
    TeacherCounts taught;
  };
  // Writes the gradient of the loss by each logprob of a sample's trained tokens, and the sample's results.
  using SampleGradients =
      std::function<void(size_t sample, const TokenLogprobs& at, std::vector<double>& gradients, Outcome& outcome)>;
  // Which models a pass runs beside the trained one: its reference, and once in a step the teacher; or none.
  enum class Asked : uint8_t { kNone, kTeacher, kPolicyAlone };
  // Forward and backward passes over all samples; adds to the slice "gradients" what this rank's slots have. Returns
  // the outcomes of all samples.
  Result<std::vector<Outcome>> accumulate(std::span<const Sample> samples, const SampleGradients& gradients_of,
                                          StepMetrics& metrics, Asked asked = Asked::kNone);
  // The rank that computes each sample, by the slot of its group.
  std::vector<int> owners_of(std::span<const Sample> samples) const;
  // The samples as rows of a batch on every rank: a row is the trained tokens of a sample, padded on the right. One
  // forward pass over all of them.
  Result<LossBatch> survey(std::span<const Sample> samples, uint64_t version, StepMetrics& metrics,
                           Asked asked = Asked::kNone);
  // A step by a loss of the whole batch: a survey, the loss, and a second pass with its gradients.
  Result<StepMetrics> reinforce_whole(std::span<const Sample> samples, const Algorithm& algorithm, uint64_t version);
  // One step on samples that have what a teacher says of them.
  Result<StepMetrics> reinforce_taught(std::span<const Sample> samples, const Algorithm& algorithm, uint64_t version);
  // The samples with their own model's logprobs behind their hints as those of a teacher. One forward pass.
  Result<std::vector<Sample>> ask_behind_hints(std::span<const Sample> samples);
  // A step of several updates.
  Result<StepMetrics> reinforce_repeatedly(std::span<const Sample> samples, const Algorithm& algorithm,
                                           uint64_t version);
  // The gradient of one minibatch, added up and not yet applied. `rows` are its samples in `batch`, whose old logprobs,
  // advantages and returns (with a critic) are those of the step.
  struct Pass {
    UpdateMetrics update;
    StepMetrics metrics;
    std::vector<double> head_gradient;  // of the critic
  };
  Result<Pass> pass_through(std::span<const Sample> samples, std::span<const size_t> rows, const LossBatch& batch,
                            const Rows& returns, const Algorithm& algorithm, uint64_t version);
  // How far a sample's logprobs are from the sampler's, where `version` sampled them. Where routes are taken, of tokens
  // alone that no other version has sampled one before, whose routes would not be those of `version`.
  static void compare(const Sample& sample, const TokenLogprobs& at, uint64_t version, Outcome& outcome);
  // The term of a demonstration in a batch whose demonstrations have so many trained tokens.
  static void imitate(const TokenLogprobs& at, double tokens, const DemonstrationTerm& term,
                      std::vector<double>& gradients, Outcome& outcome);
  // The loss of the demonstrations among the samples, which is returned; its mean is written to of_loss.
  static double demonstration_loss(std::span<const Sample> samples, std::span<const Outcome> outcomes,
                                   const DemonstrationTerm& term, StepMetrics& metrics);
  // Metrics of the samples of each part.
  static PartMetrics means_of(std::span<const Part> parts, std::span<const Outcome> outcomes);
  // Finishes a step once gradients are complete: checks samples of the previous version, and updates the weights.
  Result<StepMetrics> finish(std::span<const Sample> samples, uint64_t version, StepMetrics metrics);
  // Checks samples of the previous version, and keeps the current weights for the next check.
  Status keep_previous(std::span<const Sample> samples, uint64_t version, StepMetrics& metrics);
  // Counts of a slot's passes.
  struct PassCounts {
    int64_t trained_tokens = 0, sample_tokens = 0, tree_tokens = 0;
    int64_t routes_taken = 0, routes_changed = 0;
    int64_t kept_of = 0, truncated = 0, kept = 0;
    bool any = false;  // whether there was a gradient
  };
  // Runs the samples at `places`, in that order.
  Result<PassCounts> run_slot(std::span<const Sample> samples, std::span<const size_t> places,
                              const SampleGradients& gradients_of, const Slice& gradients, std::span<Outcome> outcomes,
                              std::span<double> head_gradient, Asked asked);
  // Adds the slots' gradients of the critic in slot order, over all ranks.
  Status sum_of_slots(std::vector<double>& head_gradients, const std::vector<int>& owners_of_slots);
  // The sum over ranks of the gradients: of what this rank owns, or of all.
  Status sum_over_ranks(bool any_here, bool any_at_all);
  Result<double> norm_of(const Slice& gradients);
  Status copy_weights(std::unique_ptr<model::Weights>& copy);
  // Derives from `flat` what passes read.
  Status ready();
  Status take_device();
  // Updates the weights by the gradients, unless their norm is a spike, which is counted in `metrics`.
  Status update(StepMetrics& metrics);
  // The update of a step that has one.
  Status apply(StepMetrics& metrics);
  void forget_gradients();
  Status verify_previous(std::span<const Sample> samples, uint64_t version, StepMetrics& metrics);

  std::unique_ptr<model::Weights> weights_;
  std::unique_ptr<Tape> tape_;                                      // null where its device was given back
  kernels::Device device_ = {.kind = kernels::Device::Kind::kCpu};  // of passes
  bool on_device_ = false;                                          // passes read no panels
  std::unique_ptr<model::Weights> previous_;  // before the last step, to check samples that are one version old
  std::unique_ptr<model::Weights> reference_, teacher_;
  std::unique_ptr<Tape> teacher_tape_;  // of its shape
  OwnFunctions functions_;
  std::optional<ValueHead> critic_;  // or the head of rewards
  std::optional<ValuePass> value_pass_;
  std::map<std::string, std::string> reward_notes_;
  uint64_t previous_version_ = UINT64_MAX;
  kernels::Stream stream_;
  OptimizerSettings settings_;
  int64_t steps_ = 0, updates_ = 0;
  NormHistory norms_;  // of the updates before
  EntropyControl entropy_;
  Ranks ranks_;
  std::optional<Piece> shard_;         // of the masters; none: they are whole on every rank
  std::unique_ptr<LowRank> low_rank_;  // null: all weights learn
  Optimizer optimizer_;
  std::optional<SlotSum> slot_sum_;
  Buffers buffers_;               // masters, gradients and, with LoRA, factor_gradients and factors_rounded
  std::vector<uint8_t> learned_;  // by parameter: 1 where it has a gradient; empty: all
};

// Returns the `progress` that was saved with a checkpoint; null where none was.
Result<Json> checkpoint_progress(const fs::path& folder);

// The weights of a checkpoint that `Learner::save` wrote, not packed: those that were trained with, in bf16; as floats
// the masters that they were rounded from, but with LoRA, whose masters are the factors, the same numbers. kCorrupt
// where a digest differs.
Result<model::Weights> checkpoint_weights(const fs::path& folder,
                                          model::WeightFormat format = model::WeightFormat::kBf16);

// The head of rewards of a checkpoint; empty for others.
Result<std::optional<model::RewardHead>> checkpoint_reward_head(const fs::path& folder);

// The factors of a checkpoint with LoRA; empty for others.
Result<std::optional<model::Adapter>> checkpoint_adapter(const fs::path& folder);

}  // namespace tandem::trainer
