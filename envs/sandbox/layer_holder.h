// The process that holds layers (layers.h), and makes what sandboxes on them begin with.
//
// It is the sandbox program in a namespace of mounts of its own, in which nothing is mounted but layers. It belongs to
// root, since only root's overlays let a folder of a layer be moved, as programs expect. It ends when nobody has it or
// any of its layers any more, or the program that started it is gone. Where it was killed its layers are gone, and what
// has begun on them goes on.
//
// Thread safety: all of it; who asks takes turns. Errors: kUnavailable where it is gone.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/layers.h"

namespace tandem::envs {

class LayerHolder : public std::enable_shared_from_this<LayerHolder> {
 public:
  // `label` is shown in its command line. kUnfit, with what is missing, where this machine or user cannot have one.
  static Result<std::shared_ptr<LayerHolder>> start(const std::string& label);
  ~LayerHolder();
  LayerHolder(const LayerHolder&) = delete;
  LayerHolder& operator=(const LayerHolder&) = delete;

  // Makes a layer of the trees of a sandbox that began empty and no longer writes.
  Result<std::shared_ptr<const FileLayer>> keep(FileTrees trees) { return keep(std::move(trees), false); }
  // A folder of the machine that nobody writes any more, as a layer. kUnfit, with the kernel's words, where no overlay
  // can begin on it.
  Result<std::shared_ptr<const FileLayer>> bind(FileTrees trees);

  // Has the trees of one sandbox that begins on layers, in `disk_bytes` less what they take, sent over a socket:
  // kWorked with the two trees and with the two that what it writes is in, or what went wrong. Waits for nothing. The
  // answer is what it writes: a layer when it does so no more.
  Result<std::shared_ptr<FileLayer>> begin_on(const FileLayers& layers, uint64_t disk_bytes,
                                              const FileDescriptor& socket);

  bool lost() const { return lost_; }

 private:
  friend class FileLayer;
  LayerHolder(FileDescriptor socket, int process) : socket_(std::move(socket)), process_(process) {}

  Result<std::shared_ptr<const FileLayer>> keep(FileTrees trees, bool is_bound);
  Status tell(const std::string& request, std::span<const int> descriptors);
  Status ask(const std::string& request, std::span<const int> descriptors);
  Status lose(const Status& why);
  void let_go(uint64_t number);
  uint64_t next_number();

  std::mutex mutex_;
  std::atomic<bool> lost_{false};
  uint64_t next_ = 1;
  FileDescriptor socket_;
  const int process_;
};

}  // namespace tandem::envs
