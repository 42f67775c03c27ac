// Every decoder of foreign bytes, as a function of bytes: it may refuse them, and must neither crash, hang, read beyond
// them nor take memory that they only claim to need. Kernels, too: their arguments as bytes choose them.
//
// The same list is run by fuzz_test.cpp (seeds and a fixed set of mutants, in every test run) and by libFuzzer
// (scripts/fuzz, for as long as one likes). A new decoder is a line in one of the lists.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tandem::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::string_view bytes);
  std::vector<std::string> (*seeds)();  // well-formed inputs, to begin from
};

std::span<const Target> base_targets();
std::span<const Target> kernels_targets();
std::span<const Target> model_targets();
std::span<const Target> envs_targets();
std::span<const Target> packages_targets();
std::span<const Target> tasks_targets();
std::span<const Target> rollout_targets();
std::span<const Target> trainer_targets();
std::span<const Target> serve_targets();
std::span<const Target> gateway_targets();
std::span<const Target> eval_targets();

// All of them.
std::vector<Target> targets();

// A folder of this process, gone with it; below TMPDIR, for a process that is ended before its end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  const fs::path& path() const { return path_; }
  void put(const std::string& name, std::string_view bytes);
  void clear();

 private:
  fs::path path_;
};

// `bytes` as a file that is nowhere on disk. The path is good as long as this is.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace tandem::fuzz
