// Answers codebase_search: the encoder, and the index that sandboxes of one folder begin from.
//
// It lives beside the sandboxes, once for all of them, and sees of each what the sandbox itself says: which files have
// changed, and lines of them. No path of a sandbox is ever opened here. What was embedded for one sandbox is remembered
// for the others, within a bound; what a sandbox is answered does not depend on that.
//
// Thread safety: any thread; calls take turns with the encoder. A view belongs to one caller at a time.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "envs/search/code_index.h"
#include "envs/search/index_file.h"
#include "envs/search/piece_vectors.h"
#include "envs/tools/tool.h"
#include "kernels/stream.h"
#include "model/text_encoder.h"

namespace tandem::envs {

inline constexpr size_t kEmbeddedByCall = 256;  // pieces; the others are compared by their words until the next call

// How to look at files that lie somewhere else.
struct SourceAccess {
  std::function<Result<SourceChanges>(std::span<const KnownSource> known)> changes;
  std::function<Result<std::vector<std::string>>(std::span<const SourceLines> wanted)> lines;
};

class CodeSearcher {
 public:
  // A Hugging Face directory of a sentence encoder.
  static Result<std::unique_ptr<CodeSearcher>> load(const fs::path& encoder, int threads);

  const IndexModel& model() const { return model_; }
  // Sets the state that views begin from. Call before the first search.
  void begin_from(CodeIndex index) { base_ = std::make_shared<const CodeIndex>(std::move(index)); }
  CodeIndex view() const { return CodeIndex::over(base_); }
  // Vectors that need not be computed, whatever pieces a sandbox has. Before the first call.
  void use(PieceVectors vectors) { vectors_ = std::move(vectors); }

  // Pieces that were computed since it was loaded; queries are none.
  uint64_t computed() const { return computed_; }

  // [text][width].
  Result<std::vector<float>> embed(std::span<const std::string> texts);

  // Takes changes into the view, and embeds up to `most` of its pieces that have no vectors yet. Returns how many.
  Result<size_t> update(CodeIndex& view, const SourceAccess& access, size_t most = kEmbeddedByCall);

  // The best pieces for a query in words. kInvalid for one that cannot be embedded.
  Result<std::vector<SearchHit>> search(const CodeIndex& view, const std::string& query,
                                        std::span<const std::string> folders, size_t limit);

  // One call of the tool, its arguments checked. An error is one of the access.
  Result<ToolOutcome> answer(CodeIndex& view, const SourceAccess& access, const ToolContext& context,
                             const Json& arguments);

 private:
  CodeSearcher(const IndexModel& model, model::TextEncoder encoder, kernels::Stream stream)
      : model_(model),
        base_(std::make_shared<CodeIndex>(model.width)),
        encoder_(std::move(encoder)),
        stream_(std::move(stream)) {}
  const float* remembered(const Digest& digest) const;
  void remember(const Digest& digest, const float* vector);

  const IndexModel model_;
  std::shared_ptr<const CodeIndex> base_;
  std::optional<PieceVectors> vectors_;
  std::atomic<uint64_t> computed_{0};
  std::mutex mutex_;  // of all that follows
  model::TextEncoder encoder_;
  kernels::Stream stream_;
  using Vectors = std::unordered_map<uint64_t, std::pair<Digest, std::vector<float>>>;
  Vectors recent_, older_;  // when the recent ones are too many they become the older ones, which are forgotten
};

// Id and width, without loading it.
Result<IndexModel> index_model_of(const fs::path& encoder);

}  // namespace tandem::envs
