#include "envs/sandbox/sources.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <unordered_map>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/ignore_rules.h"

namespace tandem::envs {
namespace {

constexpr int kSourcesDeepest = 64;  // folders in folders
constexpr size_t kNamedSecrets = 5;
constexpr uint64_t kLargestRules = 1 << 20;             // bytes of a file of rules
constexpr uint64_t kOwnBits = (uint64_t{1} << 56) - 1;  // of a file's number; an overlay names the layer in the rest
constexpr int64_t kSettled = 100'000'000;               // ns after which a file's times tell one change from the next

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

// 0 for a file that was changed just now: it could be changed again without its times showing it.
uint64_t stamp_of(const struct stat& info, int64_t now) {
  if (now - std::max(nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)) < kSettled) return 0;
  const int64_t parts[] = {info.st_size, nanoseconds(info.st_mtim), nanoseconds(info.st_ctim),
                           static_cast<int64_t>(info.st_ino & kOwnBits)};
  return std::max<uint64_t>(1, digest_of(std::as_bytes(std::span(parts))).low);
}

FileDescriptor open_at(int folder, const char* name, int flags) {
  return FileDescriptor(openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags));
}

// The whole of a regular file, of at most `limit` bytes.
Result<std::string> read_all(int file, uint64_t limit) {
  struct stat info {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) return fail(Status::invalid("not a regular file"));
  std::string content(std::min<uint64_t>(static_cast<uint64_t>(info.st_size), limit) + 1, '\0');
  size_t size = 0;
  for (;;) {
    if (size == content.size()) content.resize(size * 2);
    const ssize_t count = read(file, content.data() + size, content.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(Status::from_errno("read", errno));
    if (count == 0) break;
    size += static_cast<size_t>(count);
    if (size > limit) return fail(Status::exhausted("too large"));
  }
  content.resize(size);
  return content;
}

class Walk {
 public:
  Walk(std::span<const KnownSource> known, size_t most_content) : known_(known), seen_(known.size()) {
    by_path_.reserve(known.size());
    for (size_t i = 0; i < known.size(); ++i) by_path_.emplace(known[i].path, i);
    most_content_ = most_content;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    now_ = nanoseconds(now);
  }

  SourceChanges run(FileDescriptor root) {
    visit(std::move(root), "", 0);
    for (size_t i = 0; i < known_.size(); ++i) {
      if (!seen_[i]) changes_.removed.push_back(known_[i].path);
    }
    return std::move(changes_);
  }

 private:
  void visit(FileDescriptor folder, const std::string& path, int depth) {
    const size_t rules = rules_.size();
    for (const char* name : {".gitignore", ".ignore", ".tandemignore"}) {
      if (const auto file = open_at(folder.get(), name, 0)) {
        if (const auto text = read_all(file.get(), kLargestRules)) rules_.add(path, *text);
      }
    }
    const int listed = dup(folder.get());
    DIR* const list = listed < 0 ? nullptr : fdopendir(listed);
    if (!list) {
      if (listed >= 0) close(listed);
      return leave_out(LeftOut::kUnreadable, path);
    }
    std::vector<std::string> names;
    while (const dirent* entry = readdir(list)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    closedir(list);
    std::sort(names.begin(), names.end());
    for (const auto& name : names) {
      struct stat info {};
      if (fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone meanwhile
      const auto below = path.empty() ? name : path + '/' + name;
      if (S_ISDIR(info.st_mode)) {
        visit_folder(folder.get(), name, below, depth);
      } else if (S_ISREG(info.st_mode)) {
        visit_file(folder.get(), name, below, info);
      }
    }
    rules_.drop_to(rules);
  }

  void visit_folder(int parent, const std::string& name, const std::string& path, int depth) {
    if (const auto why = left_out_by_name(name, true); why != LeftOut::kNot) return leave_out(why, path);
    if (rules_.ignores(path, true)) return leave_out(LeftOut::kIgnored, path);
    if (depth == kSourcesDeepest) return leave_out(LeftOut::kTooMany, path);
    auto folder = open_at(parent, name.c_str(), O_DIRECTORY);
    if (!folder) return leave_out(LeftOut::kUnreadable, path);
    visit(std::move(folder), path, depth + 1);
  }

  void visit_file(int folder, const std::string& name, const std::string& path, const struct stat& info) {
    if (const auto why = left_out_by_name(name, false); why != LeftOut::kNot) return leave_out(why, path);
    if (rules_.ignores(path, false)) return leave_out(LeftOut::kIgnored, path);
    if (static_cast<uint64_t>(info.st_size) > kLargestSource) return leave_out(LeftOut::kLarge, path);
    if (changes_.files == kMostSources) return leave_out(LeftOut::kTooMany, path);
    const uint64_t stamp = stamp_of(info, now_);
    const auto found = by_path_.find(path);
    const KnownSource* known = found == by_path_.end() ? nullptr : &known_[found->second];
    if (known) seen_[found->second] = true;
    if (known && stamp != 0 && known->stamp == stamp) return count(*known);
    const auto file = open_at(folder, name.c_str(), 0);
    auto content = file ? read_all(file.get(), kLargestSource) : fail(Status::unavailable("it cannot be opened"));
    if (!content) {
      if (known) seen_[found->second] = false;
      return leave_out(LeftOut::kUnreadable, path);
    }
    ChangedSource source{.now = {path, digest_of(*content), stamp}};
    if (known && known->digest == source.now.digest) {
      source.now.left_out = known->left_out;
      count(source.now);
      if (known->stamp != stamp) changes_.changed.push_back(std::move(source));
      return;
    }
    source.now.left_out = left_out_by_content(*content);
    if (source.now.left_out == LeftOut::kNot) {
      if (content_ > 0 && content_ + content->size() > most_content_) {
        changes_.more = true;
        return;
      }
      content_ += content->size();
      source.has_content = true;
      source.content = std::move(*content);
    }
    count(source.now);
    changes_.changed.push_back(std::move(source));
  }

  void count(const KnownSource& source) {
    if (source.left_out == LeftOut::kNot) {
      ++changes_.files;
    } else {
      leave_out(source.left_out, source.path);
    }
  }
  void leave_out(LeftOut why, const std::string& path) {
    ++changes_.left_out[static_cast<size_t>(why)];
    if (why == LeftOut::kSecret && changes_.secrets.size() < kNamedSecrets) changes_.secrets.push_back(path);
  }

  std::span<const KnownSource> known_;
  std::vector<bool> seen_;
  std::unordered_map<std::string_view, size_t> by_path_;
  size_t most_content_ = 0, content_ = 0;
  int64_t now_ = 0;
  IgnoreRules rules_;
  SourceChanges changes_;
};

// The file below `root`, each folder on the way opened by itself so that none is a link.
FileDescriptor open_below(const fs::path& root, std::string_view path) {
  FileDescriptor folder(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto parts = split(path, '/');
  for (size_t i = 0; i < parts.size() && folder; ++i) {
    if (parts[i].empty() || parts[i] == "." || parts[i] == "..") return {};
    folder = open_at(folder.get(), std::string(parts[i]).c_str(), i + 1 < parts.size() ? O_DIRECTORY : 0);
  }
  return folder;
}

}  // namespace

Result<SourceChanges> changes_of_sources(const fs::path& root, std::span<const KnownSource> known,
                                         size_t most_content) {
  FileDescriptor folder(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return fail(Status::invalid(Status::from_errno(root.string(), errno).message()));
  return Walk(known, most_content).run(std::move(folder));
}

std::vector<std::string> read_lines(const fs::path& root, std::span<const SourceLines> wanted) {
  std::vector<std::string> texts;
  for (const auto& lines : wanted) {
    texts.emplace_back();
    const auto file = open_below(root, lines.path);
    const auto content = file ? read_all(file.get(), kLargestSource) : fail(Status::not_found(lines.path));
    if (!content || lines.first == 0) continue;
    size_t begin = 0;
    uint64_t line = 1;
    for (; line < lines.first && begin < content->size(); ++line) {
      const size_t end = content->find('\n', begin);
      begin = end == std::string::npos ? content->size() : end + 1;
    }
    size_t end = begin;
    for (; line <= lines.last && end < content->size(); ++line) {
      const size_t next = content->find('\n', end);
      end = next == std::string::npos ? content->size() : next + 1;
    }
    texts.back() = content->substr(begin, end - begin);
  }
  return texts;
}

}  // namespace tandem::envs
