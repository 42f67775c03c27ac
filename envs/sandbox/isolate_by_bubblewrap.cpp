// Bubblewrap makes namespaces and root; the first process in them is a guest (guest.h).
//
// It is for machines where we may make no namespaces and it may, by a profile of AppArmor or as a program of root.
// Where it has a user namespace, that is as we make it ourselves. Where even it has none, it must be started by root or
// be a program of root, and ids are the same inside as outside.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/guest.h"
#include "envs/sandbox/isolation.h"
#include "envs/sandbox/machine_files.h"
#include "envs/sandbox/process_fields.h"
#include "envs/sandbox/process_handle.h"
#include "envs/sandbox/root_contents.h"

namespace tandem::envs {
namespace {

constexpr const char* kBubblewrap = "/usr/bin/bwrap";
constexpr int kSeconds = 10;  // in which it must have made a sandbox's first process

// Descriptors of the new process, by number.
enum Streams : int { kErrors = 2, kSocket, kTellsFirst, kGo, kProgram, kFiles };

// What /proc has beside processes and the machine's figures (memory, load): ways to set the kernel, and what it tells
// of itself.
constexpr std::array kMaskedOfProc = {"acpi",     "asound",        "bus",           "driver",      "fs",
                                      "irq",      "scsi",          "sys",           "config.gz",   "interrupts",
                                      "iomem",    "ioports",       "kallsyms",      "kcore",       "key-users",
                                      "keys",     "kmsg",          "latency_stats", "modules",     "sched_debug",
                                      "slabinfo", "sysrq-trigger", "timer_list",    "timer_stats", "vmallocinfo"};

class Arguments {
 public:
  void add(std::initializer_list<std::string> words) { words_.insert(words_.end(), words); }

  // What is there on the host, read-only; a link as one.
  void show(const std::string& path) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return;
    if (fs::is_symlink(path, error)) {
      add({"--symlink", fs::read_symlink(path, error), path});
    } else {
      add({"--ro-bind", path, path});
    }
  }

  // Never returns where that can be done.
  void run() {
    std::vector<char*> argv;
    for (auto& word : words_) argv.push_back(word.data());
    argv.push_back(nullptr);
    char* no_environment[] = {nullptr};
    execve(argv[0], argv.data(), no_environment);
  }

 private:
  std::vector<std::string> words_;
};

pid_t parent_of(pid_t process) {
  const auto fields = process_fields(std::to_string(process));
  return fields.size() > 1 ? atoi(fields[1].c_str()) : 0;
}

class BubblewrapIsolation final : public Isolation {
 public:
  BubblewrapIsolation(std::string filter, std::string label) : filter_(std::move(filter)), label_(std::move(label)) {}

  // How it works here, if it does.
  Status find() {
    struct stat info {};
    if (stat(kBubblewrap, &info) != 0) return Status::unfit(std::string(kBubblewrap) + " is not installed");
    of_root_ = (info.st_mode & S_ISUID) && info.st_uid == 0 && geteuid() != 0;
    const Status with_users = try_out_again();
    if (with_users || with_users.code() == Code::kUnavailable) return with_users;
    has_users_ = false;
    if ((of_root_ || geteuid() == 0) && try_out_again()) return {};
    return with_users;
  }

  uint64_t clone_flags() const override { return 0; }
  bool speaks() const override { return true; }
  int processes_beside() const override { return 2; }  // the group's maker, and bubblewrap

  [[noreturn]] void begin(const SandboxSpec& spec, const InnerEnds& ends) override {
    become_bubblewrap(spec, ends,
                      {"/proc/self/fd/" + std::to_string(kProgram), kGuestArgument, std::to_string(kSocket), label_});
  }

  // Bubblewrap says which process it is, which waits for the word to go on.
  Result<NewProcess> first_process(NewProcess made, int pipe) override {
    const Time deadline = SystemClock().now() + std::chrono::seconds(kSeconds);
    std::string text;
    while (text.find('}') == std::string::npos) {
      pollfd waits[] = {{pipe, POLLIN, 0}, {made.handle.get(), POLLIN, 0}};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SystemClock().now()).count();
      if (left <= 0 || poll(waits, 2, static_cast<int>(left)) == 0)
        return fail(Status::deadline("bubblewrap does not answer"));
      char buffer[512];
      const ssize_t size = waits[0].revents == 0 ? 0 : read(pipe, buffer, sizeof buffer);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0 || text.size() > 4096) return fail(killed(made));
      text.append(buffer, static_cast<size_t>(size));
    }
    const auto info = TRY(parse_json(text));
    const auto process = info.is_object() ? info.value("child-pid", 0) : 0;
    NewProcess first{process, FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)))};
    if (!first.handle || parent_of(process) != made.process) return fail(killed(made));
    return first;
  }

  Status let_go(const NewProcess& first, const SandboxSpec& spec, int socket, int go) override {
    FirstProcess wanted{spec, filter_};
    if (!has_users_) {
      // Then the kernel counts every process of the user, not those of the sandbox alone.
      wanted.spec.processes += static_cast<int>(processes_of(outer_user(spec.workspace).id));
    }
    Status gone = send_to_guest(socket, wanted, SystemClock().now() + std::chrono::seconds(kSeconds));
    if (gone) gone = write_all(go, "g", "sandbox");
    if (!gone) syscall(SYS_pidfd_send_signal, first.handle.get(), SIGKILL, nullptr, 0);
    return gone;
  }

 private:
  static Status killed(const NewProcess& bubblewrap) {
    kill(-bubblewrap.process, SIGKILL);
    return Status::unavailable("bubblewrap was killed while it made a sandbox");
  }

  // In a process of its own: bubblewrap, and then, inside, the program of `words`.
  [[noreturn]] void become_bubblewrap(const SandboxSpec& spec, const InnerEnds& ends,
                                      std::initializer_list<std::string> words) const {
    prctl(PR_SET_NAME, "tandem-bwrap");
    for (const int number : {SIGCHLD, SIGPIPE}) signal(number, SIG_DFL);  // it waits for its child
    const User outside = outer_user(spec.workspace);
    const bool root = geteuid() == 0;
    if (root && has_users_) {
      // Bubblewrap needs no more than who it serves. Where there is no such user we are an ordinary one ourselves.
      if (setresgid(outside.group, outside.group, outside.group) == 0 &&
          setresuid(outside.id, outside.id, outside.id) != 0)
        _exit(1);
    }
    // Its child waits for it before anything else, and has no signal at its end until it is the guest. So nobody may
    // end it unseen before it says by itself that it wants to; and all that it has begun can be found by its group.
    setpgid(0, 0);
    std::vector<std::pair<std::string, std::string>> files;
    for (auto& [name, text] : etc_files(has_users_ ? User() : outside)) files.emplace_back("/etc/" + name, text);
    for (auto& [name, text] : report_files()) files.emplace_back(std::string(kReportFolder) + "/" + name, text);
    for (auto& [path, text] : processor_files()) files.emplace_back(path, text);
    for (auto& [name, text] : machine_files(spec.memory_bytes)) files.emplace_back("/proc/" + name, text);
    if (!place_streams(ends, files)) _exit(1);

    Arguments arguments;
    arguments.add({kBubblewrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
                   "--unshare-cgroup-try", "--as-pid-1", "--die-with-parent", "--new-session", "--hostname", "tandem",
                   "--cap-drop", "ALL"});
    if (has_users_) {
      const auto id = std::to_string(kInnerId);
      arguments.add({"--unshare-user", "--uid", id, "--gid", id});
      if (!of_root_)
        arguments.add({"--disable-userns"});  // as a program of root it cannot; the filter refuses them too
    } else if (root) {
      // With which the guest becomes another user, and drops what is left.
      for (const char* name : {"CAP_CHOWN", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP"})
        arguments.add({"--cap-add", name});
    }
    if (ends.go >= 0) {
      arguments.add({"--info-fd", std::to_string(kTellsFirst), "--block-fd", std::to_string(kGo)});
    }
    add_root(arguments, spec, files);
    arguments.add({"--"});
    arguments.add(words);
    arguments.run();
    const auto why = std::string(kBubblewrap) + ": " + strerror(errno);
    (void)write_all(kErrors, why, "errors").ok();
    _exit(127);
  }

  void add_root(Arguments& arguments, const SandboxSpec& spec,
                const std::vector<std::pair<std::string, std::string>>& files) const {
    const auto add_tmpfs = [&](const std::string& path, const char* mode, uint64_t bytes) {
      arguments.add({"--perms", mode});
      if (!of_root_) arguments.add({"--size", std::to_string(bytes)});  // as a program of root it refuses that
      arguments.add({"--tmpfs", path});
    };
    for (const char* folder : kShownFolders) arguments.show(folder);
    const auto add_files = [&](std::string_view folder, const char* how) {
      for (size_t i = 0; i < files.size(); ++i) {
        if (files[i].first.starts_with(folder))
          arguments.add({"--perms", files[i].first.ends_with("/bin/python3") ? "0755" : "0644", how,
                         std::to_string(kFiles + i), files[i].first});
      }
    };
    add_files("/etc/", "--file");
    add_files("/sys/", "--file");
    for (const auto& place : python_starts())
      arguments.add({"--symlink", std::string(kReportFolder) + "/sitecustomize.py", place});
    for (const auto& name : shown_of_etc()) arguments.show("/etc/" + name);
    arguments.add({"--symlink", "/proc/self/mounts", "/etc/mtab", "--dev", "/dev"});
    add_tmpfs("/dev/shm", "1777", kSharedMemoryBytes);
    add_tmpfs("/tmp", "1777", spec.disk_bytes);
    arguments.add({"--proc", "/proc"});
    for (const std::string name : kMaskedOfProc) {
      std::error_code error;
      const auto path = "/proc/" + name;
      const auto kind = fs::status(path, error).type();
      if (kind == fs::file_type::directory) {
        arguments.add({"--tmpfs", path, "--remount-ro", path});
      } else if (kind != fs::file_type::not_found) {
        arguments.add({"--ro-bind", "/dev/null", path});
      }
    }
    add_files("/proc/", "--ro-bind-data");
    if (spec.workspace) {
      arguments.add({"--bind", spec.workspace->string(), "/workspace"});
    } else {
      add_tmpfs("/workspace", "0755", spec.disk_bytes);
    }
    const bool names_sources = std::any_of(spec.links.begin(), spec.links.end(),
                                           [](const auto& link) { return link.first.starts_with("/usr/src/"); });
    if (names_sources) add_tmpfs("/usr/src", "0755", kSharedMemoryBytes);
    for (const auto& [path, target] : spec.links) arguments.add({"--symlink", target, path});
    arguments.add({"--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"});
  }

  // Each at its number, and no other descriptor open.
  static bool place_streams(const InnerEnds& ends, const std::vector<std::pair<std::string, std::string>>& files) {
    std::vector<int> sources;
    const auto take = [&](int descriptor) {
      constexpr int kBeyond = 64;  // where none is overwritten before it has found its place
      sources.push_back(fcntl(descriptor, F_DUPFD_CLOEXEC, kBeyond));
      return sources.back() >= 0;
    };
    const auto take_all = [&] {
      const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
      const FileDescriptor program(open("/proc/self/exe", O_PATH | O_CLOEXEC));
      for (int stream : {-1, -1, ends.errors, ends.socket, ends.first, ends.go, program.get()}) {
        if (!take(stream < 0 ? null.get() : stream)) return false;
      }
      for (const auto& [name, text] : files) {
        const FileDescriptor file(memfd_create(name.c_str(), MFD_CLOEXEC));
        if (!file || !write_all(file.get(), text, name) || lseek(file.get(), 0, SEEK_SET) != 0 || !take(file.get()))
          return false;
      }
      return true;
    };
    if (!take_all()) return false;
    int number = 0;
    for (const int source : sources) dup2(source, number++);
    return syscall(SYS_close_range, static_cast<unsigned>(number), ~0u, 0u) == 0;
  }

  // Whoever kills one trial says nothing of the machine.
  Status try_out_again() const {
    constexpr int kMostTrials = 5;
    Status tried = try_out();
    for (int i = 1; i < kMostTrials && !tried && tried.code() == Code::kUnavailable; ++i) tried = try_out();
    return tried;
  }

  // Whether a program can be run in such a sandbox; kUnfit with what bubblewrap says where it cannot.
  Status try_out() const {
    const FileDescriptor errors(memfd_create("tandem-errors", MFD_CLOEXEC));
    int pidfd = -1;
    const auto process =
        static_cast<pid_t>(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &pidfd, nullptr, nullptr));
    if (process < 0) return Status::from_errno("fork", errno);
    if (process == 0) become_bubblewrap({}, {.errors = errors.get()}, {"/usr/bin/true"});
    const FileDescriptor handle(pidfd);
    pollfd wait = {pidfd, POLLIN, 0};
    if (poll(&wait, 1, kSeconds * 1000) <= 0) kill(process, SIGKILL);
    int state = -1;
    waitpid(process, &state, 0);
    if (state == 0) return {};
    const auto words = written_to(errors);
    // Nothing is said by that of the machine; bubblewrap itself ends with 128 and a signal that has ended its program.
    if (words.empty() && (WIFSIGNALED(state) || WEXITSTATUS(state) > 128))
      return Status::unavailable("bubblewrap was killed while it was tried out");
    return Status::unfit(words.empty() ? "bubblewrap does not work here" : words);
  }

  const std::string filter_, label_;
  bool of_root_ = false;   // and started by somebody else
  bool has_users_ = true;  // user namespaces
};

}  // namespace

Result<std::unique_ptr<Isolation>> isolate_by_bubblewrap(std::string filter, std::string label) {
  auto isolation = std::make_unique<BubblewrapIsolation>(std::move(filter), std::move(label));
  TRY(isolation->find());
  return isolation;
}

}  // namespace tandem::envs
