// The config of `tandem run`: every key with its default, and what the roles are told.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "envs/episodes/profile.h"
#include "envs/packages/settings.h"
#include "envs/rewards/settings.h"
#include "rollout/books/ledger.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/low_rank.h"
#include "trainer/learn/optimizer_fields.h"
#include "weights_sync/object_store.h"

namespace tandem::run {

inline constexpr std::string_view kLocalHost = "local";  // the machine that the run is started on

struct RunConfig {
  struct {
    uint64_t seed = 1;
    int steps = 75;
    bool deterministic = false;
    std::string dir = "runs";
    int max_restarts = 20;
    int unscored_steps = 2;
    std::vector<std::string> alarms_off;
    std::string disk_limit;
    double silence_seconds = 8;
    double start_seconds = 120;
    std::vector<std::string> hosts, topology;
    std::string key, address;
    std::string standby, standby_lost = "wait", standby_takes_over = "operator";
    double standby_patience = 30;
    int relays = 0, relay_fanout = 4;
    double relay_seconds = 10;
  } run;
  std::string device = "cpu";  // of all that compute a model, but for the two below
  struct {
    std::string path = "models/warm-start";
    std::string weights = "bf16";
    std::string now;
    std::string special_tokens_in_content = "text";
  } model;
  struct {
    std::string path;
    std::string recipes = "followed";
    std::vector<std::string> set_kinds;
    double heldout_share = 0.2;
    std::vector<std::string> kinds;
    int heldout = 200;
    int heldout_samples = 4;
    int heldout_every = 0;
    std::string heldout_split = "heldout";
    bool floors = true;
  } tasks;
  struct : trainer::AlgorithmConfig {
    bool shuffle_rewards = false;
  } algorithm;
  struct : rollout::RewardWeights {
    std::vector<std::string> weights;  // of terms of its own
    envs::RewardSettings own;
  } reward;
  struct : trainer::OptimizerConfig {
    int groups_per_step = 8;
    int group_size = 8;
    int epochs = 1, minibatches = 1;
    double kl_stop = 0;
    int max_lag = 1;
    std::string on_lag = "wait";
    std::optional<int> dynamic_sampling;  // else the algorithm's own
    bool leave_out_truncated = false;
    bool replay_routes = false;
    int warmup_steps = 0;
    std::string keep_checkpoints = "2";
    bool weight_deltas = true;
    weights_sync::StoreSettings weight_store;
    int audit_every = 1;
    std::string device;
    int threads = 0;
    int ranks = 1;
    // How the ranks share a step; 0: as many as there are ranks.
    struct {
      int data = 0, tensor = 1, expert = 1, context = 1, pipeline = 1;
    } parallel;
  } trainer;
  trainer::LowRankSettings lora;
  struct {
    int workers = 2;
    std::vector<std::string> devices;
    bool sleep_while_training = false;
    int slots = 32;
    int threads = 0;
    int max_tokens = 1024;
    int max_new_tokens = 128;
    double temperature = 1;
    int top_k = 0;
    double top_p = 1, min_p = 0;
    double episode_seconds = 300;
    int steal_from = 8;
    struct {
      int ways = 1, first_turn = 1, last_turn = 1;
    } branch;
    std::string speculation = "ngram", on_new_version = "recompute";
  } rollout;
  struct {
    int threads = 4;
    double call_seconds = 10;
    int output_bytes = 2000;
    int compact_at = 0;
    std::string engine = "auto";
    std::string profile, encoder;
    int encoder_threads = 1;
    std::vector<std::string> tools, network, mcp_servers, external;
    envs::PackageSettings packages;
    double external_seconds = 30;
    int external_programs = 2;
    std::string sandbox = "auto";
    int warm = 2, most_warm = 16;
    int read_cache_mb = 64, beginnings_mb = 256;
    bool freeze_between_turns = false;
    std::vector<std::string> hosts = {"local"};
    std::string key;
  } env;
};

// The table of all fields, bound to `config`.
Schema schema_of(RunConfig& config);

// The harness profile that the model trains under: env.profile, or the keys of env. kInvalid where both are given.
Result<envs::Profile> profile_of(const RunConfig& config);

// Contradictions between fields, found before anything is started.
Status check(const RunConfig& config);

// Truncation of the distributions that training samples are drawn from.
rollout::Truncation truncation_of(const RunConfig& config);

// The plan of the run in `run_dir`. kCorrupt where the config needs RUN/tasks.json and it is damaged.
Result<rollout::RunPlan> plan_of(const RunConfig& config, const fs::path& run_dir);
// kInvalid where a kind that has an algorithm of its own is not among those of the run's tasks.
Status check_kind_of_algorithm(const std::string& kind, std::span<const std::string_view> known);
// trainer.dynamic_sampling, or the algorithm's own.
int dynamic_sampling_of(const RunConfig& config);
// trainer.keep_checkpoints: how many of the newest; SIZE_MAX for all, 1 for best. The best one is kept beside them.
Result<size_t> kept_checkpoints(const RunConfig& config);
// run.alarms_off, and alarms that this config would always raise: keys and values of older weights give other logprobs,
// and with a teacher groups of equal rewards have a signal.
std::vector<std::string> alarms_off_of(const RunConfig& config);
Result<trainer::Algorithm> algorithm_of(const RunConfig& config);
Result<trainer::OptimizerSettings> optimizer_of(const RunConfig& config);

}  // namespace tandem::run
