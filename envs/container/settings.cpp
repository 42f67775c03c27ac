#include "envs/container/settings.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "envs/container/image_plan.h"
#include "envs/sandbox/guest.h"

namespace tandem::envs {
namespace {

constexpr int kPreparationProcesses = 16;
constexpr uint64_t kPreparationMemory = uint64_t{1} << 30;

Json bind_of(const fs::path& source, const std::string& target, bool read_only) {
  return {{"Type", "bind"}, {"Source", source.string()}, {"Target", target}, {"ReadOnly", read_only}};
}

Json limit(const char* name, uint64_t value) { return {{"Name", name}, {"Soft", value}, {"Hard", value}}; }

// Where they are not said podman sets high ones, which not every root may. Of processes it is all of the user's that
// count here; those of a container are counted by PidsLimit.
Json limits_of_processes() {
  constexpr rlim_t kMostProcesses = 32768;
  rlimit ours{.rlim_cur = kMostProcesses, .rlim_max = kMostProcesses};
  getrlimit(RLIMIT_NPROC, &ours);
  return {limit("nofile", 1024), limit("core", 0), limit("nproc", std::min(ours.rlim_max, kMostProcesses))};
}

Json common(const std::string& image, const std::string& owner, Json command, Json capabilities) {
  return {{"Image", image},
          {"User", "0:0"},  // the program gives that up; what it may do as root is what follows
          {"Hostname", "tandem"},
          {"WorkingDir", "/"},
          {"Entrypoint", std::move(command)},
          {"Cmd", Json::array()},
          {"Healthcheck", {{"Test", Json::array({"NONE"})}}},
          {"Labels", {{std::string(kOwnerLabel), owner}}},
          {"HostConfig",
           {{"NetworkMode", "none"},
            {"CapDrop", Json::array({"ALL"})},
            {"CapAdd", std::move(capabilities)},
            // Of SELinux: what it confines is kept from the socket of this process.
            {"SecurityOpt", Json::array({"no-new-privileges", "label=disable"})},
            {"Init", false},
            {"Ulimits", limits_of_processes()}}}};
}

}  // namespace

Json settings_of(const SandboxSpec& spec, const std::string& image, const Rendezvous& rendezvous,
                 const std::string& owner, const std::string& label) {
  // To become an ordinary user, who owns the workspace, without a capability left even in the bounding set.
  auto settings =
      common(image, owner, {Rendezvous::kProgram, kGuestArgument, Rendezvous::kSocket, label.empty() ? "-" : label},
             {"CHOWN", "SETUID", "SETGID", "SETPCAP"});
  settings["Labels"]["tandem"] = label;
  auto& host = settings["HostConfig"];
  const auto tmpfs = [&](std::string_view mode) {
    return fmt::format("rw,exec,nosuid,nodev,size={},mode={}", spec.disk_bytes, mode);
  };
  host["AutoRemove"] = true;
  host["ReadonlyRootfs"] = true;
  host["Mounts"] = Json::array({bind_of(rendezvous.folder(), Rendezvous::kInside, true)});
  host["Tmpfs"] = {{"/tmp", tmpfs("1777")}};
  if (spec.workspace)
    host["Mounts"].push_back(bind_of(*spec.workspace, "/workspace", false));
  else
    host["Tmpfs"]["/workspace"] = tmpfs("0755");
  host["ShmSize"] = 16 << 20;
  host["PidsLimit"] = spec.processes;
  host["Memory"] = spec.memory_bytes;
  host["MemorySwap"] = spec.memory_bytes;  // of both together: no swap
  return settings;
}

Json settings_of_preparation(const std::string& image, const Rendezvous& rendezvous, const std::string& owner) {
  auto settings = common(image, owner, {Rendezvous::kProgram, kPrepareArgument, Rendezvous::kSocket}, {"DAC_OVERRIDE"});
  auto& host = settings["HostConfig"];
  host["Mounts"] = Json::array({bind_of(rendezvous.folder(), Rendezvous::kInside, true)});
  host["PidsLimit"] = kPreparationProcesses;
  host["Memory"] = kPreparationMemory;
  host["MemorySwap"] = kPreparationMemory;
  return settings;
}

}  // namespace tandem::envs
