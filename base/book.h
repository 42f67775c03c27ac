// Names of entries at the top of a YAML file, for configs whose keys are chosen by their users.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tandem {

// 1 to 64 letters, digits, - and _; not "extends", which configs use.
bool is_entry_name(std::string_view name);

// `of`: what an entry is, for errors ("key"). A file that is not YAML has no names; the reader of the entries reports
// its errors. kInvalid for an invalid name, and for more than `most` names.
Result<std::vector<std::string>> entry_names_in(const fs::path& path, std::string_view of, size_t most,
                                                uint64_t most_bytes);

}  // namespace tandem
