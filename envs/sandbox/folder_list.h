// Lists a folder by types, sizes and times, and finds changes of a workspace that began on it.
//
// No content is read but that of files that are other. A file is the folder's own where its path, type, mode, size,
// times of modification and change, and number are: no program in a sandbox can set the time of change. So the
// difference takes a walk, and not what the folder holds.
//
// Values; functions that touch nothing but the folder they are given. No link is followed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "envs/sandbox/file_tree.h"

namespace tandem::envs {

inline constexpr size_t kMostListedFiles = 1'000'000;
inline constexpr size_t kMostChanged = 200'000;                           // entries that are taken of a workspace
inline constexpr size_t kLargestChanged = size_t{512} << 20;              // bytes of their files together
inline constexpr size_t kLargestChangedFile = kLargestTree - (1u << 20);  // and of one

struct FileStamp {
  uint32_t mode = 0;
  uint64_t size = 0;
  int64_t modified = 0, changed = 0;  // nanoseconds
  uint64_t number = 0;                // the inode's, without the bits in which an overlay names the layer
};
// Compares type and mode of folders, and every field of anything else.
bool same_file(const FileStamp& a, const FileStamp& b);

// The stamp of a file; of a link itself.
std::optional<FileStamp> stamp_of_file(const std::filesystem::path& path);

// Why something of the folder is not to be seen in a sandbox.
enum class Hidden : uint8_t { kLeftOut, kUnreadable, kSpecial };  // the last: sockets, devices
struct HiddenPath {
  std::string path;
  Hidden why = Hidden::kLeftOut;
};

struct FolderList {
  std::string entries;  // packed: a stamp and a path each; folders come before what is in them
  size_t count = 0, files = 0;
  uint64_t bytes = 0;  // of its files together
  std::vector<HiddenPath> hidden;
  size_t foreign = 0;              // of entries those that belong to another user or group than our process
  bool has_mounts = false;         // whether part of it is on another file system
  bool has_overlay_notes = false;  // whether an overlay may take files of it for notes of what is gone

  // By path, as long as the list is there and unchanged.
  std::unordered_map<std::string_view, FileStamp> by_path() const;
};

// kExhausted beyond kMostListedFiles, kInvalid where it is no folder that can be read.
Result<FolderList> list_folder(const std::filesystem::path& folder, const LeavesOut& leaves_out);

struct ListedEntry {
  std::string_view path;
  FileStamp stamp;
};
// Takes a packed entry from the front; none from bytes that were not packed.
std::optional<ListedEntry> take_listed(std::string_view& entries);
void put_listed(std::string& entries, std::string_view path, const FileStamp& stamp);
// Calls `visit(path, stamp)` for each. False for bytes that were not packed.
bool for_each_listed(std::string_view entries, const auto& visit) {
  while (!entries.empty()) {
    const auto entry = take_listed(entries);
    if (!entry) return false;
    visit(entry->path, entry->stamp);
  }
  return true;
}

// A part of a difference, by the order of paths: a message takes no more.
struct FolderPage {
  std::string from;                     // its first path; empty: the first of all
  uint64_t entries = kMostTreeEntries;  // at most
  uint64_t bytes = kLargestTree;        // of content and paths, at most
  uint64_t left = kLargestChanged;      // of content, in this part and all that follow
};

// Changes of a workspace against both its folder at the beginning and its folder now.
struct FolderDifference {
  std::vector<TreeEntry> other;   // changed, or new; folders where their mode is other
  std::vector<std::string> gone;  // what was there at the beginning; nothing that cannot be looked at by now
  std::vector<TreeEntry> large;   // changed or new, and more than there was room for: without content
  std::string next;               // the first path that is not in it any more; empty: that was all
  uint64_t rest = 0;              // how many are not
};

// What differs below `root`, where nothing runs. `begin`: what the folder held; `meanwhile`: what it holds now that is
// other (both packed). Every part has at least an entry, as long as there is one.
Result<FolderDifference> difference_from(const std::filesystem::path& root, std::string_view begin,
                                         std::string_view meanwhile, const FolderPage& page = {});

std::string encode(const FolderDifference& difference);
Result<FolderDifference> decode_folder_difference(std::string_view bytes);

}  // namespace tandem::envs
