// Rewards of the user's own, as a config says them.
//
// Values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tandem::envs {

struct RewardSettings {
  std::string command;             // for /bin/sh; empty: none
  std::string place = "sandbox";   // where it runs: sandbox, or server
  std::vector<std::string> files;  // that it needs; it runs in the folder that has them
  std::string http;                // URL; empty: none
  std::string key_env, key_file;   // of that server
  struct {
    std::string url;  // of an OpenAI-compatible endpoint; empty: none
    std::string model, rubric, key_env, key_file;
    bool pairwise = false;  // episodes of a group are compared with each other; else each is scored by itself
    int rivals = 2;         // siblings after it that each is compared with; 0: all
    int bytes = 16'384;     // of an episode that it is shown
    double price = 0;       // of a million tokens
  } judge;
  double seconds = 20;  // of one try
  int retries = 1;
  int concurrency = 4;
  int cache = 4096;           // answers that are kept
  int output_bytes = 65'536;  // of an answer

  bool any() const { return !command.empty() || !http.empty() || !judge.url.empty(); }
};

// NAME=WEIGHT each; kInvalid, naming the entry, for everything else and for a name that stands twice.
Result<std::map<std::string, double>> parse_reward_weights(const std::vector<std::string>& entries);

// Contradictions, a line each; empty: none. `terms`: those with a weight; `turns`: the weight of numbers of messages.
std::vector<std::string> mistakes_of(const RewardSettings& settings, const std::map<std::string, double>& terms,
                                     double turns);

}  // namespace tandem::envs
