// Git LFS leaves a short text in place of a file that was not fetched.
//
// Thread safety: any thread.
#pragma once

#include <string_view>

#include "base/status.h"

namespace tandem {

// kInvalid where `content` is such a text.
Status check_not_lfs_pointer(std::string_view content);

}  // namespace tandem
