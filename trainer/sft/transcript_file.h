// Files of transcripts: JSON Lines, or one JSON document.
//
// A file whose first line is not a whole JSON value is read as one document, as `tandem agent --transcript` writes it.
// Bounded: a line or document takes 64 MiB at most, a file is read through once and never held whole.
#pragma once

#include <functional>

#include "base/file.h"
#include "base/json.h"

namespace tandem::trainer {

// Calls `visit` with every line that is not blank, its number from 1, and its value or what is wrong with it; an error
// of `visit` ends the reading. kInvalid where the file is empty, is no text of JSON at all, or cannot be read.
Status visit_transcripts(const fs::path& file, const std::function<Status(int line, Result<Json> value)>& visit);

}  // namespace tandem::trainer
