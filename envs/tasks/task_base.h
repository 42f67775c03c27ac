// The base of a workspace that is too large for a task's own files: a folder, an archive or a commit of a git
// repository on this machine.
//
// It is unpacked once, into $XDG_CACHE_HOME/tandem/bases (~/.cache) by its digest, and shared by all episodes
// (envs/sandbox/base_tree.h). `tandem cache prune` removes those that were not used for long; a base that is not there
// is made again.
//
// Thread safety: functions of the disk; several processes that prepare one base at once wait for the first.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/file.h"
#include "envs/sandbox/base_tree.h"

namespace tandem::envs {

struct TaskBase {
  enum class Kind : uint8_t { kFolder, kArchive, kGit };
  Kind kind = Kind::kFolder;
  fs::path source;
  std::string commit = {};            // of git: the whole name
  std::string digest = {};            // of what it holds
  std::string stamp = {};             // of a folder or an archive, by sizes, times and numbers of files
  std::optional<BaseTree> tree = {};  // once it is prepared
};

// Looks at the source and gives its digest. `commit`: as git understands it. kNotFound, kInvalid or kUnfit, naming what
// is wrong with the source.
Result<TaskBase> find_task_base(TaskBase::Kind kind, const fs::path& source, const std::string& commit = "");

// Looks at each source once: many tasks may begin on one base, and to look at a large folder takes a while.
class BaseSources {
 public:
  Result<TaskBase> find(TaskBase::Kind kind, const fs::path& source, const std::string& commit = "");

 private:
  std::map<std::tuple<TaskBase::Kind, fs::path, std::string>, Result<TaskBase>> known_;
};

// The base on disk; the first time that takes as long as unpacking it. Left out are `.git` and `__pycache__` of a
// folder, modules of a commit, what is neither file, folder nor link; a folder that an archive has alone at its top is
// the root. kInvalid where the source is not what it was, or too large; kUnfit without git, tar or a folder for it.
Result<BaseTree> prepare_base(const TaskBase& base);

// Whether it is on disk already.
bool is_prepared(const TaskBase& base);

}  // namespace tandem::envs
