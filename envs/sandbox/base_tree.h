// A tree of files on this machine that workspaces begin on without a copy: a whole repository, say.
//
// Any number of sandboxes sees it below files of its own (layers.h), and none writes it. What a workspace holds is told
// as its changes: files that are other or new, and paths of the base that are gone.
//
// A file of a workspace is the base's where its path, time of change and time of modification are. No program in a
// sandbox can set the former back, and the latter is another one for each file of a base, so that files that were moved
// are told apart.
//
// Values; functions of what they are given and of the files there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/sandbox/files.h"

namespace tandem::envs {

inline constexpr uint64_t kMostBaseFiles = 1'000'000;
inline constexpr uint64_t kMostBaseBytes = uint64_t{64} << 30;

struct BaseTree {
  std::filesystem::path folder;  // with `tree`, the files, and `manifest`, what they are
  std::string digest;            // of what they were made from
  uint64_t files = 0, bytes = 0;

  std::filesystem::path tree() const { return folder / "tree"; }
  std::filesystem::path manifest() const { return folder / "manifest"; }
  friend bool operator==(const BaseTree& a, const BaseTree& b) { return a.digest == b.digest; }
};

struct Collected;

// Gives each file below `folder`/tree a time of modification of its own, all files and folders to `user`, and writes
// the manifest. What is neither file, folder nor link is removed; files with several names become as many. kInvalid
// where there is more than kMostBaseFiles or kMostBaseBytes. Afterwards nobody may write there.
Status seal_base_tree(const std::filesystem::path& folder, unsigned user);

// kNotFound where there is none, kCorrupt where its manifest is not of this format.
Result<BaseTree> open_base_tree(const std::filesystem::path& folder, std::string digest);

// File type and permissions of a path of the base, as lstat has them; empty where it does not exist. No link on the way
// leads out of the base.
std::optional<uint32_t> mode_in_base(const BaseTree& base, const std::string& path);

// The content of a file of the base. kNotFound where there is none, or it is a link itself.
Result<std::string> read_base_file(const BaseTree& base, const std::string& path);

// Changes below `root` against the base of this manifest, within the bounds of collect_files.
Collected collect_changes(const std::filesystem::path& root, std::string_view manifest);

// The same for a workspace with a copy of the base.
Result<Collected> changes_against(const BaseTree& base, const Collected& all);

}  // namespace tandem::envs
