// The config of `tandem run`: every key with its default, and what the roles are told.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "rollout/books/ledger.h"
#include "trainer/learn/algorithm.h"
#include "trainer/learn/optimizer.h"

namespace tandem::run {

// What a key holds whose value the name of the algorithm decides.
constexpr double kOwn = -1;

struct RunConfig {
  struct {
    uint64_t seed = 1;
    int steps = 75;
    bool deterministic = false;
    std::string dir = "runs";
    int max_restarts = 20;
    double silence_seconds = 8;
    double start_seconds = 120;
  } run;
  struct {
    std::string path = "models/warm-start";
    std::string weights = "bf16";
  } model;
  struct {
    std::string path;
    std::string recipes = "followed";
    std::vector<std::string> set_kinds;
    double heldout_share = 0.2;
    std::vector<std::string> kinds;
    int heldout = 200;
    int heldout_samples = 4;
    std::string heldout_split = "heldout";
    bool floors = true;
  } tasks;
  struct {
    std::string name = "dr_grpo";
    std::string advantage;
    double clip_low = kOwn, clip_high = kOwn, std_epsilon = 1e-6;
    double dual_clip = 0, mask_low = 0.2, mask_high = 0.2, penalty = 1e-3;
    std::string aggregation;
    double aggregation_length = 0;
    struct {
      std::string kind = "none", level = "token";
      double low = kOwn, high = kOwn;
    } correction;
    struct {
      std::string estimator = "none";
      double coefficient = 0, clamp = 0;
    } kl;
    struct {
      double coefficient = 0;
    } entropy;
    bool shuffle_rewards = false;
  } algorithm;
  rollout::RewardWeights reward;
  struct {
    int groups_per_step = 8;
    int group_size = 8;
    int max_lag = 1;
    double learning_rate = 3e-5;
    int warmup_steps = 0;
    std::string schedule = "constant";
    double final_share = 0.1;
    std::string optimizer = "adamw", moments = "fp32";
    double beta1 = 0.9, beta2 = 0.95, momentum = 0.95, weight_decay = 0, max_grad_norm = 1;
    int max_pass_tokens = 1024;
    int slots = 8;
    int checkpoint_every = 25;
    int threads = 0;
  } trainer;
  trainer::LowRankSettings lora;
  struct {
    int workers = 2;
    int slots = 32;
    int threads = 0;
    int max_tokens = 1024;
    int max_new_tokens = 128;
    double temperature = 1;
    double episode_seconds = 300;
    int steal_from = 8;
  } rollout;
  struct {
    int threads = 4;
    double call_seconds = 10;
    int output_bytes = 2000;
    std::string engine = "auto";
    std::vector<std::string> tools, network, mcp_servers;
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

// Contradictions between fields, found before anything is started.
Status check(const RunConfig& config);

// What the run in `run_dir` is to do; kCorrupt where its RUN/tasks.json, if the config wants one, is not what was
// written.
Result<rollout::RunPlan> plan_of(const RunConfig& config, const fs::path& run_dir);
Result<trainer::Algorithm> algorithm_of(const RunConfig& config);
Result<trainer::OptimizerSettings> optimizer_of(const RunConfig& config);

// RUN/config.resolved.json, as `tandem run` wrote it.
Result<RunConfig> read_resolved(const fs::path& run_dir);

}  // namespace tandem::run
