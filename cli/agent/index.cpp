// `tandem index`: a folder's index for codebase_search, made, kept up to date, searched and shared.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "envs/search/code_searcher.h"
#include "envs/search/shared_form.h"
#include "envs/tools/output.h"

namespace tandem::cli {
namespace {

constexpr double kTold = 0.5;  // seconds between two words of progress on a terminal; ten times that elsewhere

struct Options {
  std::string folder, model, out, query, share, reuse, key;
  std::vector<std::string> within;
  int limit = 10;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool json = false, rebuild = false;
};

struct Shared {
  envs::ShareKey key;
  envs::SharedForm form;
};

// The encoder is loaded when something is to be embedded, and not before.
class LazySearcher {
 public:
  explicit LazySearcher(const Options& options) : options_(options) {}
  Result<envs::CodeSearcher*> get() {
    if (!searcher_) searcher_ = TRY(envs::CodeSearcher::load(options_.model, options_.threads));
    return searcher_.get();
  }

 private:
  const Options& options_;
  std::unique_ptr<envs::CodeSearcher> searcher_;
};

class Progress {
 public:
  explicit Progress(const Clock& clock) : clock_(clock), began_(clock.now()), told_(began_) {}
  void tell(size_t done, size_t left) {
    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    const Time now = clock_.now();
    if (to_seconds(now - told_) < (terminal ? kTold : 10 * kTold)) return;
    told_ = now;
    shown_ = shown_ || terminal;
    const double rate = static_cast<double>(done) / std::max(1e-3, to_seconds(now - began_));
    fmt::print(stderr, "{}embedded {} pieces, {} left, {:.0f} a second, about {}{}", terminal ? "\r\033[K" : "", done,
               left, rate, format_seconds(static_cast<double>(left) / std::max(1e-3, rate)), terminal ? "" : "\n");
    std::fflush(stderr);
  }
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  const Clock& clock_;
  Time began_, told_;
  bool shown_ = false;
};

struct Report {
  envs::SourceChanges seen;  // what the last look at the folder said
  size_t added = 0, changed = 0, removed = 0, embedded = 0, reused = 0;
  double seconds = 0;
};

// Takes what has changed into index and file, a part at a time.
Result<Report> bring_up_to_date(const fs::path& folder, envs::CodeIndex& index, envs::IndexFile& file,
                                LazySearcher& searcher, const Shared* shared, const Clock& clock) {
  Report report;
  const Time began = clock.now();
  const auto before = index.tree();
  const auto known_before = index.known();
  size_t done = 0;
  Progress progress(clock);
  do {
    report.seen = TRY(envs::changes_of_sources(folder, index.known()));
    auto changes = std::move(report.seen);
    report.seen = {
        .left_out = changes.left_out, .secrets = changes.secrets, .files = changes.files, .more = changes.more};
    const auto applied = index.apply(std::move(changes));
    for (const auto& path : applied.removed) TRY(file.save(index, path));
    for (const auto& path : applied.changed) TRY(file.save(index, path));
    for (const auto& path : applied.restamped) TRY(file.save_stamp(index, path));
    if (index.waiting() == 0) continue;
    envs::CodeIndex::Embedding how;
    how.embed = [&](std::span<const std::string> texts) -> Result<std::vector<float>> {
      return TRY(searcher.get())->embed(texts);
    };
    if (shared) {
      how.find = [&](const Digest& piece) {
        const float* vector = shared->form.find(shared->key.name_of(piece));
        report.reused += vector ? 1 : 0;
        return vector;
      };
    }
    how.ended = [&](const std::string& path) { return file.save(index, path); };
    how.progress = [&](size_t computed) { progress.tell(done + computed, index.waiting()); };
    done += TRY(index.embed(how));
  } while (report.seen.more);
  TRY(file.finish(index));
  report.embedded = done;
  std::set<std::string> old;
  for (const auto& source : known_before) {
    if (source.left_out == envs::LeftOut::kNot) old.insert(source.path);
  }
  for (const auto& path : envs::changed_paths(before, index.tree())) {
    const auto* now = index.source(path);
    const bool is_there = now && now->left_out == envs::LeftOut::kNot;
    ++(!is_there ? report.removed : old.contains(path) ? report.changed : report.added);
  }
  report.seconds = to_seconds(clock.now() - began);
  return report;
}

std::string counts_of(const envs::SourceChanges& seen) {
  std::vector<std::string> words;
  for (size_t i = 1; i < envs::kLeftOutKinds; ++i) {
    if (seen.left_out[i] == 0) continue;
    const auto why = static_cast<envs::LeftOut>(i);
    auto word = fmt::format("{} {}", seen.left_out[i], to_string(why));
    if (why == envs::LeftOut::kSecret) {
      const bool more = seen.secrets.size() < seen.left_out[i];
      word += fmt::format(" ({}{})", envs::make_printable(join(seen.secrets, ", ")), more ? ", ..." : "");
    }
    words.push_back(std::move(word));
  }
  return words.empty() ? "nothing" : join(words, ", ");
}

void print_for_people(const fs::path& folder, const fs::path& path, const envs::CodeIndex& index, const Report& report,
                      std::FILE* out) {
  std::error_code error;
  fmt::print(out, "{}: {} files, {} pieces\n", folder.string(), index.files(), index.chunks());
  fmt::print(out, "  embedded   {} pieces in {}{}\n", report.embedded, format_seconds(report.seconds),
             report.reused > 0 ? fmt::format("; {} were shared", report.reused) : "");
  fmt::print(out, "  files      {} new, {} changed, {} gone since the last index\n", report.added, report.changed,
             report.removed);
  fmt::print(out, "  left out   {}\n", counts_of(report.seen));
  fmt::print(out, "  index      {} ({}), tree {}\n", path.string(), format_bytes(fs::file_size(path, error)),
             index.tree().root().hex());
}

Json json_of(const fs::path& folder, const fs::path& path, const envs::CodeIndex& index, const Report& report) {
  Json left_out = Json::object();
  for (size_t i = 1; i < envs::kLeftOutKinds; ++i)
    left_out[std::string(to_string(static_cast<envs::LeftOut>(i)))] = report.seen.left_out[i];
  return {{"folder", folder.string()},         {"index", path.string()},
          {"tree", index.tree().root().hex()}, {"files", index.files()},
          {"chunks", index.chunks()},          {"embedded", report.embedded},
          {"shared", report.reused},           {"new", report.added},
          {"changed", report.changed},         {"gone", report.removed},
          {"left_out", std::move(left_out)},   {"seconds", report.seconds}};
}

Result<Json> search(const Options& o, const fs::path& folder, const envs::CodeIndex& index, LazySearcher& searcher,
                    const Clock& clock) {
  auto* loaded = TRY(searcher.get());
  const Time began = clock.now();
  const auto hits = TRY(loaded->search(index, o.query, o.within, static_cast<size_t>(o.limit)));
  std::vector<envs::SourceLines> wanted;
  for (const auto& hit : hits) wanted.push_back({hit.path, hit.first_line, hit.last_line});
  const auto texts = envs::read_lines(folder, wanted);
  Json results = Json::array();
  for (size_t i = 0; i < hits.size(); ++i) {
    results.push_back({{"path", hits[i].path},
                       {"first_line", hits[i].first_line},
                       {"last_line", hits[i].last_line},
                       {"score", hits[i].score},
                       {"similarity", hits[i].similarity},
                       {"text", envs::make_printable(texts[i])}});
  }
  return Json{{"query", o.query}, {"seconds", to_seconds(clock.now() - began)}, {"results", std::move(results)}};
}

void print_results(const Json& results) {
  for (const auto& hit : results) {
    fmt::print("{}:{}-{} (score {:.4f}, similarity {:.2f})\n", envs::make_printable(hit["path"].get<std::string>()),
               hit["first_line"].get<int>(), hit["last_line"].get<int>(), hit["score"].get<double>(),
               hit["similarity"].get<double>());
    for (const auto line : split(trim(hit["text"].get_ref<const std::string&>()), '\n')) fmt::print("    {}\n", line);
  }
  if (results.empty()) fmt::print("nothing was found\n");
}

Result<envs::ShareKey> key_of(const Options& o, bool may_make) {
  std::error_code error;
  if (!may_make || fs::exists(o.key, error)) return envs::ShareKey::read(o.key);
  const auto key = envs::ShareKey::draw();
  TRY(key.write(o.key));
  return key;
}

Result<int> run(Options o) {
  std::error_code error;
  const auto folder = fs::canonical(o.folder, error);
  if (error || !fs::is_directory(folder, error))
    return fail(Status::invalid(fmt::format("\"{}\" is not a folder", o.folder)));
  const auto model = TRY(envs::index_model_of(o.model));
  const fs::path path = o.out.empty() ? TRY(envs::default_index_path(folder, model)) : fs::path(o.out);
  std::optional<Shared> shared;
  if (!o.reuse.empty()) {
    const auto bytes = TRY(read_file(o.reuse, uint64_t{1} << 32));
    auto form = envs::SharedForm::decode(bytes, model);
    if (!form) return fail(Status::invalid(form.error().message()).at(o.reuse));
    shared = Shared{TRY(key_of(o, false)), std::move(*form)};
  }
  if (o.rebuild) fs::remove(path, error);
  const SystemClock clock;
  LazySearcher searcher(o);
  envs::CodeIndex index(model.width);
  auto file = TRY(envs::IndexFile::open(path, model, index));
  const auto report = TRY(bring_up_to_date(folder, index, file, searcher, shared ? &*shared : nullptr, clock));
  if (!o.share.empty()) TRY(write_file(o.share, envs::SharedForm::of(index, model, TRY(key_of(o, true))).encode()));
  Json found;
  if (!o.query.empty()) found = TRY(search(o, folder, index, searcher, clock));
  if (o.json) {
    auto line = json_of(folder, path, index, report);
    if (!found.is_null()) line["search"] = std::move(found);
    fmt::print("{}\n", dump_json_line(line));
    return kDone;
  }
  // What was asked for goes to stdout alone; the rest is then beside it.
  print_for_people(folder, path, index, report, found.is_null() ? stdout : stderr);
  if (!found.is_null()) print_results(found["results"]);
  return kDone;
}

}  // namespace

Action add_index(CLI::App& command) {
  const auto o = std::make_shared<Options>();
  command.add_option("DIR", o->folder, "The folder")->required();
  command.add_option("--model", o->model, "Directory of a BERT sentence encoder (Hugging Face layout)")->required();
  command.add_option("--out", o->out,
                     "The index, a file; by default one below $XDG_CACHE_HOME/tandem/index (~/.cache), by folder and "
                     "model");
  command.add_flag("--rebuild", o->rebuild, "Build the index anew");
  auto* query = command.add_option("--query", o->query, "Search, and print the results");
  command.add_option("--in", o->within, "Only in this folder or file, relative to DIR; may be repeated")
      ->needs(query)
      ->allow_extra_args(false);
  command.add_option("--limit", o->limit, "Most results")
      ->needs(query)
      ->check(CLI::Range(1, 200))
      ->capture_default_str();
  auto* key = command.add_option("--key", o->key, "Key file of the shared form; created where it is missing");
  command.add_option("--share", o->share, "Write the form that may be shared: keyed hashes and vectors")->needs(key);
  command.add_option("--reuse", o->reuse, "Reuse vectors of a shared form")->needs(key);
  command.add_flag("--json", o->json, "Print one JSON object");
  command.add_option("--threads", o->threads, "Threads to compute with")->check(CLI::Range(1, 1024));
  command.footer(
      "What was indexed before is kept: only what has changed is embedded, and an interrupted index goes on.\n"
      "Left out are what .gitignore, .ignore and .tandemignore say, secrets, binaries, generated files and those\n"
      "beyond 1 MiB; links are not followed. Exit code 2: the index is of another model or version, or damaged.\n\n"
      "Examples:\n"
      "  tandem index . --model models/all-MiniLM-L6-v2\n"
      "  tandem index . --model models/all-MiniLM-L6-v2 --query \"Where are sessions refreshed?\" --in src\n"
      "  tandem index . --model models/all-MiniLM-L6-v2 --share team.shared --key ~/.config/tandem/team.key\n"
      "  tandem mcp --workspace . --encoder models/all-MiniLM-L6-v2");
  return [o] { return run(*o); };
}

}  // namespace tandem::cli
