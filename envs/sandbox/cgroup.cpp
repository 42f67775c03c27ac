#include "envs/sandbox/cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "envs/sandbox/owner.h"
#include "envs/sandbox/process_handle.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kPrefix = "tandem-";
constexpr size_t kMostGroups = 512;
constexpr int kMostAttempts = 2000;  // of a millisecond, at removing a group whose last processes are on their way out
constexpr size_t kLeastGroups = 4;   // that stay, however long nobody has asked

bool set_value(const std::string& file, const std::string& value) {
  FileDescriptor fd(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
}

// The folder of our own group in a version 1 hierarchy, or in version 2 for an empty controller.
std::string own_folder(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    for (auto name : split(parts[1], ',')) {
      if (name != controller) continue;
      const auto path = parts[2] == "/" ? "" : std::string(parts[2]);
      return "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + std::string(controller)) + path;
    }
  }
  return "";
}

std::vector<std::string> find_parents(std::string& kind) {
  if (access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0) {
    const auto own = own_folder("");
    if (own.empty()) return {};
    std::ifstream file(own + "/cgroup.subtree_control");
    const std::string controllers((std::istreambuf_iterator<char>(file)), {});
    if (controllers.find("pids") == std::string::npos || controllers.find("memory") == std::string::npos) return {};
    kind = "v2";
    return {own};
  }
  std::vector<std::string> parents;
  for (const char* controller : {"pids", "memory"}) {
    const auto own = own_folder(controller);
    if (!own.empty() && access((own + "/cgroup.procs").c_str(), W_OK) == 0) parents.push_back(own);
  }
  if (parents.size() != 2) return {};
  kind = "v1";
  return parents;
}

bool is_idle(const CgroupPool::Group& group) { return !group.user || has_ended(group.user); }

void kill_all_in(const std::string& folder) {
  std::ifstream file(folder + "/cgroup.procs");
  for (pid_t process; file >> process;) kill(process, SIGKILL);
}

}  // namespace

// Groups of spawners that are no more. Their processes have lost what they are for; bubblewrap, where it was killed
// together with its spawner at an unlucky moment, leaves one that would never end.
void CgroupPool::sweep(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(kPrefix) &&
        owner_is_gone(std::string_view(name).substr(kPrefix.size(), name.rfind('-') - kPrefix.size()))) {
      kill_all_in(entry.path());
      leaving_.push_back(entry.path());
    }
  }
}

std::string CgroupPool::available() {
  std::string kind;
  const auto parents = find_parents(kind);
  if (parents.empty()) return "";
  for (const auto& parent : parents) {
    const auto folder = parent + "/" + std::string(kPrefix) + this_owner() + "-check";
    if (mkdir(folder.c_str(), 0755) != 0) return "";
    rmdir(folder.c_str());
  }
  return kind;
}

CgroupPool::CgroupPool(int beside) : beside_(beside), kind_(available()) {
  if (kind_.empty()) return;
  std::string kind;
  parents_ = find_parents(kind);
  for (const auto& parent : parents_) sweep(parent);
}

// Files in memory count where they were written, for as long as anybody has them.
bool CgroupPool::holds_files(const Group& group) const {
  constexpr uint64_t kLittle = 4 << 20;  // of a maker, and of what the kernel has not taken back yet
  uint64_t bytes = 0;
  std::ifstream(group.folders.back() + (kind_ == "v2" ? "/memory.current" : "/memory.usage_in_bytes")) >> bytes;
  return bytes > kLittle;
}

// Its maker sees the socket close, and ends.
void CgroupPool::let_go(size_t index) {
  std::move(groups_[index].folders.begin(), groups_[index].folders.end(), std::back_inserter(leaving_));
  groups_.erase(groups_.begin() + static_cast<long>(index));
}

CgroupPool::Group* CgroupPool::free_group() {
  for (size_t i = 0; i < groups_.size();) {
    const auto& group = groups_[i];
    if (!is_idle(group)) {
      ++i;
    } else if (group.sealable && holds_files(group)) {
      let_go(i);
    } else {
      return &groups_[i];
    }
  }
  if (groups_.size() >= kMostGroups) return nullptr;
  Group group;
  for (const auto& parent : parents_) {
    const auto folder = parent + "/" + std::string(kPrefix) + this_owner() + "-" + std::to_string(made_);
    if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return nullptr;
    group.folders.push_back(folder);
  }
  ++made_;
  groups_.push_back(std::move(group));
  return &groups_.back();
}

bool CgroupPool::set(Group& group, const SandboxSpec& spec) {
  if (group.processes == spec.processes && group.memory_bytes == spec.memory_bytes) return true;
  const auto memory = std::to_string(spec.memory_bytes);
  const bool done =
      set_value(group.folders.front() + "/pids.max", std::to_string(spec.processes + beside_)) &&
      set_value(group.folders.back() + (kind_ == "v2" ? "/memory.max" : "/memory.limit_in_bytes"), memory);
  group.processes = spec.processes;
  group.memory_bytes = spec.memory_bytes;
  return done;
}

CgroupPool::Group* CgroupPool::take(const SandboxSpec& spec, Time now) {
  if (parents_.empty()) return nullptr;
  Group* group = free_group();
  if (!group) return nullptr;
  group->sealable = spec.sealable;
  use_.used(static_cast<size_t>(group - groups_.data()) + 1, now);
  return set(*group, spec) ? group : nullptr;
}

std::optional<Time> CgroupPool::tidy(Time now) {
  if (groups_.empty() && leaving_.empty()) return std::nullopt;
  if (now < next_exec_) return next_exec_;
  const size_t keep = std::max(kLeastGroups, use_.most(now));
  for (size_t i = groups_.size(); i-- > keep;) {
    if (!is_idle(groups_[i])) continue;
    let_go(i);
  }
  remove_leaving();
  next_exec_ = now + std::chrono::milliseconds(leaving_.empty() ? 1000 : 100);
  if (leaving_.empty() && groups_.size() <= kLeastGroups) return std::nullopt;
  return next_exec_;
}

void CgroupPool::remove_leaving() {
  std::erase_if(leaving_, [](const auto& folder) { return rmdir(folder.c_str()) == 0 || errno != EBUSY; });
}

void CgroupPool::enter(const Group& group, pid_t process) {
  for (const auto& folder : group.folders) set_value(folder + "/cgroup.procs", std::to_string(process));
}

void CgroupPool::give(Group& group, int pidfd) { group.user = FileDescriptor(fcntl(pidfd, F_DUPFD_CLOEXEC, 0)); }

void CgroupPool::clear() {
  for (auto& group : groups_) {
    // The sandboxes get their signal when the spawner ends; here it comes first, so that the folders are empty.
    for (const auto& folder : group.folders) kill_all_in(folder);
    if (group.user) {
      pollfd wait = {group.user.get(), POLLIN, 0};
      poll(&wait, 1, 1000);
    }
    for (const auto& folder : group.folders) {
      for (int attempt = 0; attempt < kMostAttempts && rmdir(folder.c_str()) != 0 && errno == EBUSY; ++attempt)
        usleep(1000);
    }
  }
  groups_.clear();
  for (int attempt = 0; attempt < kMostAttempts && !leaving_.empty(); ++attempt) {
    remove_leaving();
    if (!leaving_.empty()) usleep(1000);
  }
}

}  // namespace tandem::envs
