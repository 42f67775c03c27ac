// A workspace over a folder of this machine: of layers where we are root, else an overlay that the sandbox itself makes
// in its own user namespace.
//
// The latter takes no root, but a kernel of 6.6 or later, whose tmpfs keeps an overlay's notes for ordinary users. A
// folder of the one below cannot be moved by one system call there (EXDEV); `mv` copies it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

// An overlay with these options, attached nowhere.
Result<FileDescriptor> detached_overlay(std::span<const std::pair<const char*, std::string>> options);

// Data for a workspace over a folder, sent to the first process of a sandbox: paths that are hidden, and the folder
// itself, where only we may bind it. The answer is the socket to pass on.
Result<FileDescriptor> send_folder_below(const FolderBelow& below);

// As root, in place of that: what layers are made of (LayerHolder). The hidden paths are a layer of their own.
Result<FileTrees> trees_of_folder(const FolderBelow& below);
Result<FileTrees> trees_of_hidden(const FolderBelow& below, const FileTrees& folder);

// In the first process.
struct FolderParts {
  FileDescriptor bound, hidden;       // the folder, attached nowhere; the paths
  std::vector<FileDescriptor> trees;  // or all of it made already, of layers, as LayerHolder::begin_on sends it
};
// While the folder can still be found by its path.
Result<FolderParts> receive_folder_below(const FolderBelow& below, const FileDescriptor& socket);
// The workspace, attached nowhere. `place`: a folder that is free to mount on meanwhile. kUnfit, with the kernel's
// words, where it cannot be had.
Result<FileDescriptor> workspace_over(const FolderParts& parts, uint64_t disk_bytes, const std::string& place);

}  // namespace tandem::envs
