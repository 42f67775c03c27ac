// Options of `tandem launch`.
#pragma once

#include <string>
#include <vector>

#include "launch/kubernetes.h"
#include "launch/ray.h"
#include "launch/slurm.h"

namespace tandem::cli {

struct LaunchOptions {
  std::string of = "run";  // or "eval": the config is a suite
  std::string config;
  std::vector<std::string> overrides;
  std::string on, render, run_dir, seeds, program;
  std::vector<std::string> sweeps, extra;
  int cores = 0, restarts = 100;
  double memory_gb = 0;
  std::string schedule, nights = "nights";  // of an evaluation
  launch::SlurmOptions slurm;
  launch::KubernetesOptions kubernetes;
  launch::RayOptions ray;
  bool json = false;
};

}  // namespace tandem::cli
