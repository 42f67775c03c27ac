// One table of keys: the schema of a run's config, and the reader of the JSON of `tandem loss`.
#include "trainer/learn/algorithm_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "trainer/learn/algorithm_names.h"
#include "trainer/learn/algorithm_parts.h"
#include "trainer/learn/losses/policy_loss.h"

namespace tandem::trainer {

namespace {

constexpr double kMost = 1e9;
constexpr double kOwn = -1;  // how configs write that a value is the algorithm's own

enum class Keys : uint8_t {
  kOfRuns,
  kEvery,  // also those of values; numbers have no limit but what formulas ask for
};

void add_fields(Schema& s, AlgorithmConfig& c, Keys keys) {
  const bool every = keys == Keys::kEvery;
  const auto up_to = [&](double most) { return every ? kMost : most; };
  const auto names = algorithm_names();
  s.add("algorithm.name", c.name, "Sets the defaults of the keys below",
        every ? std::vector<std::string>{} : std::vector<std::string>(names.begin(), names.end()));
  s.add("algorithm.advantage", c.advantage, "How rewards become advantages; empty: the algorithm's own",
        every ? std::vector<std::string>{}
              : std::vector<std::string>{"", "grpo", "dr_grpo", "rloo", "opo", "maxrl", "pass_at_k", "gigpo",
                                         "reinforce++", "gae", "distill", "torch"});
  s.add("algorithm.clip_low", c.clip_low, "Lower clip range of the ratio: 1 - clip_low; -1: the algorithm's own", 0,
        up_to(1), kOwn);
  s.add("algorithm.clip_high", c.clip_high, "Upper clip range of the ratio: 1 + clip_high; -1: the algorithm's own", 0,
        up_to(100), kOwn);
  s.add("algorithm.dual_clip", c.dual_clip, "Bounds the loss of a negative advantage; 0: off", 0, up_to(1e6));
  s.add("algorithm.mask_low", c.mask_low, "dppo masks tokens whose probability falls by more than this", 0, 1);
  s.add("algorithm.mask_high", c.mask_high, "dppo masks tokens whose probability rises by more than this", 0, 1);
  s.add("algorithm.penalty", c.penalty, "Coefficient of dppo's penalty on the squared log ratio", 0, up_to(1e6));
  s.add("algorithm.std_epsilon", c.std_epsilon, "Added to the standard deviation (grpo, pass_at_k, gigpo)", 0, 1);
  s.add("algorithm.gamma", c.gamma, "Discount of later rewards, per token (reinforce++, ppo) or per turn (gigpo)", 0,
        1);
  s.add("algorithm.lambda", c.lambda, "Lambda of generalized advantage estimation (ppo)", 0, 1);
  s.add("algorithm.pass_at_k.k", c.pass_k, "Attempts of which the best counts (pass_at_k); below the size of a group",
        1, 4096);
  s.add("algorithm.gigpo.weight", c.gigpo.weight,
        "Weight of the advantage among turns that began in the same state, relative to that of the episode (gigpo)", 0,
        up_to(1e6));
  s.add("algorithm.gigpo.std", c.gigpo.scaled,
        "Whether both advantages of gigpo are divided by the standard deviation");
  s.add("algorithm.branch_credit", c.branch_credit,
        "Credit of the trunk that episodes share (rollout.branch). tree: it is trained once, with the mean of their "
        "advantages; none: each episode trains it with its own advantage",
        {"tree", "none"});
  s.add("algorithm.branch_local", c.branch_local,
        "After the trunk: weight of an episode's advantage among those that share the trunk, added to that in its "
        "group (tree)",
        0, up_to(1e6));
  s.add(
      "algorithm.teacher.path", c.teacher.path,
      "Model that every sampled token is compared with: a directory, or a step of a run (RUN@12, RUN@last, RUN@best). "
      "It has the vocabulary of the model. Costs a forward pass and its memory; empty: none");
  auto& endpoint = c.teacher.endpoint;
  s.add("algorithm.teacher.url", endpoint.url,
        "Or the base URL of an OpenAI-compatible endpoint, http://HOST:PORT/v1, that says what the teacher thinks of "
        "each sampled token; empty: none");
  s.add("algorithm.teacher.model", endpoint.model, "Its name there");
  s.add("algorithm.teacher.key_env", endpoint.key_env, "Environment variable with its key");
  s.add("algorithm.teacher.key_file", endpoint.key_file, "Or a file with that key in its first line");
  s.add("algorithm.teacher.seconds", endpoint.seconds, "For one answer of the endpoint", 0.1, up_to(3600));
  s.add("algorithm.teacher.retries", endpoint.retries,
        "Times that it is asked again where it failed, after pauses of 1 s, 2 s, 4 s, up to 30 s; then the run ends", 0,
        100);
  s.add("algorithm.teacher.concurrency", endpoint.concurrency, "Requests to the endpoint at once", 1, 256);
  s.add("algorithm.teacher.hint", c.teacher.hint,
        "Or a text behind the task with which the model itself is the teacher. {feedback} in it stands for what was "
        "found wrong with the episode; episodes without feedback then have no hint. Empty: none");
  s.add("algorithm.teacher.hint_tokens", c.teacher.hint_tokens,
        "Most tokens that a hint adds to a prompt; feedback is cut to it", 1, 16384);
  s.add("algorithm.teacher.weight", c.teacher.weight,
        "Factor of (teacher's - sampler's logprob) of a token, which is added to its advantage", 0, up_to(1e6));
  s.add("algorithm.teacher.clamp", c.teacher.clamp, "Clamps that difference to this many nats, both sides; 0: off", 0,
        up_to(1e6));
  s.add("algorithm.whiten_advantages", c.whiten_advantages,
        "Normalizes the advantages of the batch to mean 0 and standard deviation 1; null: the algorithm's own");
  s.add("algorithm.aggregation", c.aggregation, "How token losses are aggregated; empty: the algorithm's own",
        {"", "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "sum_over_length"});
  s.add("algorithm.aggregation_length", c.aggregation_length, "Denominator of sum_over_length", 0, kMost);
  s.add("algorithm.correction.kind", c.correction.kind,
        "Importance weights between trainer and sampler; ratios are 1 then", {"none", "tis", "mis", "icepop"});
  s.add("algorithm.correction.level", c.correction.level, "One weight per token, or per sequence",
        {"token", "sequence"});
  s.add("algorithm.correction.low", c.correction.low, "Weights below are dropped; -1: the kind's own", 0, up_to(1e6),
        kOwn);
  s.add("algorithm.correction.high", c.correction.high, "Weights above are capped (tis) or dropped; -1: the kind's own",
        0, up_to(1e6), kOwn);
  s.add("algorithm.kl.estimator", c.kl.estimator,
        "Estimator of the KL term against the starting model; costs a forward pass and its memory",
        {"none", "k1", "k2", "k3"});
  s.add("algorithm.kl.coefficient", c.kl.coefficient, "Coefficient of the KL term", 0, up_to(1e6));
  s.add("algorithm.kl.clamp", c.kl.clamp, "Clamps the estimate of a token, both sides; 0: off", 0, up_to(1e6));
  s.add("algorithm.kl.in_reward", c.kl.in_reward,
        "The KL term is subtracted from each token's reward instead of added to the loss");
  s.add("algorithm.entropy.coefficient", c.entropy.coefficient, "Coefficient of an entropy bonus", 0, up_to(1e6));
  for (const PolicyLoss* loss : policy_losses()) {
    for (const LossKey& key : loss->keys) {
      s.add(fmt::format("algorithm.{}", key.name), c.own[std::string(key.name)],
            fmt::format("{}; -1: {}", key.doc, key.preset), key.least, key.most, kOwn);
    }
  }
  s.add("algorithm.value.learning_rate", c.value.learning_rate, "Learning rate of the critic (ppo)", 0, 10);
  s.add("algorithm.value.coefficient", c.value.coefficient, "Coefficient of the critic's mean squared error (ppo)", 0,
        up_to(1e6));
  s.add("algorithm.value.trunk", c.value.trunk,
        "Whether gradients of the critic's loss reach the model's weights (ppo)");
  s.add("algorithm.script", c.script,
        "For torch: file with the loss in TorchScript, as Python source or a saved module");
  s.add("algorithm.library", c.library, "For torch: shared library with the loss in C++");
  s.add("algorithm.options", c.options, "For torch: parameters of that function, each as NAME=VALUE");
  s.add("algorithm.advantage_script", c.advantage_script,
        "For advantage torch: file with the function `advantages` in TorchScript");
  s.add("algorithm.advantage_library", c.advantage_library,
        "For advantage torch: shared library with such a function in C++");
  s.add("algorithm.advantage_options", c.advantage_options,
        "For advantage torch: parameters of that function, each as NAME=VALUE");
  s.add("algorithm.reference", c.reference,
        "For torch: the function gets logprobs of the starting model; costs a forward pass and its memory");
  s.add("algorithm.seconds", c.seconds, "For torch: time limit of a call of the function", 0.001, 86400);
}

// A value of JSON as the field takes it.
Status set(const Field& field, const Json& value) {
  const auto wrong = [&](std::string_view what) {
    return Status::invalid(fmt::format("{} is {}, not {}", field.path, dump_json(value), what));
  };
  if (field.type == FieldType::kBool && !value.is_boolean()) return wrong("true or false");
  if (field.type == FieldType::kText) {
    if (!value.is_string()) return wrong("a name");
    const auto name = value.get<std::string>();
    const std::vector<std::string_view> choices(field.choices.begin(), field.choices.end());
    if (!choices.empty() && std::find(choices.begin(), choices.end(), name) == choices.end())
      return Status::invalid(fmt::format("{} \"{}\" is not known{}", field.path, name, did_you_mean(name, choices)));
  }
  if (field.type == FieldType::kInteger) {
    const double number = value.is_number_integer() ? value.get<double>() : NAN;
    if (!(number >= field.least && number <= field.most))
      return wrong(fmt::format("a whole number from {} to {}", field.least, field.most));
  }
  if (field.type == FieldType::kNumber) {
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(number >= field.least && number <= field.most))
      return wrong(fmt::format("a number from {} to {}", field.least, field.most));
  }
  if (field.type == FieldType::kTextList &&
      !(value.is_array() && std::ranges::all_of(value, [](const Json& item) { return item.is_string(); })))
    return wrong("a list of texts");
  field.set(value);
  return {};
}

// Which function makes the advantages, where it is the user's own.
Status read_advantages(const AlgorithmConfig& c, Algorithm& a) {
  if (a.advantage != AdvantageKind::kTorch) {
    if (c.advantage_script.empty() && c.advantage_library.empty() && c.advantage_options.empty()) return {};
    return Status::invalid(
        fmt::format("algorithm.advantage is {}; advantage_script, advantage_library and advantage_options are of torch",
                    to_string(a.advantage)));
  }
  if (c.advantage_script.empty() == c.advantage_library.empty()) {
    return Status::invalid(
               "algorithm.advantage: torch needs algorithm.advantage_script or algorithm.advantage_library, one of "
               "them")
        .hint("docs/custom-loss.md shows how to write one");
  }
  a.own_advantages = {.script = c.advantage_script,
                      .library = c.advantage_library,
                      .options = c.advantage_options,
                      .reference = c.reference,
                      .seconds = c.seconds};
  return {};
}

// Which function is the loss, where there is to be one.
Status read_torch(const AlgorithmConfig& c, Algorithm& a) {
  TRY(read_advantages(c, a));
  if (!is_function(a)) {
    if (!c.script.empty() || !c.library.empty() || !c.options.empty())
      return Status::invalid(fmt::format("algorithm.name is {}; script, library and options are of torch", a.name));
    if (c.reference && a.advantage != AdvantageKind::kTorch)
      return Status::invalid("algorithm.reference is of functions of one's own: algorithm.name or advantage torch");
    return {};
  }
  if (c.script.empty() == c.library.empty()) {
    return Status::invalid("algorithm.name: torch needs algorithm.script or algorithm.library, one of them")
        .hint("docs/custom-loss.md shows how to write one");
  }
  a.torch = {
      .script = c.script, .library = c.library, .options = c.options, .reference = c.reference, .seconds = c.seconds};
  if (a.correction.kind != Correction::Kind::kNone || a.kl.estimator != Kl::Estimator::kNone || a.entropy != 0)
    return Status::invalid(
        "algorithm.correction, kl and entropy are terms of the built-in losses; with torch the "
        "function has its own");
  return {};
}

// The members of an object whose keys begin with `prefix`.
Status set_members(const Schema& schema, const Json& object, const std::string& prefix) {
  std::vector<std::string_view> known;
  for (const Field& field : schema.fields()) {
    if (!field.path.starts_with(prefix)) continue;
    const auto rest = std::string_view(field.path).substr(prefix.size());
    const auto key = rest.substr(0, rest.find('.'));
    if (known.empty() || known.back() != key) known.push_back(key);  // keys of a section follow each other
  }
  TRY(check_keys(object, known));
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) continue;
    const std::string path = prefix + key;
    const auto field =
        std::find_if(schema.fields().begin(), schema.fields().end(), [&](const Field& f) { return f.path == path; });
    if (field != schema.fields().end()) {
      TRY(set(*field, value));
    } else {
      if (!value.is_object()) return Status::invalid(fmt::format("{} is {}, not an object", path, dump_json(value)));
      TRY(set_members(schema, value, path + "."));
    }
  }
  return {};
}

}  // namespace

void add_algorithm_fields(Schema& schema, AlgorithmConfig& config) {
  add_fields(schema, config, Keys::kOfRuns);
  auto& entropy = config.entropy.control;
  schema.add("algorithm.entropy.target", entropy.target,
             "Entropy, in nats a token, below which the policy gets a bonus for it. The coefficient of the bonus grows "
             "while the entropy is below, and shrinks while it is not; 0: none",
             0, 100);
  schema.add("algorithm.entropy.step", entropy.step, "Change of that coefficient after each step", 0, 1e3);
  schema.add("algorithm.entropy.most", entropy.most, "Largest such coefficient", 0, 1e3);
  auto& d = config.demonstrations;
  schema.add("algorithm.demonstrations.data", d.data,
             "Demonstrations whose negative log-likelihood is a term of the loss: files of transcripts and run "
             "directories, as data.train of `tandem sft` takes them. The run keeps their tokens; empty: none");
  schema.add("algorithm.demonstrations.samples", d.samples, "Demonstrations in each batch", 1, 100'000);
  schema.add("algorithm.demonstrations.coefficient", d.coefficient, "Coefficient of that term", 0, 1e6);
  schema.add("algorithm.kinds", config.kinds,
             "Algorithms for single kinds of task: KIND[,KIND]=NAME [KEY=VALUE...] each, with keys of this section, "
             "such as \"bug=gspo clip_high=0.0004\", and weight=NUMBER of its loss");
}

Result<Algorithm> algorithm_of(const AlgorithmConfig& c) {
  Algorithm a = TRY(algorithm_named(c.name));
  if (!c.advantage.empty()) a.advantage = TRY(advantage_kind(c.advantage));
  if (!c.aggregation.empty()) a.aggregation = TRY(kAggregations.find("algorithm.aggregation", c.aggregation));
  a.std_epsilon = c.std_epsilon;
  a.pass_k = c.pass_k;
  a.gigpo = c.gigpo;
  a.branches = {.by_tree = c.branch_credit == "tree", .local = c.branch_local};
  a.teacher = c.teacher;
  a.gamma = c.gamma;
  a.lambda = c.lambda;
  a.whiten_advantages = c.whiten_advantages.value_or(a.whiten_advantages);
  a.clip_low = c.clip_low.value_or(a.clip_low);
  a.clip_high = c.clip_high.value_or(a.clip_high);
  a.dual_clip = c.dual_clip;
  a.mask_low = c.mask_low;
  a.mask_high = c.mask_high;
  a.penalty = c.penalty;
  a.aggregation_length = c.aggregation_length;
  a.correction.kind = TRY(kCorrections.find("algorithm.correction.kind", c.correction.kind));
  a.correction.sequence_level = TRY(kLevels.find("algorithm.correction.level", c.correction.level));
  // IcePop's own band, as users of it have found it to work; the others bound one side only.
  if (a.correction.kind == Correction::Kind::kIcePop) a.correction.low = 0.5, a.correction.high = 5;
  a.correction.low = c.correction.low.value_or(a.correction.low);
  a.correction.high = c.correction.high.value_or(a.correction.high);
  if (a.correction.low > a.correction.high) {
    return fail(Status::invalid(fmt::format("algorithm.correction.low ({}) is above algorithm.correction.high ({})",
                                            a.correction.low, a.correction.high)));
  }
  a.kl.estimator = TRY(kEstimators.find("algorithm.kl.estimator", c.kl.estimator));
  a.kl.coefficient = c.kl.coefficient;
  a.kl.clamp = c.kl.clamp;
  a.kl.in_reward = c.kl.in_reward;
  a.entropy = c.entropy.coefficient;
  a.entropy_target = c.entropy.control;
  a.critic = c.value;
  for (const LossKey& key : a.policy->keys) {
    const auto given = c.own.find(std::string(key.name));
    if (given != c.own.end() && given->second && *given->second != key.preset) a.own[given->first] = *given->second;
  }
  TRY(read_torch(c, a));
  TRY(set_parts(c.kinds, a));
  a.demonstrations = {.samples = c.demonstrations.data.empty() ? 0 : c.demonstrations.samples,
                      .coefficient = c.demonstrations.coefficient};
  if (a.aggregation == Aggregation::kSumOverLength && !(a.aggregation_length > 0))
    return fail(Status::invalid("aggregation sum_over_length needs aggregation_length above 0"));
  return a;
}

std::vector<std::string> keys_of_other_losses(const Algorithm& algorithm) {
  std::vector<std::string> keys;
  for (const PolicyLoss* loss : policy_losses()) {
    if (loss == algorithm.policy) continue;
    for (const LossKey& key : loss->keys) keys.push_back(fmt::format("algorithm.{}", key.name));
  }
  return keys;
}

Result<Algorithm> algorithm_from_json(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("algorithm is not an object"));
  AlgorithmConfig config;
  Schema schema;
  add_fields(schema, config, Keys::kEvery);
  TRY(set_members(schema, json, "algorithm."));
  return algorithm_of(config);
}

}  // namespace tandem::trainer
