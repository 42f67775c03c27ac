#include "envs/search/index_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "envs/sandbox/fields.h"
#include "envs/search/chunks.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kFormat = "tandem index";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMostWaste = 1 << 20;  // bytes of records that count no more, beside as many as do
constexpr const char* kRebuild = "--rebuild makes it anew";

enum class Kind : uint64_t { kFile, kRemoved, kStamp };

std::string header_of(const IndexModel& model) { return search_header(kFormat, kVersion, model); }

Status check_header(std::string_view bytes, const IndexModel& model) {
  FieldReader fields(bytes);
  const auto format = fields.text();
  if (!format || *format != kFormat) return Status::invalid("is no index of tandem");
  const uint64_t version = TRY(fields.number()), cutting = TRY(fields.number());
  if (version != kVersion || cutting != kChunkVersion) {
    return Status::invalid(fmt::format("is an index of version {}.{}, and this is {}.{}", version, cutting, kVersion,
                                       kChunkVersion))
        .hint(kRebuild);
  }
  const Digest id = TRY(fields.digest());
  const uint64_t width = TRY(fields.number());
  if (id == model.id && width == static_cast<uint64_t>(model.width)) return {};
  return Status::invalid(fmt::format("is an index of another model: {} of width {}, and this one is {} of width {}",
                                     id.hex().substr(0, 12), width, model.id.hex().substr(0, 12), model.width))
      .hint(kRebuild);
}

template <typename Element>
void put_array(std::string& bytes, const std::vector<Element>& elements) {
  put_text(bytes, {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(Element)});
}

template <typename Element>
Result<std::vector<Element>> read_array(FieldReader& fields) {
  const auto bytes = TRY(fields.text());
  if (bytes.size() % sizeof(Element) != 0) return fail(Status::corrupt("an array is cut within an element"));
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  if (!elements.empty()) memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

// A chunk as it lies in a record.
struct StoredChunk {
  uint64_t low, high;
  uint32_t first_line, last_line, word_count, unused;
};
static_assert(sizeof(StoredChunk) == 32);

std::string record_of(const KnownSource& source, const IndexedFile* file) {
  std::string bytes;
  put_number(bytes, static_cast<uint64_t>(Kind::kFile));
  put_text(bytes, source.path);
  for (const uint64_t number :
       {source.digest.low, source.digest.high, source.stamp, static_cast<uint64_t>(source.left_out)})
    put_number(bytes, number);
  put_number(bytes, file ? 1 : 0);
  if (!file) return bytes;
  std::vector<StoredChunk> chunks;
  for (const auto& c : file->chunks)
    chunks.push_back({c.text.low, c.text.high, c.first_line, c.last_line, c.word_count, 0});
  put_array(bytes, chunks);
  put_array(bytes, file->vectors);
  put_array(bytes, file->word_ends);
  put_array(bytes, file->words);
  return bytes;
}

Status read_file_record(FieldReader& fields, CodeIndex& index) {
  KnownSource source{.path = TRY(fields.text())};
  source.digest = TRY(fields.digest());
  source.stamp = TRY(fields.number());
  const uint64_t left_out = TRY(fields.number());
  if (left_out >= kLeftOutKinds || source.path.empty()) return Status::corrupt("a record that is no file");
  source.left_out = static_cast<LeftOut>(left_out);
  if (TRY(fields.number()) == 0) {
    index.put(std::move(source), nullptr);
    return {};
  }
  auto file = std::make_shared<IndexedFile>();
  for (const auto& c : TRY(read_array<StoredChunk>(fields)))
    file->chunks.push_back({c.first_line, c.last_line, {c.low, c.high}, c.word_count});
  file->vectors = TRY(read_array<float>(fields));
  file->word_ends = TRY(read_array<uint32_t>(fields));
  file->words = TRY(read_array<WordCount>(fields));
  const bool fits = file->vectors.size() == file->chunks.size() * static_cast<size_t>(index.width()) &&
                    file->word_ends.size() == file->chunks.size() &&
                    (file->word_ends.empty() ? file->words.empty() : file->word_ends.back() == file->words.size()) &&
                    std::is_sorted(file->word_ends.begin(), file->word_ends.end());
  if (!fits) return Status::corrupt("the parts of a record do not fit together");
  if (index.chunks() + file->chunks.size() > kMostChunks) return Status::corrupt("more pieces than an index takes");
  index.put(std::move(source), std::move(file));
  return {};
}

Status read_record_into(std::string_view bytes, CodeIndex& index) {
  FieldReader fields(bytes);
  const uint64_t kind = TRY(fields.number());
  if (kind == static_cast<uint64_t>(Kind::kFile)) return read_file_record(fields, index);
  if (kind == static_cast<uint64_t>(Kind::kStamp)) {
    const auto path = TRY(fields.text());
    index.restamp(path, TRY(fields.number()));
    return {};
  }
  if (kind != static_cast<uint64_t>(Kind::kRemoved)) return Status::corrupt("a record of an unknown kind");
  index.remove(TRY(fields.text()));
  return {};
}

struct Content {
  CodeIndex index;
  bool has_header = false;
};

Result<Content> read_content(const fs::path& path, const IndexModel& model) {
  Content content{CodeIndex(model.width)};
  const auto visit = [&](std::string_view record, uint64_t offset) -> Status {
    if (content.has_header) {
      auto status = read_record_into(record, content.index);
      return status ? status : std::move(status).at(fmt::format("the record at byte {}", offset));
    }
    content.has_header = true;
    return check_header(record, model);
  };
  const auto log = read_log(path, visit);
  if (log) return content;
  auto status = log.error();
  if (status.code() != Code::kCorrupt) {
    return fail(content.has_header ? std::move(status).at(path.string()) : std::move(status));
  }
  const bool names_file = status.message().find(path.string()) != std::string::npos;
  auto invalid = Status::invalid(status.message()).hint(kRebuild);
  return fail(names_file ? std::move(invalid) : std::move(invalid).at(path.string()));
}

std::string home_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && cache[0] == '/') return cache;
  const char* home = std::getenv("HOME");
  return home && home[0] == '/' ? fmt::format("{}/.cache", home) : "";
}

}  // namespace

std::string search_header(std::string_view format, uint64_t version, const IndexModel& model) {
  std::string bytes;
  put_text(bytes, format);
  for (const uint64_t number :
       {version, uint64_t{kChunkVersion}, model.id.low, model.id.high, static_cast<uint64_t>(model.width)})
    put_number(bytes, number);
  return bytes;
}

Result<fs::path> vectors_path(const IndexModel& model) {
  const auto cache = home_cache();
  if (cache.empty()) {
    return fail(Status::invalid("there is no place for vectors: neither XDG_CACHE_HOME nor HOME is an absolute path"));
  }
  return fs::path(cache) / "tandem" / "vectors" / (model.id.hex().substr(0, 16) + ".vectors");
}

Result<fs::path> default_index_path(const fs::path& folder, const IndexModel& model) {
  const auto cache = home_cache();
  if (cache.empty())
    return fail(Status::invalid("there is no place for the index: neither XDG_CACHE_HOME nor HOME is an absolute path")
                    .hint("name a file with --out"));
  const auto key = digest_of(fmt::format("{}\n{}", folder.string(), model.id.hex())).hex().substr(0, 16);
  const auto name = folder.filename().string();
  return fs::path(cache) / "tandem" / "index" / fmt::format("{}-{}.index", name.empty() ? "root" : name, key);
}

Result<CodeIndex> read_index(const fs::path& path, const IndexModel& model) {
  std::error_code error;
  if (!fs::exists(path, error)) return fail(Status::not_found(fmt::format("{}: there is no index", path.string())));
  return TRY(read_content(path, model)).index;
}

Result<IndexFile> IndexFile::open(const fs::path& path, const IndexModel& model, CodeIndex& index) {
  if (path.has_parent_path()) TRY(make_directories(path.parent_path()));
  const auto beside = path.string() + ".lock";
  FileDescriptor lock(::open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return fail(Status::from_errno(beside, errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Status::unavailable(fmt::format("{}: another process is writing it", path.string()))
                    .hint("wait until it is done"));
  }
  bool has_header = false;
  std::error_code error;
  if (fs::exists(path, error)) {
    auto content = TRY(read_content(path, model));
    has_header = content.has_header;
    index = std::move(content.index);
  }
  auto log = TRY(RecordLog::open(path));
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, error);
  if (!has_header) TRY(log.append(header_of(model)));
  const uint64_t bytes = fs::file_size(path, error);
  return IndexFile(path, model, std::move(lock), std::move(log), error ? 0 : bytes);
}

Status IndexFile::save(const CodeIndex& index, const std::string& path) {
  std::string record;
  if (const auto* source = index.source(path)) {
    const auto* file = index.file(path);
    if (!file && source->left_out == LeftOut::kNot) return {};
    record = record_of(*source, file);
  } else {
    put_number(record, static_cast<uint64_t>(Kind::kRemoved));
    put_text(record, path);
  }
  return append(record);
}

Status IndexFile::save_stamp(const CodeIndex& index, const std::string& path) {
  const auto* source = index.source(path);
  if (!source) return {};
  std::string record;
  put_number(record, static_cast<uint64_t>(Kind::kStamp));
  put_text(record, path);
  put_number(record, source->stamp);
  return append(record);
}

Status IndexFile::append(const std::string& record) {
  bytes_ += record.size();
  TRY(log_.append(record));
  return {};
}

Status IndexFile::finish(const CodeIndex& index) {
  uint64_t live = 0;
  for (const auto& source : index.known()) {
    const auto* file = index.file(source.path);
    live += source.path.size() + 64;
    if (file) {
      live += file->chunks.size() * (sizeof(StoredChunk) + sizeof(uint32_t)) + file->vectors.size() * sizeof(float) +
              file->words.size() * sizeof(WordCount);
    }
  }
  if (bytes_ > 2 * live + kMostWaste) {
    // The new file takes the place of the old one whole, or not at all.
    const auto fresh = fs::path(path_.string() + ".new");
    std::error_code error;
    fs::remove(fresh, error);
    auto log = TRY(RecordLog::open(fresh));
    TRY(log.append(header_of(model_)));
    for (const auto& source : index.known()) {
      const auto* file = index.file(source.path);
      if (file || source.left_out != LeftOut::kNot) TRY(log.append(record_of(source, file)));
    }
    TRY(log.sync());
    fs::permissions(fresh, fs::perms::owner_read | fs::perms::owner_write, error);
    fs::rename(fresh, path_, error);
    if (error) return Status::unavailable(fmt::format("{}: {}", path_.string(), error.message()));
    log_ = std::move(log);
    bytes_ = live;
  }
  return log_.sync();
}

}  // namespace tandem::envs
