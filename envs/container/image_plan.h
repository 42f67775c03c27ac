// Preparation of an image for sandboxes, done once: /workspace, links, and the files of its working directory.
//
// The root of a sandbox is read-only, and only root of the image could change it. So a container of the image runs the
// program of sandboxes once, as root and without a network (`--tandem-prepare-image SOCKET`), and what it leaves
// becomes an image of its own. Nothing of the image is run for that.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/sandbox/files.h"

namespace tandem::envs {

struct ImagePlan {
  std::string
      folder;   // that the image works in; becomes a link to /workspace, its files go to kBeginning. May be empty
  Links links;  // made in place of whatever the image has at their paths
  friend bool operator==(const ImagePlan&, const ImagePlan&) = default;
};

extern const char* const kPrepareArgument;

// A file of a prepared image: the tree that workspaces begin with (envs/sandbox/file_tree.h). Not there where the image
// works in no folder of its own.
inline constexpr std::string_view kBeginning = "/.tandem-beginning";

// Whether an image that works in `folder` can have its workspace there: it is no folder of the system itself, nor below
// one that is mounted over.
bool can_be_workspace(const std::string& folder);

std::string encode(const ImagePlan& plan);
// kCorrupt where it is none.
Result<ImagePlan> decode_image_plan(std::string_view bytes);

// Carries it out below `root`. kExhausted where the folder holds more than a workspace begins with.
Status prepare_root(const std::filesystem::path& root, const ImagePlan& plan);

}  // namespace tandem::envs
