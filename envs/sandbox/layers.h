// Files that sandboxes begin on without a copy: what others held, left where it was.
//
// A layer is the two trees that a sandbox worked in. Who begins on it sees them below files of its own, by overlay file
// systems, and writes none of them. It lives in memory (tmpfs) as long as somebody has it. Thread safety: immutable
// once it is shared.
#pragma once

#include <sys/statfs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::envs {

class LayerHolder;

// An overlay looks into one after the other. What would be on more of them is copied.
inline constexpr size_t kMostLayers = 8;

// /workspace and /tmp of a sandbox, as mounts of their own.
struct FileTrees {
  FileDescriptor workspace, temporary;
};

// What they take, files and folders alike.
struct LayerSize {
  uint64_t bytes = 0, entries = 0;
};
inline LayerSize size_of(const FileDescriptor& tree) {
  struct statfs info {};
  if (!tree || fstatfs(tree.get(), &info) != 0) return {};
  return {(info.f_blocks - info.f_bfree) * static_cast<uint64_t>(info.f_bsize), info.f_files - info.f_ffree};
}
inline LayerSize size_of(const FileTrees& trees) {
  const auto workspace = size_of(trees.workspace), temporary = size_of(trees.temporary);
  return {workspace.bytes + temporary.bytes, workspace.entries + temporary.entries};
}

class FileLayer {
 public:
  FileLayer(std::shared_ptr<LayerHolder> holder, uint64_t number) : holder_(std::move(holder)), number_(number) {}
  ~FileLayer();
  FileLayer(const FileLayer&) = delete;
  FileLayer& operator=(const FileLayer&) = delete;

  LayerHolder& holder() const { return *holder_; }
  uint64_t number() const { return number_; }

  // What it is in; before anybody else has it.
  void is_in(FileTrees trees) { trees_ = std::move(trees); }
  LayerSize size() const { return size_of(trees_); }

 private:
  const std::shared_ptr<LayerHolder> holder_;
  const uint64_t number_;
  FileTrees trees_;
};

struct FileLayers {
  std::vector<std::shared_ptr<const FileLayer>> all;  // the youngest first
  std::string content = {};  // a digest of what they hold together; empty where nobody knows it (CachingBackend)

  bool empty() const { return all.empty(); }
  LayerSize size() const {
    LayerSize sum;
    for (const auto& layer : all) sum = {sum.bytes + layer->size().bytes, sum.entries + layer->size().entries};
    return sum;
  }
};

}  // namespace tandem::envs
