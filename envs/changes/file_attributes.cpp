#include "envs/changes/file_attributes.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "envs/changes/change.h"

namespace tandem::envs {
namespace {

constexpr const char* kAccessList = "system.posix_acl_access";
constexpr const char* kDefaultList = "system.posix_acl_default";
constexpr size_t kLargestAttribute = size_t{64} << 10;  // of Linux, and of all names together

// Neither the file system nor we can have it: nothing is lost that could be kept.
bool is_not_for_us(int error) { return error == ENOTSUP || error == EPERM || error == EACCES; }

std::optional<std::string> attribute_of(int file, const char* name) {
  std::string value(kLargestAttribute, '\0');
  const ssize_t size = ::fgetxattr(file, name, value.data(), value.size());
  if (size < 0) return std::nullopt;
  value.resize(static_cast<size_t>(size));
  return value;
}

Status copy_attribute(int from, int to, const std::string& name) {
  const auto value = attribute_of(from, name.c_str());
  if (!value) return {};  // gone meanwhile
  if (::fsetxattr(to, name.c_str(), value->data(), value->size(), 0) == 0 || is_not_for_us(errno)) return {};
  return Status::from_errno("attribute " + name, errno);
}

Status copy_attributes(int from, int to) {
  std::string names(kLargestAttribute, '\0');
  const ssize_t size = ::flistxattr(from, names.data(), names.size());
  if (size < 0) return is_not_for_us(errno) ? Status() : Status::from_errno("attributes", errno);
  names.resize(static_cast<size_t>(size));
  for (size_t at = 0; at < names.size();) {
    const std::string name(names.c_str() + at);
    at += name.size() + 1;
    if (name.starts_with("user.") || name == kAccessList) TRY(copy_attribute(from, to, name));
  }
  return {};
}

}  // namespace

Status carry_over_attributes(int replaced, const struct stat& info, int made, mode_t mode) {
  TRY(copy_attributes(replaced, made));
  bool keeps_owner = info.st_uid == ::geteuid() && info.st_gid == ::getegid();
  // A file of somebody else stays theirs where we may give it away.
  if (!keeps_owner) {
    keeps_owner = ::fchown(made, info.st_uid, info.st_gid) == 0;
    if (!keeps_owner && errno != EPERM) return Status::from_errno("owner", errno);
  }
  mode &= kPermissions;
  if (keeps_owner && (info.st_mode & kPermissions) == mode) mode = info.st_mode & 07777;
  if (::fchmod(made, mode) != 0) return Status::from_errno("mode", errno);
  return {};
}

Status begin_attributes(int folder, int made, mode_t mode) {
  if (const auto list = attribute_of(folder, kDefaultList)) {
    if (::fsetxattr(made, kAccessList, list->data(), list->size(), 0) != 0 && !is_not_for_us(errno))
      return Status::from_errno("access control list", errno);
  }
  struct stat info {};
  if (::fstat(folder, &info) != 0) return Status::from_errno("folder", errno);
  if ((info.st_mode & S_ISGID) != 0 && ::fchown(made, static_cast<uid_t>(-1), info.st_gid) != 0 && errno != EPERM)
    return Status::from_errno("group", errno);
  if (::fchmod(made, mode & kPermissions) != 0) return Status::from_errno("mode", errno);
  return {};
}

}  // namespace tandem::envs
