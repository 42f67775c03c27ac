// What a model directory holds, in one name: the same wherever its files lie, another when they are written anew.
#pragma once

#include <string>

#include "base/file.h"

namespace tandem::model {

// Of the weights, configs, tokenizer and templates in it, by their names and bytes: 64 hexadecimal digits. Reads all of
// them.
Result<std::string> digest_of_model(const fs::path& directory);

}  // namespace tandem::model
