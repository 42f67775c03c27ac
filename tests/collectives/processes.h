// Ranks as real processes: each runs a function and tells what became of it.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "collectives/local.h"

namespace tandem::collectives {

constexpr std::chrono::milliseconds kEnough{20'000};

// A folder for the sockets of one group.
class GroupFolder {
 public:
  GroupFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "tandem-ranks-XXXXXX").string();
    if (::mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~GroupFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// What a rank says at its end; it starts after the function was called with its number.
using RankBody = std::function<std::string(int rank)>;

// Forks `ranks` processes and gives what each said, "" of one that was killed. None outlives the call.
class Ranks {
 public:
  Ranks(int ranks, const RankBody& body) {
    for (int rank = 0; rank < ranks; ++rank) {
      int ends[2];
      if (::pipe(ends) != 0) std::abort();
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]);
        const std::string said = body(rank);
        (void)write_all(ends[1], said, "pipe");
        ::_exit(0);
      }
      ::close(ends[1]);
      pids_.push_back(pid);
      said_.emplace_back(ends[0]);
    }
  }
  ~Ranks() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  void kill(int rank) { ::kill(pids_[rank], SIGKILL); }
  std::string said(int rank) {
    std::string text;
    const auto end = std::chrono::steady_clock::now() + 2 * kEnough;
    while (std::chrono::steady_clock::now() < end) {
      pollfd waiting{said_[rank].get(), POLLIN, 0};
      if (::poll(&waiting, 1, 100) <= 0) continue;
      char buffer[1 << 16];
      const ssize_t count = ::read(said_[rank].get(), buffer, sizeof buffer);
      if (count <= 0) return text;
      text.append(buffer, count);
    }
    return "no end in time";
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<FileDescriptor> said_;
};

}  // namespace tandem::collectives
