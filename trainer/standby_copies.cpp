#include "trainer/standby_copies.h"

#include <fmt/format.h>

#include "trainer/learn/checkpoints.h"
#include "trainer/teacher_record.h"

namespace tandem::trainer {

namespace {

// A checkpoint is one once it has this file, there as here.
constexpr const char* kLastOfCheckpoint = "learner.json";

std::string checkpoint_name(uint64_t step) { return fmt::format("checkpoints/step_{}", step); }

std::set<std::string> checkpoint_names(const fs::path& run_dir) {
  std::set<std::string> names;
  for (const auto& [step, folder] : checkpoints_of(run_dir)) names.insert(checkpoint_name(step));
  return names;
}

}  // namespace

StandbyCopies::StandbyCopies(fs::path run_dir, standby::Replicator* standby)
    : run_dir_(std::move(run_dir)), standby_(standby), copied_(checkpoint_names(run_dir_)) {}

Status StandbyCopies::begin(uint64_t trajectories) {
  if (standby_ == nullptr) return {};
  (void)standby_->extend(kTrajectories, trajectories);
  for (const std::string& name : copied_) TRY(standby_->put_all(name, kLastOfCheckpoint));
  std::error_code error;
  for (const char* folder : {kTeacherFolder, "export"})
    if (fs::exists(run_dir_ / folder, error)) TRY(standby_->put_all(folder));
  return {};
}

Status StandbyCopies::trajectories(uint64_t bytes) const {
  return standby_ == nullptr ? Status() : standby_->wait(standby_->extend(kTrajectories, bytes));
}

Status StandbyCopies::checkpoint(uint64_t version) {
  if (standby_ == nullptr) return {};
  const std::set<std::string> before = std::exchange(copied_, checkpoint_names(run_dir_));
  TRY(copy(checkpoint_name(version), kLastOfCheckpoint));
  (void)standby_->link("checkpoints/latest", fmt::format("step_{}", version));
  for (const std::string& name : before)
    if (!copied_.contains(name)) (void)standby_->remove(name);
  return {};
}

Status StandbyCopies::exported() const { return standby_ == nullptr ? Status() : copy("export", ""); }

// Until the standby has it.
Status StandbyCopies::copy(const std::string& folder, const std::string& last) const {
  return standby_->wait(TRY(standby_->put_all(folder, last)));
}

}  // namespace tandem::trainer
