// The files of a folder that can be searched, and what has changed in them.
//
// Left out are what .gitignore, .ignore and .tandemignore say, folders of version control, secrets by name and by
// content, binaries, what a program has generated, large files. Symbolic links are not followed, also while somebody
// changes the folder meanwhile. The same functions read a folder of this machine and, in its first process, the
// workspace of a sandbox: whoever searches a sandbox asks it, and opens none of its files.
//
// Values; functions that touch nothing but the folder they are given.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"

namespace tandem::envs {

inline constexpr uint64_t kLargestSource = uint64_t{1} << 20;  // bytes; what is larger is left out
inline constexpr size_t kMostSources = 100'000;                // files
inline constexpr size_t kMostContent = size_t{16} << 20;       // bytes of contents in one answer

// Why a file, or a folder with all that is in it, is left out.
enum class LeftOut : uint8_t { kNot, kIgnored, kSecret, kBinary, kLarge, kGenerated, kUnreadable, kTooMany };
inline constexpr size_t kLeftOutKinds = 8;
std::string_view to_string(LeftOut why);  // "ignored"

// By its name alone, without its folder; kSecret, kGenerated or kNot.
LeftOut left_out_by_name(std::string_view name, bool is_folder);
// By what is in it; kSecret, kBinary, kGenerated or kNot.
LeftOut left_out_by_content(std::string_view content);

struct KnownSource {
  std::string path;    // relative to the folder
  Digest digest;       // of its content
  uint64_t stamp = 0;  // of its size, times and inode; 0 where it must be read to know whether it has changed
  LeftOut left_out = LeftOut::kNot;  // by its content: not to be read again while the stamp is the same
  friend bool operator==(const KnownSource&, const KnownSource&) = default;
};

struct ChangedSource {
  KnownSource now;
  bool has_content = false;  // false: only the stamp is other than was known, or it is left out
  std::string content;
};

struct SourceChanges {
  std::vector<ChangedSource> changed;
  std::vector<std::string> removed;  // known, and not there any more or left out by now
  std::array<uint64_t, kLeftOutKinds> left_out{};
  std::vector<std::string> secrets;  // the first few of those left out as such
  uint64_t files = 0;                // that can be searched, changed or not
  bool more = false;                 // there was more than kMostContent; ask again with what came
};

// Changes below `root` since `known`. kInvalid where it is not a readable folder.
Result<SourceChanges> changes_of_sources(const std::filesystem::path& root, std::span<const KnownSource> known,
                                         size_t most_content = kMostContent);

// Lines of a file, both counted from 1 and inclusive.
struct SourceLines {
  std::string path;
  uint64_t first = 1, last = 1;
};
// Their text; empty for what is not there any more. No link is followed.
std::vector<std::string> read_lines(const std::filesystem::path& root, std::span<const SourceLines> wanted);

// As fields of messages between a sandbox and its host. Decoders accept untrusted bytes.
std::string encode(std::span<const KnownSource> known);
Result<std::vector<KnownSource>> decode_known_sources(std::string_view bytes);
std::string encode(const SourceChanges& changes);
Result<SourceChanges> decode_source_changes(std::string_view bytes);
std::string encode(std::span<const SourceLines> wanted);
Result<std::vector<SourceLines>> decode_source_lines(std::string_view bytes);

}  // namespace tandem::envs
