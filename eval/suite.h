// A suite: what an evaluation measures, on which tasks, and what may not get worse.
//
// A value, read strictly from YAML: every mistake with its place and the nearest valid key. Paths in it are relative to
// its file, and absolute once it is read.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/file.h"
#include "envs/episodes/profile.h"
#include "envs/packages/settings.h"

namespace tandem::eval {

struct Gates {
  std::optional<double> min_pass_rate;  // least share of samples that passed
  double max_regression_points = 0;     // largest loss against the other evaluation that is tolerated, a share
  double confidence = 0.95;             // at which a loss counts
  double max_error_share = 0.05;        // of samples without a verdict
  std::optional<double> max_slowdown;   // of the median sample: 0.5 is half as slow again
  std::optional<double> max_cost;       // of a passed sample, in the unit of Prices
  // Largest increases against the other evaluation that are tolerated, of samples that passed.
  std::optional<double> max_growth;                  // of lines added and removed: 0.5 is half as many again
  std::optional<double> max_new_lints_increase;      // of new lints a sample
  std::optional<double> max_tests_touched_increase;  // of the share that touched tests of the task
  bool no_cheats = false;                            // no flagged sample
};

// Prices of samples. Without any price a token costs 1.
struct Prices {
  double million_prompt_tokens = 0, million_completion_tokens = 0, sample_hour = 0;
};

struct Suite {
  std::string name;  // of its file, unless it says another
  fs::path file;
  std::string model;  // directory; empty: an endpoint
  struct {
    std::string url, model, api_key_env;
    std::vector<std::string> fallbacks;
    int requests_per_minute = 0;
    std::vector<std::string> server_requests_per_minute;
  } endpoint;
  struct {
    std::string path, recipes = "followed", split;
    std::vector<std::string> set_kinds, kinds;
    double heldout_share = 0.2;
    int limit = 0;
  } tasks;
  int samples = 4;
  double temperature = 1;
  uint64_t seed = 1;
  int concurrency = 8;
  std::string device = "auto", weights, now, special_tokens_in_content = "text";
  int threads = 0;  // 0: all cores
  struct {
    int turns = 0;  // 0: those of the task
    int max_new_tokens = 1024;
    int context = 0;  // tokens of a conversation with a model of ours; 0: what it was made for, 8192 at most
    double seconds = 600;
    int tokens = 0;            // of a sample, prompts and answers of all turns; 0: any number
    double total_seconds = 0;  // 0: any number
    double total_tokens = 0;
  } limits;
  struct {
    double call_seconds = 10;
    int output_bytes = 2000;
    std::string profile, encoder, engine = "auto", sandbox = "auto";
    std::vector<std::string> tools, network;
    envs::PackageSettings packages;
  } env;
  Gates gates;
  Prices prices;
  // The harness profile: env.profile, else that of the model directory, else that of a small model; with the overrides
  // in `env`.
  envs::Profile profile;
  std::string encoder_id;  // of the encoder that is used: a digest of its files; empty: none
};

// The table of all keys, bound to `suite`.
Schema schema_of(Suite& suite);

// Reads and checks a suite. `overrides` are "a.b=v". kInvalid holds all mistakes, a line each.
// `elsewhere`: keys of other configs, passed over in the environment.
Result<Suite> read_suite(const fs::path& file, std::span<const std::string> overrides = {},
                         std::set<std::string> elsewhere = {});

// Gates and prices alone, as a folder keeps them: what a verdict depends on beside the samples.
struct Terms {
  Gates gates;
  Prices prices;
};
Json to_json(const Terms& terms);
Result<Terms> terms_from_json(const Json& json);

}  // namespace tandem::eval
