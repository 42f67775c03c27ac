// Python's own HTTP server on a port that the system picks, with the files of a folder; gone with this.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace tandem::envs {

class LocalServer {
 public:
  explicit LocalServer(const std::filesystem::path& folder, const std::string& address = "127.0.0.2")
      : address_(address) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    const FileDescriptor reader(ends[0]);
    FileDescriptor writer(ends[1]);
    process_ = fork();
    if (process_ == 0) {
      dup2(writer.get(), 1);
      dup2(open("/dev/null", O_WRONLY), 2);
      execlp("python3", "python3", "-u", "-m", "http.server", "0", "--bind", address.c_str(), "--directory",
             folder.c_str(), nullptr);
      _exit(127);
    }
    writer.reset();
    // "Serving HTTP on 127.0.0.2 port 41234 (http://..."
    std::string said;
    for (char c = 0; c != '\n' && read(reader.get(), &c, 1) == 1;) said += c;
    const auto at = said.find(" port ");
    port_ = at == std::string::npos ? "" : said.substr(at + 6, said.find(' ', at + 6) - at - 6);
  }
  ~LocalServer() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  LocalServer(const LocalServer&) = delete;

  const std::string& port() const { return port_; }
  std::string host() const { return address_ + ":" + port_; }

 private:
  const std::string address_;
  pid_t process_ = -1;
  std::string port_;
};

}  // namespace tandem::envs
