#include "cli/agent/search_options.h"

#include <fmt/format.h>

#include <thread>

namespace tandem::cli {

void add_search_options(CLI::App& command, SearchOptions& options) {
  auto* encoder =
      command.add_option("--encoder", options.encoder, "Directory of a sentence encoder, which codebase_search needs");
  command
      .add_option("--index", options.index, "Index of the folder, made by `tandem index`; its default place by default")
      ->needs(encoder);
}

Result<std::unique_ptr<envs::CodeSearcher>> searcher_of(const SearchOptions& options, const fs::path& folder) {
  if (!options.given()) return nullptr;
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  auto searcher = envs::CodeSearcher::load(options.encoder, threads);
  if (!searcher) return fail(std::move(searcher).error().at("--encoder"));
  const auto path =
      options.index.empty() ? envs::default_index_path(folder, (*searcher)->model()) : Result<fs::path>(options.index);
  auto index = path ? envs::read_index(*path, (*searcher)->model()) : fail(path.error());
  if (index) {
    (*searcher)->begin_from(std::move(*index));
  } else if (index.error().code() == Code::kNotFound && options.index.empty()) {
    fmt::print(stderr, "note: {} has no index yet; `tandem index {} --model {}` makes one\n", folder.string(),
               folder.string(), options.encoder);
  } else {
    return fail(std::move(index).error());
  }
  return std::move(*searcher);
}

}  // namespace tandem::cli
