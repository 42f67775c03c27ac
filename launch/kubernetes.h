// Manifests of a job for Kubernetes: YAML that `kubectl create -f` takes.
//
// A run is a batch/v1 Job of one pod at a time (Kubernetes 1.33 or newer, for pods with users of their own, in which
// sandboxes can be made without privileges). A pod that is
// preempted, drained or otherwise asked to end saves a checkpoint within its period of grace and is replaced; so is one
// that crashes, kMostCrashes times; a failure ends the Job. Run directories lie on a volume claim, the config in a
// ConfigMap. The image has `tandem` behind an entrypoint that reaps processes (packaging/Dockerfile).
//
// Thread safety: none needed; values.
#pragma once

#include <string>

#include "launch/job.h"

namespace tandem::launch {

// Where the volume and the config are in a pod. Relative paths of a config are relative to kVolume.
inline constexpr std::string_view kVolume = "/data";
inline constexpr std::string_view kConfigFolder = "/etc/tandem";

struct KubernetesOptions {
  std::string image;
  std::string name_space;  // empty: that of kubectl's context
  std::string queue;       // of Kueue; empty: none
  std::string claim;       // a claim that is there; empty: one is made
  int storage_gb = 20;     // of one that is made
};

// `job.run_dir` lies below kVolume; job.program, config and working_dir have no meaning here. `config` is the YAML text
// of the config, without what variants say. kInvalid where a name cannot be one of Kubernetes.
Result<std::string> render_kubernetes(const Job& job, std::string_view config, const KubernetesOptions& options);

// An evaluation every night.
struct Nightly {
  std::string name;      // to Kubernetes
  std::string schedule;  // as cron writes it, UTC
  fs::path nights;       // folder below kVolume that gets a folder a night
  Resources resources;
};
// A CronJob that runs the image's nightly.sh, as examples/nightly has it. `suite` is the text of the suite, its paths
// absolute.
Result<std::string> render_kubernetes_nightly(const Nightly& nightly, std::string_view suite,
                                              const KubernetesOptions& options);

// `text` as a name of Kubernetes: small letters, digits and '-', at most 48.
std::string name_for_kubernetes(std::string_view text);

}  // namespace tandem::launch
