// Confines a fresh process: file system view, privileges, system calls.
//
// Called in order by the first process of a sandbox, in namespaces of its own, before anything of a model is there.
// Errors name the step that failed; such a process must end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

inline constexpr unsigned kInnerId = 1000;  // user and group inside

struct User {
  unsigned id = kInnerId, group = kInnerId;
};
// The user of a sandbox outside of it: our own; where we are root, the owner of the folder in it, or kNobody.
inline constexpr unsigned kNobody = 65534;
User outer_user(const SandboxSpec& spec);
User outer_user(const std::optional<std::filesystem::path>& folder);

// A root of its own: /usr and what programs need of /etc read-only, an empty /tmp, /dev and /proc, the workspace at
// /workspace. Nothing else of the host can be named after it. `there`: the folder that the spec binds, as bound_folder
// has it, or the socket where workspace and /tmp come from (LayerHolder::begin_on), or the one that
// send_folder_below made, where that is so. `is_prepared`:
// what all sandboxes have is the root already, by prepare_root of the process that this one was cloned from. The answer
// is what will be written there, attached nowhere, where the spec asks for that.
Result<FileTrees> build_root(const SandboxSpec& spec, FileDescriptor there, bool is_prepared);

// In a process that sandboxes are cloned from, which must be root's: moves it into a namespace of mounts whose root is
// what all sandboxes have. They have a third of the work then.
Status prepare_root();

// Another number when files of the system that a prepared root holds have been replaced.
uint64_t state_of_system();

// A folder of the host, to be /workspace: attached nowhere, without devices and setuid programs. Without what is
// mounted in it, it is read-only, for a workspace over it.
enum class BoundMounts { kNo, kYes };
Result<FileDescriptor> bound_folder(const std::filesystem::path& path, BoundMounts mounts = BoundMounts::kYes);

// An empty /tmp for sandboxes that begin on a base, attached nowhere.
Result<FileDescriptor> empty_temporary(const User& owner);

// The loopback device up, where it is not; there is no other one.
Status raise_loopback();

// A socket that listens at kProxyPort of the loopback device, for a proxy that accepts from it outside (envs/network).
Result<FileDescriptor> listen_for_proxy();
// Variables that name the proxy, such as "http_proxy=http://127.0.0.1:3128"; loopback bypasses it.
std::vector<std::string> proxy_settings();

// Resource limits of every process; the number of processes is that of the whole sandbox, as it has its user namespace.
Status set_limits(const SandboxSpec& spec);

// The system calls that are allowed, as a filter program for the kernel. Made once, since it takes milliseconds.
Result<std::string> make_filter();

// The version of Landlock that can be used here, 0 where there is none or one that cannot move files between folders.
int landlock_version();

// Reading below /, writing in the workspace, the temporary folders and those that `links` lead to alone, no signal or
// abstract socket beyond this process's descendants; the kernel's own word on it, beside mounts and namespaces. Nothing
// where there is no Landlock. Needs no_new_privs.
Status restrict_files(const Links& links);

// Another user and group, with the capabilities that the process has, all of them effective.
Status become_user(const User& user);

// No capability, no way to gain one, Landlock, and the filter. The last step. kUnfit where capabilities are left that
// the process may not drop.
Status drop_privileges(const std::string& filter, const Links& links);

}  // namespace tandem::envs
