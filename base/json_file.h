// Files of one JSON object with a format version, which the key "format" gives.
//
// A file without the key is of format 1: most files were written before they said it.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "base/json.h"

namespace tandem {

// The object with the key "format" before all others, as it is written into such a file.
Json with_format(const Json& object, int format);

// Reads a file of format `newest` or the one before, without its key "format". Any other format is kInvalid with the
// file, its format and those that are read; a file that holds no object is kCorrupt. Otherwise errors of read_file()
// and parse_json(), with the path.
Result<Json> read_json_file(const fs::path& path, int newest, uint64_t most_bytes = uint64_t{1} << 30);

}  // namespace tandem
