#include "envs/search/piece_vectors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "envs/sandbox/fields.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kVectorsFormat = "tandem vectors";
constexpr uint64_t kVectorsVersion = 1;

std::string vectors_header(const IndexModel& model) { return search_header(kVectorsFormat, kVectorsVersion, model); }

}  // namespace

Status PieceVectors::take(std::string_view record) {
  if (!has_header_) {
    if (record != vectors_header(model_)) return Status::corrupt("is of another encoder or version");
    has_header_ = true;
    return {};
  }
  FieldReader fields(record);
  const Digest piece = TRY(fields.digest());
  const auto bytes = TRY(fields.text());
  if (bytes.size() != static_cast<size_t>(model_.width) * sizeof(float))
    return Status::corrupt("a vector of another width");
  if (places_.size() >= kMost) return Status::corrupt("more vectors than a file takes");
  std::vector<float> vector(static_cast<size_t>(model_.width));
  std::memcpy(vector.data(), bytes.data(), bytes.size());
  keep(piece, vector.data());
  return {};
}

void PieceVectors::keep(const Digest& piece, const float* vector) {
  if (!places_.try_emplace(piece, places_.size()).second) return;
  vectors_.insert(vectors_.end(), vector, vector + model_.width);
}

Status PieceVectors::load(const fs::path& path) {
  const auto content = read_log(path, [&](std::string_view record, uint64_t) { return take(record); });
  if (content) return {};
  auto status = content.error();
  if (status.code() != Code::kCorrupt) return status;
  const bool names_file = status.message().find(path.string()) != std::string::npos;
  auto invalid = Status::invalid(status.message()).hint("remove the file: it is made again");
  return names_file ? invalid : std::move(invalid).at(path.string());
}

Result<PieceVectors> PieceVectors::read(const fs::path& path, const IndexModel& model) {
  std::error_code error;
  if (!fs::exists(path, error)) return fail(Status::not_found(path.string() + ": there are no vectors"));
  PieceVectors vectors(model);
  TRY(vectors.load(path));
  return vectors;
}

Result<PieceVectors> PieceVectors::open(const fs::path& path, const IndexModel& model) {
  if (path.has_parent_path()) TRY(make_directories(path.parent_path()));
  const auto beside = path.string() + ".lock";
  FileDescriptor lock(::open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return fail(Status::from_errno(beside, errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Status::unavailable(path.string() + ": another process is writing it").hint("wait until it is done"));
  }
  std::error_code error;
  std::optional<PieceVectors> vectors;
  if (fs::exists(path, error)) {
    auto known = read(path, model);
    if (known) {
      vectors = std::move(*known);
    } else if (known.error().code() == Code::kInvalid) {
      fs::remove(path, error);
    } else {
      return fail(std::move(known).error());
    }
  }
  if (!vectors) vectors = PieceVectors(model);
  vectors->log_ = TRY(RecordLog::open(path));
  if (!vectors->has_header_) TRY(vectors->log_->append(vectors_header(model)));
  vectors->has_header_ = true;
  vectors->lock_ = std::move(lock);
  return std::move(*vectors);
}

const float* PieceVectors::find(const Digest& piece) const {
  const auto found = places_.find(piece);
  return found == places_.end() ? nullptr : vectors_.data() + found->second * static_cast<size_t>(model_.width);
}

Status PieceVectors::add(const Digest& piece, const float* vector) {
  if (find(piece)) return {};
  if (places_.size() >= kMost) return Status::exhausted(fmt::format("more than {} vectors", kMost));
  std::string record;
  put_number(record, piece.low);
  put_number(record, piece.high);
  put_text(record, {reinterpret_cast<const char*>(vector), static_cast<size_t>(model_.width) * sizeof(float)});
  TRY(log_->append(record));
  keep(piece, vector);
  return {};
}

Status PieceVectors::sync() { return log_->sync(); }

}  // namespace tandem::envs
