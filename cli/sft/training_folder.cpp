#include "cli/sft/training_folder.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "run/checks.h"
#include "trainer/learn/checkpoints.h"

namespace tandem::cli {

namespace {

constexpr const char *kConfigFile = "config.resolved.json", *kEndedConfigFile = "config.json";

// What may be another when a training goes on: the result is the same with any of them.
bool may_change(const std::string& path) {
  return path == "threads" || path == "trainer.checkpoint_every" || path == "checkpoint_seconds";
}

// The config of a training that is gone on with must be the one that it began with.
Status check_same_config(const fs::path& folder, const Schema& schema, const char* file = kConfigFile) {
  const Json before = TRY(parse_json(TRY(read_file(folder / file, 1 << 20))));
  SftConfig old_config;
  Schema old = schema_of(old_config);
  TRY(old.apply_resolved(before));
  std::string changed;
  for (size_t i = 0; i < schema.fields().size(); ++i) {
    const Field& now = schema.fields()[i];
    const Json was = old.fields()[i].get();
    if (may_change(now.path) || was == now.get()) continue;
    changed += fmt::format("\n  {} was {} and is {}", now.path, dump_json(was), dump_json(now.get()));
  }
  if (changed.empty()) return {};
  return Status::invalid(fmt::format("the training in {} began with another config:{}", folder.string(), changed))
      .hint("go on with the config as it was, or name another `out` to begin anew");
}

}  // namespace

Result<FolderLock> open_training_folder(bool resume, const SftConfig& config, const Schema& schema,
                                        const fs::path& folder) {
  auto claim = run::claim_run_dir(folder);
  if (!claim && claim.error().code() == Code::kUnfit) return claim;
  if (!claim) return fail(Status(claim.error()).hint("wait for its end, or name another `out`"));
  std::error_code error;
  // Without a checkpoint there is nothing to go on with: it begins anew, with whatever config.
  const bool begun = fs::exists(folder / kConfigFile, error) && !trainer::checkpoints_of(folder).empty();
  if (begun && resume) {
    TRY(check_same_config(folder, schema));
  } else if (begun) {
    return fail(Status::exists(fmt::format("{} is of a training that has not ended", folder.string()))
                    .hint(fmt::format("--resume goes on with it; remove {} to begin anew", folder.string())));
  }
  if (!begun) fs::remove(folder / kEndedConfigFile, error);  // of a training before it
  TRY(write_file(folder / kConfigFile, schema.resolved().dump(2) + "\n"));
  fs::remove(folder / "model", error);
  fs::create_directory_symlink(fs::absolute(config.model), folder / "model", error);  // for tandem export
  return claim;
}

void conclude_training(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / "model", error);
  fs::remove_all(folder / "checkpoints", error);
  if (fs::exists(folder / kConfigFile, error)) fs::rename(folder / kConfigFile, folder / kEndedConfigFile, error);
}

Result<int> training_has_ended(const SftConfig& config, const Schema& schema, const fs::path& folder) {
  std::error_code error;
  const bool ended = fs::exists(folder / kEndedConfigFile, error);
  if (!ended && !fs::exists(folder / kConfigFile, error)) {
    return fail(Status::invalid(
                    fmt::format("{} is there, and {} says of no training that made it", config.out, folder.string()))
                    .hint("name another `out`, or remove it"));
  }
  TRY(check_same_config(folder, schema, ended ? kEndedConfigFile : kConfigFile));
  conclude_training(folder);
  fmt::print(stderr, "{} is there: its training has ended\n", config.out);
  return kDone;
}

}  // namespace tandem::cli
