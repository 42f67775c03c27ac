#include "envs/search/shared_form.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/fields.h"
#include "envs/search/chunks.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kSharedFormat = "tandem shared index";
constexpr uint64_t kSharedVersion = 1;

void prepare() {
  if (sodium_init() < 0) abort();  // no randomness on this machine: no key may be made
}

}  // namespace

ShareKey ShareKey::draw() {
  prepare();
  ShareKey key;
  randombytes_buf(key.bytes_.data(), key.bytes_.size());
  return key;
}

Result<ShareKey> ShareKey::read(const fs::path& path) {
  const auto text = TRY(read_file(path, 4096));
  const auto digits = trim(text);
  ShareKey key;
  size_t size = 0;
  const bool whole = sodium_hex2bin(key.bytes_.data(), key.bytes_.size(), digits.data(), digits.size(), nullptr, &size,
                                    nullptr) == 0 &&
                     size == key.bytes_.size() && digits.size() == 2 * key.bytes_.size();
  if (!whole) return fail(Status::invalid("is no key: 64 hexadecimal digits").at(path.string()));
  return key;
}

Status ShareKey::write(const fs::path& path) const {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) return Status::exists(fmt::format("{}: is there already", path.string()));
  if (!file) return Status::from_errno(path.string(), errno);
  std::string text(2 * bytes_.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes_.data(), bytes_.size());
  text.back() = '\n';
  return write_all(file.get(), text, path.string());
}

ShareKey::Name ShareKey::name_of(const Digest& piece) const {
  prepare();
  const uint64_t halves[] = {piece.low, piece.high};
  Name name{};
  crypto_generichash(name.data(), name.size(), reinterpret_cast<const unsigned char*>(halves), sizeof halves,
                     bytes_.data(), bytes_.size());
  return name;
}

SharedForm SharedForm::of(const CodeIndex& index, const IndexModel& model, const ShareKey& key) {
  SharedForm form;
  form.model_ = model;
  const auto width = static_cast<size_t>(model.width);
  for (const auto& source : index.known()) {
    const auto* file = index.file(source.path);
    for (size_t i = 0; file && i < file->chunks.size(); ++i) {
      const float* vector = file->vectors.data() + i * width;
      form.vectors_.emplace(key.name_of(file->chunks[i].text), std::vector<float>(vector, vector + width));
    }
  }
  return form;
}

std::string SharedForm::encode() const {
  std::string bytes;
  put_text(bytes, kSharedFormat);
  for (const uint64_t number : {kSharedVersion, uint64_t{kChunkVersion}, model_.id.low, model_.id.high,
                                static_cast<uint64_t>(model_.width), uint64_t{vectors_.size()}})
    put_number(bytes, number);
  for (const auto& [name, vector] : vectors_) {
    bytes.append(reinterpret_cast<const char*>(name.data()), name.size());
    bytes.append(reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float));
  }
  const auto digest = digest_of(bytes);
  put_number(bytes, digest.low);
  put_number(bytes, digest.high);
  return bytes;
}

Result<SharedForm> SharedForm::decode(std::string_view bytes, const IndexModel& model) {
  constexpr size_t kDigest = 2 * sizeof(uint64_t);
  if (bytes.size() < kDigest) return fail(Status::corrupt("is no shared index: it is too short"));
  const auto body = bytes.substr(0, bytes.size() - kDigest);
  FieldReader fields(bytes);
  const auto format = fields.text();
  if (!format || *format != kSharedFormat) return fail(Status::corrupt("is no shared index"));
  FieldReader end(bytes.substr(body.size()));
  const Digest digest = TRY(end.digest());
  if (digest != digest_of(body)) return fail(Status::corrupt("is damaged: its digest is not that of its bytes"));
  const uint64_t version = TRY(fields.number()), cutting = TRY(fields.number());
  if (version != kSharedVersion || cutting != kChunkVersion) {
    return fail(Status::invalid(fmt::format("is a shared index of version {}.{}, and this is {}.{}", version, cutting,
                                            kSharedVersion, kChunkVersion)));
  }
  SharedForm form;
  form.model_.id = TRY(fields.digest());
  const uint64_t width = TRY(fields.number()), count = TRY(fields.number());
  if (form.model_.id != model.id || width != static_cast<uint64_t>(model.width)) {
    return fail(Status::invalid(fmt::format("is a shared index of another model: {}, and this one is {}",
                                            form.model_.id.hex().substr(0, 12), model.id.hex().substr(0, 12))));
  }
  form.model_.width = model.width;
  const size_t head = sizeof(uint64_t) + kSharedFormat.size() + 6 * sizeof(uint64_t);
  const size_t each = sizeof(ShareKey::Name) + width * sizeof(float);
  if (body.size() < head || (body.size() - head) % each != 0 || (body.size() - head) / each != count)
    return fail(Status::corrupt("is damaged: it does not hold as many pieces as it says"));
  for (size_t at = head; at < body.size(); at += each) {
    ShareKey::Name name{};
    std::memcpy(name.data(), body.data() + at, name.size());
    std::vector<float> vector(width);
    std::memcpy(vector.data(), body.data() + at + name.size(), width * sizeof(float));
    form.vectors_.emplace(name, std::move(vector));
  }
  return form;
}

const float* SharedForm::find(const ShareKey::Name& name) const {
  const auto found = vectors_.find(name);
  return found == vectors_.end() ? nullptr : found->second.data();
}

}  // namespace tandem::envs
