// The contents of a sandbox's root, for all backends.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "envs/sandbox/confine.h"
#include "envs/sandbox/report_program.h"

namespace tandem::envs {

// Folders of the host that are mounted read-only, or links where they are links there.
inline constexpr std::array kShownFolders = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
// What the dynamic linker and chosen programs need (awk, editors, Java, certificates, names of ports and of kinds of
// files). Of /etc/ssl what is public alone.
inline std::vector<std::string> shown_of_etc() {
  std::vector<std::string> names = {
      "ld.so.cache",    "ld.so.conf", "ld.so.conf.d", "alternatives",    "localtime",
      "services",       "protocols",  "rpc",          "mime.types",      "magic",
      "magic.mime",     "inputrc",    "ssl/certs",    "ssl/openssl.cnf", "os-release",
      "debian_version", "fonts",      "perl",         "python3",         "ca-certificates.conf"};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/etc", error)) {
    if (auto name = entry.path().filename().string(); name.starts_with("java-")) names.push_back(std::move(name));
  }
  return names;
}
// Where in /etc the system's Pythons have what they run at their start: links of Debian's packages lead there. They do
// so whatever variables and options say, -S aside.
inline std::vector<std::string> python_starts() {
  std::vector<std::string> starts;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/usr/lib", error)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    auto target = std::filesystem::read_symlink(entry.path() / "sitecustomize.py", error).string();
    if (!error && target.starts_with("/etc/python3.")) starts.push_back(std::move(target));
  }
  return starts;
}
inline constexpr std::array kDevices = {"null", "zero", "full", "random", "urandom", "tty"};
inline constexpr std::array kDeviceLinks = {std::pair{"fd", "/proc/self/fd"}, std::pair{"stdin", "/proc/self/fd/0"},
                                            std::pair{"stdout", "/proc/self/fd/1"},
                                            std::pair{"stderr", "/proc/self/fd/2"}, std::pair{"ptmx", "pts/ptmx"}};
inline constexpr uint64_t kSharedMemoryBytes = 16 << 20;  // of /dev/shm

// The files of /etc, and their texts, for the user whom programs run as.
inline std::vector<std::pair<std::string, std::string>> etc_files(const User& user) {
  const auto id = std::to_string(user.id), group = std::to_string(user.group);
  return {{"passwd", "root:x:0:0:root:/:/bin/false\nagent:x:" + id + ":" + group + ":agent:" + kHome + ":/bin/bash\n"},
          {"group", "root:x:0:\nagent:x:" + group + ":\n"},
          {"hosts", "127.0.0.1 localhost tandem\n"},
          {"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"}};
}

}  // namespace tandem::envs
