#include "envs/backends/checks.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/text.h"
#include "envs/backends/backends.h"
#include "envs/backends/choosing_backend.h"
#include "envs/container/engine.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/cgroup.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/layer_holder.h"
#include "envs/tools/linters.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Check namespaces() {
  Check check{"user namespaces"};
  const auto most = first_line("/proc/sys/user/max_user_namespaces");
  const auto debian = first_line("/proc/sys/kernel/unprivileged_userns_clone");
  const auto apparmor = first_line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
  check.found = most.empty() ? "not known to this kernel" : "up to " + most;
  if (most.empty() || most == "0") {
    check.mend = "sysctl user.max_user_namespaces=10000";
  } else if (geteuid() != 0 && debian == "0") {
    check.found = "only for root";
    check.mend = "sysctl kernel.unprivileged_userns_clone=1";
  } else if (geteuid() != 0 && apparmor == "1") {
    check.found = "restricted by AppArmor";
    check.mend = "sysctl kernel.apparmor_restrict_unprivileged_userns=0";
  }
  if (!check.mend.empty()) check.level = CheckLevel::kWarning;  // bubblewrap may have what we have not
  return check;
}

Check sandbox() {
  Check check{"sandbox"};
  std::string kind;
  const auto works = [&]() -> Status {
    const auto backend = TRY(start_sandboxes());
    kind = backend->kind();
    const auto sandbox = TRY(backend->create({.call_time_limit_s = 5}));
    const auto outcome = TRY(sandbox->call("run_terminal_cmd", {{"command", "echo works"}}));
    if (outcome.output != "works\n") return Status::unfit("a command printed \"" + outcome.output + "\"");
    return {};
  };
  if (const Status status = works(); status) {
    check.found = "made one by " + kind + " and ran a command in it";
    const auto own = start_sandboxes("", "namespaces");
    if (kind == "bubblewrap" && !own) {
      check.level = CheckLevel::kWarning;
      check.mend = "works, but takes longer; without bubblewrap: " + own.error().message();
    }
  } else {
    check.level = CheckLevel::kFailed;
    check.found = status.message();
    check.mend =
        "allow user namespaces, or apt-get install bubblewrap (a chroot cannot have either); in a container, allow new "
        "namespaces and mounts "
        "(docker: "
        "--security-opt seccomp=unconfined --security-opt systempaths=unconfined)";
  }
  return check;
}

Check cgroups() {
  Check check{"control groups"};
  const auto kind = CgroupPool::available();
  check.found = kind.empty() ? "none that we may make" : kind;
  if (kind.empty()) {
    check.level = CheckLevel::kWarning;
    check.mend = "limits hold for each process alone; run as root, or with systemd-run --user --scope -p Delegate=yes";
  }
  return check;
}

Check filter() {
  Check check{"seccomp"};
  const bool there = prctl(PR_GET_SECCOMP) >= 0 && !first_line("/proc/sys/kernel/seccomp/actions_avail").empty();
  check.found = there ? "filters are available" : "not in this kernel";
  if (!there) {
    check.level = CheckLevel::kFailed;
    check.mend = "use a kernel with CONFIG_SECCOMP_FILTER";
  }
  return check;
}

Check landlock() {
  Check check{"landlock"};
  const int version = landlock_version();
  check.found = version == 0 ? "none that can be used" : "version " + std::to_string(version);
  if (version == 0) {
    check.level = CheckLevel::kWarning;
    check.mend =
        "files are kept apart by mounts alone; for a second line use a kernel of 5.19 or later that has landlock in "
        "its "
        "list lsm=";
  }
  return check;
}

// Whether a sandbox can begin where another ended, without a copy.
Check overlay() {
  Check check{"overlayfs"};
  const auto works = []() -> Status {
    TRY(LayerHolder::start(""));
    const auto backend = TRY(start_sandboxes());
    const auto sandbox = TRY(backend->create({.sealable = true}));
    TRY(sandbox->put({{"word", "works\n"}}));
    const auto sealed = TRY(seal(*sandbox));
    const auto next = TRY(begin_again(*backend, {.call_time_limit_s = 5}, sealed));
    const auto outcome = TRY(next->call("run_terminal_cmd", {{"command", "cat word"}}));
    return outcome.output == "works\n" ? Status() : Status::unfit("a command printed \"" + outcome.output + "\"");
  };
  const Status status = works();
  check.found = status ? "a sandbox began with the files of another" : status.message();
  if (!status) {
    check.level = CheckLevel::kWarning;
    check.mend =
        "each episode has a copy of its files; they are shared where root makes the sandboxes and the kernel knows "
        "overlay (`modprobe overlay`)";
  }
  return check;
}

// For tasks that name an image; nothing else asks for one.
Check engine() {
  Check check{"container engine"};
  const auto place = engine_place("");
  if (place == kNoEngine) {
    check.found = "none, as " + std::string(kEngineVariable) + " has it";
  } else if (const auto found = Engine::find(place)) {
    check.found = found->version().name + " " + found->version().version + " at " + found->socket();
  } else {
    check.level = CheckLevel::kWarning;
    check.found = found.error().message();
    check.mend = "tasks that name an image need one: " + found.error().hint();
  }
  return check;
}

// Which languages read_lints can check here, and by what.
Check linters() {
  Check check{"linters"};
  std::string missing;
  for (const auto& language : lint_languages()) {
    const auto installed = std::find_if(language.linters.begin(), language.linters.end(),
                                        [](const auto& linter) { return !find_program(linter.program).empty(); });
    auto& list = installed == language.linters.end() ? missing : check.found;
    if (language.endings.empty()) continue;
    if (!list.empty()) list += ", ";
    list += std::string(language.name);
    if (installed != language.linters.end()) list += ": " + std::string(installed->name);
  }
  if (check.found.empty()) check.found = "none";
  if (!missing.empty()) {
    check.level = CheckLevel::kWarning;
    check.mend =
        "read_lints does not check " + missing + " here: apt-get install pyflakes3 clang shellcheck nodejs yamllint";
  }
  return check;
}

Check program(const char* name, CheckLevel level, const char* mend) {
  Check check{name};
  check.found = find_program(name);
  if (check.found.empty()) {
    check.found = "not installed";
    check.level = level;
    check.mend = mend;
  }
  return check;
}

}  // namespace

std::vector<Check> check_machine() {
  return {
      namespaces(),
      filter(),
      landlock(),
      sandbox(),
      cgroups(),
      overlay(),
      engine(),
      program("rg", CheckLevel::kWarning, "apt-get install ripgrep; until then grep stands in, and ignores no files"),
      program("python3", CheckLevel::kFailed, "apt-get install python3; it runs the tests of code tasks"),
      program(
          "bash", CheckLevel::kWarning,
          "apt-get install bash; until then commands are run by sh, which keeps no folder or variables between calls"),
      linters()};
}

}  // namespace tandem::envs
