// Descriptions of task bases in `tandem tasks`.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "envs/tasks/task_base.h"

namespace tandem::cli {

// Describes a base on this machine; empty where it is not unpacked here yet.
std::optional<envs::BaseTree> unpacked(const envs::TaskBase& base);
// {kind, source, commit, digest, files, bytes}; null where it has none. Files and bytes are null until it is unpacked
// on this machine, which nothing here does.
Json json_of(const std::optional<envs::TaskBase>& base);
// "the commit 1a2b of /srv/linux.git (94,000 files, 1.2 GB)".
std::string words_of(const envs::TaskBase& base);

}  // namespace tandem::cli
