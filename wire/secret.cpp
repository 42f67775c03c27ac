#include "wire/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <zmq.hpp>

#include "base/text.h"

namespace tandem::wire {
namespace {

constexpr std::string_view kBegin = "tandem-key-1 ";
constexpr size_t kKeyLetters = 40;

Status is_no_key(const fs::path& path) {
  return Status::invalid("this is not a key")
      .at(path.string())
      .hint("`tandem role env --listen ... --key FILE` makes one");
}

}  // namespace

Result<Secret> Secret::read(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return fail(Status::from_errno(path.string(), errno));
  if ((info.st_mode & 077) != 0) {
    return fail(
        Status::invalid("others may read this key")
            .at(path.string())
            .hint(fmt::format("chmod 600 {}, or make a new one where somebody may have read it", path.string())));
  }
  const auto text = TRY(read_file(path, 1 << 12));
  const auto line = trim(text);
  if (!line.starts_with(kBegin) || line.size() != kBegin.size() + kKeyLetters) return fail(is_no_key(path));
  const std::string secret_key(line.substr(kBegin.size()));
  std::array<char, kKeyLetters + 1> public_key{};
  if (::zmq_curve_public(public_key.data(), secret_key.c_str()) != 0) return fail(is_no_key(path));
  return Secret(secret_key, public_key.data());
}

Result<Secret> Secret::create(const fs::path& path) {
  std::array<char, kKeyLetters + 1> public_key{}, secret_key{};
  if (::zmq_curve_keypair(public_key.data(), secret_key.data()) != 0)
    return fail(Status::unfit("this ZeroMQ was built without CURVE"));
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return fail(Status::from_errno(path.string(), errno));
  TRY(write_all(file.get(), fmt::format("{}{}\n", kBegin, secret_key.data()), path.string()));
  if (::fsync(file.get()) != 0) return fail(Status::from_errno(path.string(), errno));
  return Secret(secret_key.data(), public_key.data());
}

}  // namespace tandem::wire
