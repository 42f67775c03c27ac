// What a sandbox and its host say to each other about files that can be searched.
#include "envs/sandbox/fields.h"
#include "envs/sandbox/sources.h"

namespace tandem::envs {
namespace {

void put_known(std::string& bytes, const KnownSource& source) {
  put_text(bytes, source.path);
  for (const uint64_t number :
       {source.digest.low, source.digest.high, source.stamp, static_cast<uint64_t>(source.left_out)})
    put_number(bytes, number);
}

// Below the root, and nothing else: whoever reads a path goes on to use it.
Result<std::string> read_path(FieldReader& fields) {
  auto path = TRY(fields.text());
  const bool inside = !path.empty() && path[0] != '/' && path.find('\0') == std::string::npos;
  if (!inside) return fail(Status::corrupt("a message of a sandbox names no file below its root"));
  return path;
}

Result<KnownSource> read_known(FieldReader& fields) {
  KnownSource source{.path = TRY(read_path(fields))};
  source.digest = TRY(fields.digest());
  source.stamp = TRY(fields.number());
  const uint64_t left_out = TRY(fields.number());
  if (left_out >= kLeftOutKinds) return fail(Status::corrupt("a message of a sandbox has an unknown reason"));
  source.left_out = static_cast<LeftOut>(left_out);
  return source;
}

}  // namespace

std::string encode(std::span<const KnownSource> known) {
  std::string bytes;
  put_number(bytes, known.size());
  for (const auto& source : known) put_known(bytes, source);
  return bytes;
}

Result<std::vector<KnownSource>> decode_known_sources(std::string_view bytes) {
  FieldReader fields(bytes);
  std::vector<KnownSource> known;
  for (uint64_t left = TRY(fields.number()); left > 0; --left) known.push_back(TRY(read_known(fields)));
  return known;
}

std::string encode(const SourceChanges& changes) {
  std::string bytes;
  put_number(bytes, changes.changed.size());
  for (const auto& source : changes.changed) {
    put_known(bytes, source.now);
    put_number(bytes, source.has_content ? 1 : 0);
    if (source.has_content) put_text(bytes, source.content);
  }
  put_number(bytes, changes.removed.size());
  for (const auto& path : changes.removed) put_text(bytes, path);
  for (const uint64_t count : changes.left_out) put_number(bytes, count);
  put_number(bytes, changes.secrets.size());
  for (const auto& path : changes.secrets) put_text(bytes, path);
  put_number(bytes, changes.files);
  put_number(bytes, changes.more ? 1 : 0);
  return bytes;
}

Result<SourceChanges> decode_source_changes(std::string_view bytes) {
  FieldReader fields(bytes);
  SourceChanges changes;
  for (uint64_t left = TRY(fields.number()); left > 0; --left) {
    ChangedSource source{.now = TRY(read_known(fields))};
    source.has_content = TRY(fields.number()) == 1;
    if (source.has_content) source.content = TRY(fields.text());
    changes.changed.push_back(std::move(source));
  }
  for (uint64_t left = TRY(fields.number()); left > 0; --left) changes.removed.push_back(TRY(read_path(fields)));
  for (uint64_t& count : changes.left_out) count = TRY(fields.number());
  for (uint64_t left = TRY(fields.number()); left > 0; --left) changes.secrets.push_back(TRY(read_path(fields)));
  changes.files = TRY(fields.number());
  changes.more = TRY(fields.number()) == 1;
  return changes;
}

std::string encode(std::span<const SourceLines> wanted) {
  std::string bytes;
  put_number(bytes, wanted.size());
  for (const auto& lines : wanted) {
    put_text(bytes, lines.path);
    put_number(bytes, lines.first);
    put_number(bytes, lines.last);
  }
  return bytes;
}

Result<std::vector<SourceLines>> decode_source_lines(std::string_view bytes) {
  FieldReader fields(bytes);
  std::vector<SourceLines> wanted;
  for (uint64_t left = TRY(fields.number()); left > 0; --left) {
    SourceLines lines{.path = TRY(read_path(fields))};
    lines.first = TRY(fields.number());
    lines.last = TRY(fields.number());
    wanted.push_back(std::move(lines));
  }
  return wanted;
}

}  // namespace tandem::envs
