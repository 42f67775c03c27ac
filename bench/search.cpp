// Benchmarks of searching code.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>

#include "base/random.h"
#include "base/text.h"
#include "bench/measure.h"
#include "envs/backends/backends.h"
#include "envs/sandbox/capabilities.h"
#include "envs/search/searching_backend.h"
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

constexpr int kSandboxes = 1000, kRepositories = 20, kFilesOfOne = 200;

envs::Files repository(int number) {
  envs::Files files;
  for (int i = 0; i < kFilesOfOne; ++i) {
    std::string text = fmt::format("def work_{}_{}(value, rate):\n", number, i);
    for (int line = 0; line < 20; ++line)
      text += fmt::format("    total_{} = value * rate + offset_{}_{}\n", line, i, number);
    files[fmt::format("folder{}/file{}.py", i % 10, i)] = std::move(text);
  }
  return files;
}

double resident_bytes() {
  const auto statm = read_file("/proc/self/statm");
  const auto parts = statm ? split(*statm, ' ') : std::vector<std::string_view>();
  const double pages = parts.size() > 1 ? std::strtod(std::string(parts[1]).c_str(), nullptr) : 0;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Searches in many sandboxes that begin from few snapshots, each after a change of its own. Random vectors stand for
// those that are computed before a run begins.
Status add_sandboxes(const Settings& settings, std::vector<Figure>& figures) {
  const auto searcher = TRY(envs::CodeSearcher::load(settings.model, settings.threads));
  const Project scratch;
  {
    auto vectors = TRY(envs::PieceVectors::open(scratch.path() / "vectors", searcher->model()));
    std::vector<float> vector(static_cast<size_t>(searcher->model().width));
    Random random(3);
    for (int number = 0; number < kRepositories; ++number) {
      for (const auto& [path, content] : repository(number)) {
        for (const auto& piece : envs::pieces_of(path, content)) {
          for (float& value : vector) value = static_cast<float>(random.uniform() - 0.5);
          TRY(vectors.add(piece.digest, vector.data()));
        }
      }
    }
  }
  searcher->use(TRY(envs::PieceVectors::read(scratch.path() / "vectors", searcher->model())));
  const auto backend = TRY(envs::start_sandboxes("bench"));
  envs::SnapshotIndexes snapshots(*searcher);
  envs::SearchingBackend searching(*backend, *searcher, snapshots);
  std::vector<envs::Snapshot> repositories;
  for (int number = 0; number < kRepositories; ++number) {
    envs::SandboxSpec spec;
    spec.sealable = true;
    const auto made = TRY(backend->create(spec));
    TRY(made->put(repository(number)));
    repositories.push_back(TRY(envs::seal(*made)));
  }
  const Json query = {{"query", "where is the total of the rate and the offset kept"}};
  const auto ask = [&](envs::Sandbox& sandbox) -> Status {
    const auto outcome = TRY(sandbox.call(envs::kSearchTool, query));
    return outcome.ok ? Status() : Status::internal(outcome.output);
  };
  for (const auto& repository : repositories) TRY(ask(*TRY(envs::begin_again(searching, {}, repository))));
  std::vector<std::unique_ptr<envs::Sandbox>> sandboxes;
  for (int i = 0; i < kSandboxes; ++i) {
    sandboxes.push_back(TRY(envs::begin_again(searching, {}, repositories[static_cast<size_t>(i % kRepositories)])));
    TRY(sandboxes.back()->put({{"changed.py", fmt::format("def changed_{}():\n    return {}\n", i, i)}}));
  }
  const double resident = resident_bytes();
  const auto text = query.at("query").get<std::string>();
  const SystemClock clock;
  std::vector<double> asked, encoded;
  for (const auto& sandbox : sandboxes) {
    Time began = clock.now();
    TRY(ask(*sandbox));  // embeds the query and what the sandbox has changed
    asked.push_back(1e3 * to_seconds(clock.now() - began));
    began = clock.now();
    TRY(searcher->embed(std::span(&text, 1)));
    TRY(searcher->embed(std::array{std::string("changed.py\ndef changed():\n    return 1\n")}));
    encoded.push_back(1e3 * to_seconds(clock.now() - began));
  }
  const double grown = (resident_bytes() - resident) / kSandboxes / 1024;
  const auto middle = [](std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  const auto of = fmt::format(", {} sandboxes over {} repositories", kSandboxes, kRepositories);
  figures.push_back({"query after a change" + of, middle(asked, 0.5), "ms", 0, ""});
  figures.push_back({"the encoder's part of it", middle(encoded, 0.5), "ms", 0, ""});
  figures.push_back({"the rest of it", middle(asked, 0.5) - middle(encoded, 0.5), "ms", 0, ""});
  figures.push_back({"memory for the search, each sandbox", grown, "KB", 0, ""});
  return {};
}

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
  // Where there is an encoder of files: sandboxes have one.
  if (!settings.model.empty()) TRY(add_sandboxes(settings, figures));
  return figures;
}

}  // namespace tandem::bench
