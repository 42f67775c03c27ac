// Options of commands that offer codebase_search: an encoder, and the index of the folder.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "envs/search/code_searcher.h"

namespace tandem::cli {

struct SearchOptions {
  std::string encoder, index;
  bool given() const { return !encoder.empty(); }
};

// --encoder and --index.
void add_search_options(CLI::App& command, SearchOptions& options);

// Null where no encoder was given. Where the folder has no index a line on stderr says how to make one: without it each
// process begins anew.
Result<std::unique_ptr<envs::CodeSearcher>> searcher_of(const SearchOptions& options, const fs::path& folder);

}  // namespace tandem::cli
