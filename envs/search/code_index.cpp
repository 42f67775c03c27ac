#include "envs/search/code_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "envs/search/chunks.h"

namespace tandem::envs {
namespace {

constexpr size_t kBatch = 16;  // texts that are embedded at once: progress is told after each batch

std::string text_to_embed(const std::string& path, const Chunk& chunk) {
  return chunk.scope.empty() ? fmt::format("{}\n{}", path, chunk.text)
                             : fmt::format("{}\n{}\n{}", path, chunk.scope, chunk.text);
}

}  // namespace

bool lies_in(std::string_view path, std::string_view folder) {
  if (folder.empty() || path == folder) return true;
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

std::vector<KnownSource> CodeIndex::known() const {
  std::vector<KnownSource> known;
  known.reserve(entries_.size());
  for (const auto& [path, entry] : entries_) known.push_back(entry.source);
  return known;
}

size_t CodeIndex::files() const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.source.left_out == LeftOut::kNot;
  }));
}

void CodeIndex::drop(const Entry& entry) {
  chunks_ -= entry.file ? entry.file->chunks.size() : 0;
  waiting_ -= entry.waiting.size();
}

void CodeIndex::cut(Entry& entry, std::string_view content, const IndexedFile* before) {
  std::unordered_map<uint64_t, size_t> known;
  for (size_t i = 0; before && i < before->chunks.size(); ++i) known.emplace(before->chunks[i].text.low, i);
  const auto pieces = cut_into_chunks(entry.source.path, content);
  if (chunks_ + pieces.size() > kMostChunks) {
    entry.source.left_out = LeftOut::kTooMany;
    return;
  }
  auto file = std::make_shared<IndexedFile>();
  const auto width = static_cast<size_t>(width_);
  file->vectors.resize(pieces.size() * width);
  for (size_t i = 0; i < pieces.size(); ++i) {
    auto text = text_to_embed(entry.source.path, pieces[i]);
    IndexedChunk chunk{pieces[i].first_line, pieces[i].last_line, digest_of(text)};
    for (const auto& count : count_words(text)) {
      file->words.push_back(count);
      chunk.word_count += count.count;
    }
    file->word_ends.push_back(static_cast<uint32_t>(file->words.size()));
    const auto found = known.find(chunk.text.low);
    if (found != known.end() && before->chunks[found->second].text == chunk.text) {
      std::copy_n(before->vectors.data() + found->second * width, width, file->vectors.data() + i * width);
    } else {
      entry.waiting.emplace_back(i, std::move(text));
    }
    file->chunks.push_back(chunk);
  }
  chunks_ += pieces.size();
  waiting_ += entry.waiting.size();
  entry.file = std::move(file);
}

CodeIndex::Applied CodeIndex::apply(SourceChanges changes) {
  Applied applied;
  for (const auto& path : changes.removed) {
    const auto found = entries_.find(path);
    if (found == entries_.end()) continue;
    drop(found->second);
    entries_.erase(found);
    applied.removed.push_back(path);
  }
  for (auto& source : changes.changed) {
    Entry& entry = entries_[source.now.path];
    if (!source.has_content && !entry.source.path.empty() && entry.source.digest == source.now.digest) {
      entry.source.stamp = source.now.stamp;
      applied.restamped.push_back(source.now.path);
      continue;
    }
    applied.changed.push_back(source.now.path);
    const Entry before = std::move(entry);
    drop(before);
    entry = Entry{.source = std::move(source.now)};
    if (!source.has_content) continue;
    // A vector that is still waited for is none to be taken over.
    cut(entry, source.content, before.waiting.empty() ? before.file.get() : nullptr);
  }
  return applied;
}

Result<size_t> CodeIndex::embed(const Embedding& how) {
  struct Place {
    Entry* entry;
    size_t chunk;
  };
  const auto width = static_cast<size_t>(width_);
  size_t computed = 0;
  std::vector<Place> places;
  std::vector<std::string> texts;
  const auto set = [&](Entry& entry, size_t chunk, const float* vector) {
    // What no copy of the index shares is filled in place.
    if (entry.file.use_count() > 1) entry.file = std::make_shared<IndexedFile>(*entry.file);
    std::copy_n(vector, width, entry.file->vectors.data() + chunk * width);
  };
  const auto take = [&](const Place& place) -> Status {
    auto& waiting = place.entry->waiting;
    std::erase_if(waiting, [&](const auto& one) { return one.first == place.chunk; });
    --waiting_;
    return waiting.empty() && how.ended ? how.ended(place.entry->source.path) : Status();
  };
  const auto flush = [&]() -> Status {
    const auto vectors = TRY(how.embed(texts));
    for (size_t i = 0; i < places.size(); ++i) {
      const float* vector = vectors.data() + i * width;
      const auto chunk = places[i].chunk;
      set(*places[i].entry, chunk, vector);
      if (how.keep) how.keep(places[i].entry->file->chunks[chunk].text, vector);
      TRY(take(places[i]));
    }
    computed += places.size();
    places.clear();
    texts.clear();
    if (how.progress) how.progress(computed);
    return {};
  };
  std::vector<Place> all;
  for (auto& [path, entry] : entries_) {
    for (const auto& [chunk, text] : entry.waiting) all.push_back({&entry, chunk});
  }
  for (const Place& place : all) {
    auto& waiting = place.entry->waiting;
    const auto one =
        std::find_if(waiting.begin(), waiting.end(), [&](const auto& w) { return w.first == place.chunk; });
    const float* found = how.find ? how.find(place.entry->file->chunks[place.chunk].text) : nullptr;
    if (found) {
      set(*place.entry, place.chunk, found);
      TRY(take(place));
    } else if (computed + texts.size() < how.most) {
      texts.push_back(one->second);
      places.push_back(place);
      if (texts.size() == kBatch) TRY(flush());
    }
  }
  if (!texts.empty()) TRY(flush());
  return computed;
}

MerkleTree CodeIndex::tree() const {
  std::vector<FileDigest> files;
  for (const auto& [path, entry] : entries_) {
    if (entry.source.left_out == LeftOut::kNot) files.push_back({path, entry.source.digest});
  }
  return MerkleTree(files);
}

const KnownSource* CodeIndex::source(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second.source;
}

const IndexedFile* CodeIndex::file(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() || !found->second.waiting.empty() ? nullptr : found->second.file.get();
}

void CodeIndex::put(KnownSource source, std::shared_ptr<IndexedFile> file) {
  Entry& entry = entries_[source.path];
  drop(entry);
  entry = Entry{.source = std::move(source), .file = std::move(file)};
  chunks_ += entry.file ? entry.file->chunks.size() : 0;
}

void CodeIndex::restamp(const std::string& path, uint64_t stamp) {
  if (const auto found = entries_.find(path); found != entries_.end()) found->second.source.stamp = stamp;
}

void CodeIndex::remove(const std::string& path) {
  const auto found = entries_.find(path);
  if (found == entries_.end()) return;
  drop(found->second);
  entries_.erase(found);
}

}  // namespace tandem::envs
