// Benchmarks of searching code.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/random.h"
#include "bench/measure.h"
#include "envs/search/code_index.h"
#include "model/encoder.h"

namespace tandem::bench {

namespace {

constexpr int kFiles = 10'000;
constexpr int kFolders = 100;
constexpr int kPieceTokens = 256;  // of a piece of code, about, and the most that all-MiniLM-L6-v2 takes

std::vector<std::vector<model::TokenId>> random_texts(const model::EncoderConfig& config, size_t count) {
  Random random(1);
  const auto length = static_cast<size_t>(std::min(kPieceTokens, config.longest));
  std::vector<std::vector<model::TokenId>> texts(count, std::vector<model::TokenId>(length));
  for (auto& text : texts) {
    for (auto& token : text) token = static_cast<model::TokenId>(random.below(config.vocabulary));
  }
  return texts;
}

// A folder of small source files, gone with it.
class Project {
 public:
  Project() {
    std::string name = (fs::temp_directory_path() / "tandem-bench-XXXXXX").string();
    if (!mkdtemp(name.data())) abort();
    path_ = name;
    for (int i = 0; i < kFolders; ++i) fs::create_directory(path_ / fmt::format("folder{}", i));
  }
  ~Project() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Status write(int file, int revision) const {
    const auto path = path_ / fmt::format("folder{}/file{}.py", file % kFolders, file);
    std::string text = fmt::format("def work_{}(value, rate):\n", file);
    for (int line = 0; line < 12; ++line)
      text += fmt::format("    total_{} = value * rate + offset_{}_{}\n", line, file % 97, revision);
    std::FILE* out = std::fopen(path.c_str(), "w");
    if (!out) return Status::from_errno(path.string(), errno);
    std::fwrite(text.data(), 1, text.size(), out);
    std::fclose(out);
    return {};
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

Result<std::vector<Figure>> bench_search(const Settings& settings) {
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  const auto encoder = settings.model.empty() ? TRY(model::Encoder::random(default_encoder(), 1, stream))
                                              : TRY(model::Encoder::load(settings.model, stream));
  const auto& config = encoder.config();
  const auto width = static_cast<size_t>(config.width);
  std::vector<Figure> figures;

  auto of_fp32 = TRY(stream_of_fp32(settings.threads));
  const Limits limits = measure_limits(of_fp32);
  const auto texts = random_texts(config, 16);
  const double seconds =
      TRY(median_seconds(settings.seconds, [&]() -> Status { return TRY(encoder.embed(stream, texts)), Status{}; }));
  const auto tokens = static_cast<int>(texts[0].size());
  figures.push_back({fmt::format("embed pieces of {} tokens", tokens), static_cast<double>(texts.size()) / seconds,
                     "pieces/s", limits.flops / (token_flops(config, tokens) * tokens), "arithmetic"});

  // Random vectors stand for those of the first index, which takes what the figure above says.
  const Project project;
  for (int i = 0; i < kFiles; ++i) TRY(project.write(i, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // from then on a file's times vouch for it
  envs::CodeIndex index(config.width);
  Random random(2);
  const auto look = [&] { return envs::changes_of_sources(project.path(), index.known()); };
  for (bool more = true; more;) {
    auto changes = TRY(look());
    more = changes.more;
    index.apply(std::move(changes));
    TRY(index.embed({.embed = [&](std::span<const std::string> pieces) -> Result<std::vector<float>> {
      std::vector<float> vectors(pieces.size() * width);
      for (float& value : vectors) value = static_cast<float>(random.uniform() - 0.5);
      return vectors;
    }}));
  }
  const double looked = TRY(median_seconds(settings.seconds, [&]() -> Status { return TRY(look()), Status{}; }));
  figures.push_back({fmt::format("look at {} unchanged files", kFiles), 1000 * looked, "ms", 0, ""});
  int revision = 0;
  const double update = TRY(median_seconds(settings.seconds, [&]() -> Status {
    TRY(project.write(17, ++revision));
    index.apply(TRY(look()));
    return TRY(index.embed({.embed =
                                [&](std::span<const std::string> pieces) {
                                  return encoder.embed(stream, random_texts(config, pieces.size()));
                                }})),
           Status{};
  }));
  figures.push_back({fmt::format("update after an edit, {} files", kFiles), 1000 * update, "ms", 0, ""});
  const auto query = std::vector<float>(width, 0.05f);
  const auto words = envs::query_words("where is the total of the rate and the offset_3 kept");
  const double search = TRY(median_seconds(settings.seconds, [&]() -> Status {
    return index.search(query, words, {}, 10).empty() ? Status::internal("nothing was found") : Status();
  }));
  // What must be read at least: every vector once.
  const double least = 1000 * static_cast<double>(index.chunks() * width * sizeof(float)) / limits.bytes;
  figures.push_back({fmt::format("query, {} pieces", index.chunks()), 1000 * search, "ms", least, "memory"});
  return figures;
}

}  // namespace tandem::bench
