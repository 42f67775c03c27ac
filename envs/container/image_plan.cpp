#include "envs/container/image_plan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/file_tree.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/request_kind.h"
#include "envs/sandbox/root_contents.h"

namespace tandem::envs {

const char* const kPrepareArgument = "--tandem-prepare-image";

namespace {

constexpr const char* kWorkspace = "/workspace";
constexpr uint64_t kLargestList = 1 << 20;  // of users, of groups

fs::path below(const fs::path& root, std::string_view path) { return root / fs::path(path).relative_path(); }

// Whatever is in the way that is no folder, nor leads to one, makes room.
Status make_folders(const fs::path& root, const fs::path& relative) {
  fs::path at = root;
  for (const auto& part : relative) {
    at /= part;
    std::error_code error;
    if (fs::is_directory(at, error)) continue;
    fs::remove(at, error);
    if (!fs::create_directory(at, error)) return Status(Code::kUnavailable, at.string() + ": " + error.message());
  }
  return {};
}

// A folder that is mounted over. Podman puts what it holds, and its mode, into what is mounted.
Status make_empty(const fs::path& folder, mode_t mode) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (mkdir(folder.c_str(), mode) != 0 || chmod(folder.c_str(), mode) != 0)
    return Status::from_errno(folder.string(), errno);
  return {};
}

Status replace_by_link(const fs::path& root, const std::string& path, const std::string& target) {
  const auto place = below(root, path);
  std::error_code error;
  fs::remove_all(place, error);
  TRY(make_folders(root, fs::path(path).relative_path().parent_path()));
  fs::create_symlink(target, place, error);
  if (error) return Status(Code::kUnavailable, path + ": " + error.message());
  return {};
}

// `line` becomes the first one of a list of users or groups, so that its number has our name.
Status add_first_line(const fs::path& file, const std::string& line) {
  std::error_code error;
  if (!fs::exists(file.parent_path(), error)) fs::create_directories(file.parent_path(), error);
  const auto list = fs::is_regular_file(file, error) ? TRY(read_file(file, kLargestList)) : "";
  return write_file(file, line + "\n" + list);
}

Status keep_beginning(const fs::path& root, const std::string& folder) {
  const auto place = below(root, folder);
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(place, error))) return {};
  const auto tree = TRY(pack_tree(place));
  if (TRY(read_tree(tree)).empty()) return {};
  return write_file(below(root, kBeginning), tree);
}

// Runs before main of whatever program this is linked into.
__attribute__((constructor)) void prepare_entry(int argc, char** argv) {
  if (argc != 3 || strcmp(argv[1], kPrepareArgument) != 0) return;
  const auto connected = connect_to(argv[2]);
  if (!connected) {
    fprintf(stderr, "%s\n", connected.error().message().c_str());
    _exit(1);
  }
  const auto soon = [] { return SystemClock().now() + std::chrono::seconds(20); };
  const auto prepare = [&]() -> Status {
    return prepare_root("/", TRY(decode_image_plan(TRY(receive_frame(connected->get(), soon())))));
  };
  const Status status = prepare();
  const bool told = send_frame(connected->get(), status ? kWorked : status.message(), soon()).ok();
  _exit(told && status ? 0 : 1);
}

}  // namespace

bool can_be_workspace(const std::string& folder) {
  static constexpr std::string_view kWhole[] = {"usr", "bin",    "sbin", "lib", "lib32", "lib64",
                                                "etc", "libx32", "var",  "opt", "root",  "home"};
  static constexpr std::string_view kAll[] = {"dev", "proc", "sys", "run", "tmp", ".tandem"};
  const auto is_in = [](std::span<const std::string_view> names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!folder.starts_with('/') || fs::path(folder).lexically_normal().string() != folder || folder.ends_with('/'))
    return false;
  const auto parts = split(std::string_view(folder).substr(1), '/');
  return !is_in(kAll, parts[0]) && (parts.size() > 1 || !is_in(kWhole, parts[0]));
}

std::string encode(const ImagePlan& plan) {
  std::string bytes;
  put_text(bytes, plan.folder);
  put_files(bytes, plan.links);
  return bytes;
}

Result<ImagePlan> decode_image_plan(std::string_view bytes) {
  FieldReader fields(bytes);
  ImagePlan plan;
  plan.folder = TRY(fields.text());
  plan.links = TRY(fields.files());
  const auto is_absolute = [](const std::string& path) {
    return path.starts_with('/') && path.find("/..") == std::string::npos && path.find('\0') == std::string::npos;
  };
  const bool links_fit = std::all_of(plan.links.begin(), plan.links.end(), [&](const auto& link) {
    return is_absolute(link.first) && link.first != "/" && is_absolute(link.second);
  });
  if (!links_fit || (!plan.folder.empty() && !can_be_workspace(plan.folder)))
    return fail(Status::corrupt("the plan for an image has a path that does not fit"));
  return plan;
}

Status prepare_root(const fs::path& root, const ImagePlan& plan) {
  if (!plan.folder.empty()) {
    TRY(keep_beginning(root, plan.folder));
    if (plan.folder != kWorkspace) TRY(replace_by_link(root, plan.folder, kWorkspace));
  }
  for (const auto& [path, target] : plan.links) {
    if (path != plan.folder && path != kWorkspace) TRY(replace_by_link(root, path, target));
  }
  TRY(make_empty(root / "workspace", 0755));
  TRY(make_empty(root / "tmp", 01777));
  const auto id = std::to_string(kNobody);
  TRY(add_first_line(root / "etc/passwd", "agent:x:" + id + ":" + id + ":agent:" + kHome + ":/bin/bash"));
  return add_first_line(root / "etc/group", "agent:x:" + id + ":");
}

}  // namespace tandem::envs
