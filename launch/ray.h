// A job for Ray's job server, as `ray job submit` takes it.
//
// Ray does not start a job again. Its entrypoint is therefore `tandem launch --on local`, which starts the run again by
// its exit code; Ray's `num_cpus` and `memory` place it. The program and all paths must be there on every node.
//
// Thread safety: none needed; values.
#pragma once

#include <string>
#include <vector>

#include "launch/job.h"

namespace tandem::launch {

struct RayOptions {
  std::string address;             // of the cluster, http://HOST:8265; empty: RAY_ADDRESS
  std::string runtime_env;         // a YAML file of Ray's runtime environment; empty: none
  std::vector<std::string> extra;  // further options of `ray job submit`
};

// A submission of one run.
struct RaySubmission {
  std::string id;                  // to Ray
  std::vector<std::string> words;  // of `ray job submit`, without "ray"
};

// One for each variant. kInvalid where an extra option is none.
Result<std::vector<RaySubmission>> ray_submissions(const Job& job, const RayOptions& options);

// A shell script of them.
Result<std::string> render_ray(const Job& job, const RayOptions& options);

}  // namespace tandem::launch
