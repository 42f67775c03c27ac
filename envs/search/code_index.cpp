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

std::vector<PieceText> pieces_of(const std::string& path, std::string_view content) {
  std::vector<PieceText> pieces;
  for (const auto& chunk : cut_into_chunks(path, content)) {
    auto text = text_to_embed(path, chunk);
    pieces.push_back({digest_of(text), std::move(text)});
  }
  return pieces;
}

CodeIndex CodeIndex::over(std::shared_ptr<const CodeIndex> base) {
  if (base->base_) {  // one base is enough to look through
    auto flat = std::make_shared<CodeIndex>(base->width_);
    base->each([&](const std::string& path, const Entry& entry) { flat->entries_.emplace(path, entry); });
    flat->chunks_ = base->chunks_;
    base = std::move(flat);
  }
  CodeIndex index(base->width_);
  index.chunks_ = base->chunks_;
  index.base_ = std::move(base);
  return index;
}

const CodeIndex::Entry* CodeIndex::find_entry(const std::string& path) const {
  const auto own = entries_.find(path);
  if (own != entries_.end()) return &own->second;
  if (!base_ || hidden_.contains(path)) return nullptr;
  const auto of_base = base_->entries_.find(path);
  return of_base == base_->entries_.end() ? nullptr : &of_base->second;
}

CodeIndex::Entry& CodeIndex::own_entry(const std::string& path) {
  const auto [own, is_new] = entries_.try_emplace(path);
  if (!is_new || !base_) return own->second;
  const auto of_base = base_->entries_.find(path);
  if (of_base != base_->entries_.end() && hidden_.insert(path).second) own->second = of_base->second;
  return own->second;
}

void CodeIndex::erase(const std::string& path) {
  entries_.erase(path);
  if (base_ && base_->entries_.contains(path)) hidden_.insert(path);
}

std::vector<KnownSource> CodeIndex::known() const {
  std::vector<KnownSource> known;
  each([&](const std::string&, const Entry& entry) { known.push_back(entry.source); });
  return known;
}

size_t CodeIndex::files() const {
  size_t count = 0;
  each([&](const std::string&, const Entry& entry) { count += entry.source.left_out == LeftOut::kNot; });
  return count;
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
    const Entry* const found = find_entry(path);
    if (!found) continue;
    drop(*found);
    erase(path);
    applied.removed.push_back(path);
  }
  for (auto& source : changes.changed) {
    Entry& entry = own_entry(source.now.path);
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
  size_t computed = 0, recalled = 0;
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
    const Digest& piece = place.entry->file->chunks[place.chunk].text;
    const float* found = how.find ? how.find(piece) : nullptr;
    const bool has_room = computed + recalled + texts.size() < how.most;
    const float* known = !found && has_room && how.recall ? how.recall(piece) : nullptr;
    if (found || known) {
      recalled += known != nullptr;
      set(*place.entry, place.chunk, found ? found : known);
      TRY(take(place));
    } else if (has_room) {
      texts.push_back(one->second);
      places.push_back(place);
      if (texts.size() == kBatch) TRY(flush());
    }
  }
  if (!texts.empty()) TRY(flush());
  return computed + recalled;
}

MerkleTree CodeIndex::tree() const {
  std::vector<FileDigest> files;
  each([&](const std::string& path, const Entry& entry) {
    if (entry.source.left_out == LeftOut::kNot) files.push_back({path, entry.source.digest});
  });
  return MerkleTree(files);
}

const KnownSource* CodeIndex::source(const std::string& path) const {
  const Entry* const found = find_entry(path);
  return found ? &found->source : nullptr;
}

const IndexedFile* CodeIndex::file(const std::string& path) const {
  const Entry* const found = find_entry(path);
  return found && found->waiting.empty() ? found->file.get() : nullptr;
}

void CodeIndex::put(KnownSource source, std::shared_ptr<IndexedFile> file) {
  Entry& entry = own_entry(source.path);
  drop(entry);
  entry = Entry{.source = std::move(source), .file = std::move(file)};
  chunks_ += entry.file ? entry.file->chunks.size() : 0;
}

void CodeIndex::restamp(const std::string& path, uint64_t stamp) {
  if (find_entry(path)) own_entry(path).source.stamp = stamp;
}

void CodeIndex::remove(const std::string& path) {
  const Entry* const found = find_entry(path);
  if (!found) return;
  drop(*found);
  erase(path);
}

}  // namespace tandem::envs
