// A digest of a model directory: independent of its path, different when its files are written anew.
#pragma once

#include <string>

#include "base/file.h"

namespace tandem::model {

// Covers names and bytes of weights, configs, tokenizer and templates; 64 hexadecimal digits. Reads all of them.
Result<std::string> digest_of_model(const fs::path& directory);

}  // namespace tandem::model
