// Folders that an admin names in a request: only those below folders that the server was started with.
//
// Thread safety: all functions from any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::serve {

// `folder` with all links followed. kInvalid, "is ...", where it is none, or not below one of `allowed`, which
// serve.candidate_folders names.
Result<fs::path> allowed_folder(const std::vector<fs::path>& allowed, const std::string& folder);

// kInvalid where one of `files` of the folder, those that are there, is a link to what is not below one of `allowed`.
Status check_links(const std::vector<fs::path>& allowed, const fs::path& folder, std::span<const char* const> files);

}  // namespace tandem::serve
