// The identity of an evaluation: two evaluations with one identity measure the same thing, and a folder holds one of
// them.
//
// Gates, concurrency and limits of time are not part of it: they may change between calls on one folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "envs/tasks/task.h"
#include "eval/suite.h"

namespace tandem::eval {

// Part `index` of `count`, from 1: every count-th task, beginning with the index-th.
struct Shard {
  int index = 1, count = 1;
  std::string to_string() const;  // "1/4"
  // kInvalid for what is not of that form.
  static Result<Shard> parse(std::string_view text);
  friend bool operator==(const Shard&, const Shard&) = default;
};

struct TaskIdentity {
  std::string task, kind, digest;
  friend bool operator==(const TaskIdentity&, const TaskIdentity&) = default;
};

struct Identity {
  std::string suite;
  std::string model;         // directory, or name at the endpoint
  std::string model_digest;  // of its files; of an endpoint, of the model's name there
  int samples = 1;
  double temperature = 1;
  uint64_t seed = 1;
  Json settings = Json::object();   // what else a result depends on: limits and tools
  std::vector<TaskIdentity> tasks;  // of the whole suite, in their order
  Shard shard;
  std::string version;  // of this program; not compared
  std::string profile;  // digest of the harness profile; not compared: what counts of it is in `settings`

  std::string tasks_digest() const;
  std::string config_digest() const;  // of samples, temperature, seed and settings
  // The tasks of this shard.
  std::vector<TaskIdentity> own_tasks() const;
};

// `model` and `model_digest` are found out by who has the model.
Identity identity_of(const Suite& suite, const std::vector<envs::Task>& tasks, std::string model,
                     std::string model_digest, const Shard& shard);

Json to_json(const Identity& identity);
Result<Identity> identity_from_json(const Json& json);

// The model of an endpoint that never said its name. Any model may go on in its folder: nothing there has a verdict.
inline constexpr std::string_view kUnknownModel = "(unknown)";

enum class CompareShards : uint8_t { kYes, kNo };
// Empty where both are of the same; else the first difference, as "the folder has ..., this is ...".
std::string first_difference(const Identity& then, const Identity& now, CompareShards shards = CompareShards::kYes);

// Digest of a model at an endpoint: of its name there, since its weights are unknown.
std::string digest_of_endpoint(std::string_view model);

// The model directory that a user names by it or by a run directory. kNotFound where there is none.
Result<fs::path> model_directory(const fs::path& named);

}  // namespace tandem::eval
