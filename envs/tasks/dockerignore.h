// Rules of .dockerignore, which exclude files from a build context.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "envs/tools/glob.h"

namespace tandem::envs {

// Value type. Patterns are those of Docker: of paths from the context's folder, `**` for any number of folders, each
// with all that is below; a later line with `!` brings back what earlier ones left out.
class DockerIgnore {
 public:
  explicit DockerIgnore(std::string_view text);
  bool leaves_out(std::string_view path) const;

 private:
  struct Line {
    Glob glob;
    bool brings_back = false;
  };
  std::vector<Line> lines_;
};

}  // namespace tandem::envs
