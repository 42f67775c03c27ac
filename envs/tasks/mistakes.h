// All mistakes of task files, collected. Values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

class Mistakes {
 public:
  // `line` counts from 1; 0 where there is none to name.
  void add(const std::string& file, int line, const std::string& what);
  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  // Returns the collected lines, and clears them.
  std::vector<std::string> take();
  // kInvalid with a line for each of them, the first hundred; ok where there are none.
  Status status() const;

 private:
  std::vector<std::string> lines_;
  size_t count_ = 0;
};

// Why a path cannot be one of the workspace, in words that follow it; empty where it can. It must be relative, in its
// shortest form and stay inside.
std::string why_no_workspace_path(std::string_view path);

// Why a word cannot name a kind of task; empty where it can: letters, digits, '.', '_' and '-', at most 64 of them.
std::string why_no_kind(std::string_view word);

}  // namespace tandem::envs
