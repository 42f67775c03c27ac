// Subcommands of `tandem envs` besides `ls`.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/envs/fleet_client.h"

namespace tandem::cli {

struct LogsOptions {
  std::string sandbox;  // empty: all
  int lines = 100;
  bool follow = false, json = false;
};
Result<int> show_logs(const FleetTarget& target, const LogsOptions& options);

struct ExecOptions {
  std::string sandbox;
  std::vector<std::string> command;
  double seconds = 10;
  uint32_t output_bytes = 256 << 10;
  bool json = false;
};
// The command's exit code.
Result<int> run_in_sandbox(const FleetTarget& target, const ExecOptions& options);

struct KillOptions {
  std::string sandbox;
  bool json = false;
};
Result<int> kill_sandbox(const FleetTarget& target, const KillOptions& options);

struct TopOptions {
  double seconds = 0;  // then it ends; 0: not before Ctrl-C
  bool once = false, json = false;
};
Result<int> show_top(const FleetTarget& target, const TopOptions& options);

}  // namespace tandem::cli
