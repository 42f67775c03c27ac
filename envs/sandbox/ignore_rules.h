// Rules of .gitignore files, as git applies them.
//
// Names, globs, `!` that takes back, `/` at the end for folders alone, `/` elsewhere for paths from the folder of the
// file; a later rule wins over an earlier one. What lies in a folder that is left out cannot be taken back: whoever
// walks does not go in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tools/glob.h"

namespace tandem::envs {

// Value type. Thread safety: ignores may be called from several threads.
class IgnoreRules {
 public:
  // The rules of one file in `folder` (relative to the root, "" for itself). Lines that are no pattern say nothing, as
  // with git.
  void add(std::string_view folder, std::string_view text);

  // Whether a path relative to the root is ignored. Rules of folders that do not contain it must have been dropped.
  bool ignores(std::string_view path, bool is_folder) const;

  // For a walk: those of a folder are dropped when it is left.
  size_t size() const { return rules_.size(); }
  void drop_to(size_t size) { rules_.erase(rules_.begin() + static_cast<std::ptrdiff_t>(size), rules_.end()); }

 private:
  struct Rule {
    enum class Kind : uint8_t { kName, kEnding, kGlob };
    Kind kind = Kind::kName;
    bool takes_back = false, folders_only = false;
    bool whole_path = false;  // else the last name alone
    size_t skipped = 0;       // characters of the folder and its slash, before what a whole path is compared from
    std::string text;         // of a name, or of an ending ("*.o": ".o")
    std::optional<Glob> glob = {};
  };
  std::vector<Rule> rules_;
};

}  // namespace tandem::envs
