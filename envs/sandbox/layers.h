// Layers: file trees of sealed sandboxes, on which others begin without a copy.
//
// A layer is the two trees that a sandbox worked in. A sandbox on a layer sees them below its own files through an
// overlay, and does not write them. A layer lives in memory (tmpfs) as long as it is referenced. Thread safety:
// immutable once it is shared.
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

// The memory that they take.
inline uint64_t bytes_in(const FileDescriptor& tree) {
  struct statfs info {};
  if (!tree || fstatfs(tree.get(), &info) != 0) return 0;
  return (info.f_blocks - info.f_bfree) * static_cast<uint64_t>(info.f_bsize);
}
inline uint64_t bytes_in(const FileTrees& trees) { return bytes_in(trees.workspace) + bytes_in(trees.temporary); }

class FileLayer {
 public:
  // `is_bound`: a folder of the machine, which takes none of a sandbox's memory.
  FileLayer(std::shared_ptr<LayerHolder> holder, uint64_t number, bool is_bound = false)
      : holder_(std::move(holder)), number_(number), is_bound_(is_bound) {}
  ~FileLayer();
  FileLayer(const FileLayer&) = delete;
  FileLayer& operator=(const FileLayer&) = delete;

  LayerHolder& holder() const { return *holder_; }
  uint64_t number() const { return number_; }

  // Sets the trees that it lies in; before it is shared.
  void is_in(FileTrees trees) { trees_ = std::move(trees); }
  uint64_t bytes() const { return is_bound_ ? 0 : bytes_in(trees_); }

 private:
  const std::shared_ptr<LayerHolder> holder_;
  const uint64_t number_;
  const bool is_bound_;
  FileTrees trees_;
};

struct FileLayers {
  std::vector<std::shared_ptr<const FileLayer>> all;  // the youngest first
  std::string content = {};  // a digest of what they hold together; empty where nobody knows it (CachingBackend)

  bool empty() const { return all.empty(); }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& layer : all) sum += layer->bytes();
    return sum;
  }
};

}  // namespace tandem::envs
