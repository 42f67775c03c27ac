#include "envs/changes/folder_work.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"

namespace tandem::envs {

Result<FolderWork> FolderWork::begin(SandboxBackend& backend, SandboxSpec spec, const std::filesystem::path& folder,
                                     const LeavesOut& leaves_out) {
  FolderWork work;
  auto base = folder_base(folder, leaves_out);
  if (!base && base.error().code() == Code::kExhausted) {
    return fail(Status::invalid(fmt::format("{} is too large: {}", folder.string(), base.error().message()))
                    .hint("leave out what the task does not need with --exclude"));
  }
  if (!base && base.error().code() != Code::kUnfit) return fail(std::move(base).error());
  // An overlay of an ordinary user cannot change what belongs to another user or group, a copy can.
  const size_t foreign = base && ::geteuid() != 0 ? base->list.foreign : 0;
  const bool fits = base && base->list.bytes < kLargestTree / 2 && base->list.count < kMostTreeEntries / 2;
  std::string why;
  if (foreign > 0 && fits) {
    why = fmt::format("{} of its files and folders belong to another user or group", foreign);
  } else if (base) {
    spec.below = base->below();
    auto made = backend.create(spec);
    if (made) {
      work.sandbox_ = std::move(*made);
      work.begun_from_ = std::move(*base);
      if (foreign > 0)
        work.note_ =
            fmt::format("{} files and folders belong to another user or group, and cannot be changed", foreign);
      return work;
    }
    if (made.error().code() != Code::kUnfit) return fail(std::move(made).error());
    why = made.error().message();
    spec.below.reset();
  } else {
    why = base.error().message();
  }
  work.sandbox_ = TRY(backend.create(spec));  // where there is no sandbox at all, it is this that says so
  auto copy = copy_folder(folder, leaves_out, *work.sandbox_);
  if (!copy) {
    return fail(
        std::move(copy).error().at("a copy must be made, since the folder cannot be worked on as it is (" + why + ")"));
  }
  work.note_ = "a copy of the folder was made, since it cannot be worked on as it is: " + why;
  if (!copy->note.empty()) work.note_ += "; " + copy->note;
  work.begun_from_ = std::move(*copy);
  return work;
}

std::vector<std::string> FolderWork::names() const {
  if (const auto* const base = std::get_if<FolderBase>(&begun_from_)) return base->names();
  std::vector<std::string> names;
  for (const auto& entry : std::get<FolderCopy>(begun_from_).entries) {
    const bool git = entry.path == ".git" || entry.path.starts_with(".git/");
    if (!S_ISDIR(entry.mode) && !git) names.push_back(entry.path);
  }
  std::ranges::sort(names);
  return names;
}

Result<std::vector<Change>> FolderWork::changes() {
  if (const auto* const base = std::get_if<FolderBase>(&begun_from_)) return changes_on(*sandbox_, *base);
  return changes_in(*sandbox_, std::get<FolderCopy>(begun_from_));
}

}  // namespace tandem::envs
