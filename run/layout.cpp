#include "run/layout.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/json.h"
#include "base/unique_number.h"

namespace tandem::run {
namespace {

constexpr int kIdentityFormat = 1;  // of RUN/identity.json
constexpr uint64_t kMaxBytes = 1 << 16;
constexpr const char* kTemporary = "/tmp";

fs::path identity_path(const fs::path& run_dir) { return run_dir / "identity.json"; }

fs::path normal(const fs::path& run_dir) {
  const fs::path path = fs::absolute(run_dir).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

struct Identity {
  uint64_t id = 0, epoch = 1;
  // The directory that the number was drawn for.
  std::string path;
  uint64_t inode = 0;
  bool is_home = false;                // of a host
  std::string temporary = kTemporary;  // where the folder of its sockets is, since its last start
};

// The folder for temporary files, where a socket in it has a path that a socket can have.
std::string temporary_folder() {
  constexpr size_t kMost = 40;  // of the 107 bytes: the rest is tandem-UID-ID-EPOCH and the socket's name
  const char* const asked = ::getenv("TMPDIR");
  if (asked == nullptr || asked[0] != '/') return kTemporary;
  const std::string folder = fs::path(asked) / "";
  struct stat info {};
  if (folder.size() > kMost || ::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      ::access(folder.c_str(), W_OK | X_OK) != 0)
    return kTemporary;
  return folder.substr(0, folder.size() - 1);
}

Result<Identity> read_identity(const fs::path& run_dir) {
  const fs::path path = identity_path(run_dir);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return fail(Status::not_found(fmt::format("{} has no run that was started", run_dir.string()))
                    .hint("`tandem run` gives it its number (identity.json)"));
  }
  const auto damaged = [&] {
    return fail(Status::corrupt("this is not the identity of a run")
                    .at(path.string())
                    .hint("remove it while the run is off; the next start makes another"));
  };
  const auto json = parse_json(TRY(read_file(path, kMaxBytes)));
  if (!json || !json->is_object()) return damaged();
  if (const auto format = format_of(*json, kIdentityFormat); !format)
    return fail(Status(format.error()).at(path.string()));
  Identity identity;
  for (const char* key : {"id", "path", "inode"}) {
    if (!json->contains(key)) return damaged();
  }
  if (!(*json)["id"].is_string() || !(*json)["path"].is_string() || !(*json)["inode"].is_number_integer())
    return damaged();
  const auto id = (*json)["id"].get<std::string>();
  const auto [end, failed] = std::from_chars(id.data(), id.data() + id.size(), identity.id, 16);
  if (failed != std::errc() || end != id.data() + id.size() || identity.id == 0) return damaged();
  identity.path = (*json)["path"].get<std::string>();
  identity.inode = (*json)["inode"].get<uint64_t>();
  const auto fits = [&](const char* key, bool (Json::*is)() const noexcept) {
    return !json->contains(key) || ((*json)[key].*is)();
  };
  if (!fits("home", &Json::is_boolean) || !fits("epoch", &Json::is_number_unsigned) ||
      !fits("temporary", &Json::is_string))
    return damaged();
  identity.is_home = json->value("home", false);
  identity.epoch = json->value("epoch", uint64_t{1});
  identity.temporary = json->value("temporary", std::string(kTemporary));
  return identity;
}

// The directory as it is now, with a new number.
Result<Identity> draw_identity(const fs::path& run_dir) {
  struct stat info {};
  if (::stat(run_dir.c_str(), &info) != 0) return fail(Status::from_errno(run_dir.string(), errno));
  std::error_code error;
  const fs::path path = fs::canonical(run_dir, error);
  if (error) return fail(Status::from_errno(run_dir.string(), error.value()));
  return Identity{.id = unique_number(), .path = path.string(), .inode = info.st_ino};
}

// At another place, or another directory at the same place, it is a copy, and what it was copied from may be on.
bool is_of(const Identity& identity, const Identity& directory) {
  return identity.path == directory.path && identity.inode == directory.inode;
}

Status write_identity(const fs::path& run_dir, const Identity& identity) {
  Json json = {{"format", kIdentityFormat},
               {"id", fmt::format("{:016x}", identity.id)},
               {"path", identity.path},
               {"inode", identity.inode}};
  if (identity.is_home) json["home"] = true;
  if (identity.epoch > 1) json["epoch"] = identity.epoch;
  if (identity.temporary != kTemporary) json["temporary"] = identity.temporary;
  return write_file(identity_path(run_dir), dump_json(json) + "\n");
}

}  // namespace

// Both sides of a take-over may be on one machine, so each epoch has a folder of its own.
RunLayout::RunLayout(fs::path run_dir, uint64_t run_id, uint64_t epoch, bool is_home, const std::string& temporary)
    : run_dir_(std::move(run_dir)),
      socket_folder_(is_home ? run_dir_ / "sockets"
                             : fs::path(fmt::format("{}/tandem-{}-{:016x}{}", temporary, ::getuid(), run_id,
                                                    epoch > 1 ? fmt::format("-{}", epoch) : std::string()))),
      run_id_(run_id),
      epoch_(epoch) {}

Result<RunLayout> RunLayout::open(const fs::path& run_dir) {
  const Identity identity = TRY(read_identity(run_dir));
  if (const Identity here = TRY(draw_identity(run_dir)); !is_of(identity, here)) {
    return fail(Status::invalid(fmt::format("{} is a copy of the run in {}, or was moved from there", run_dir.string(),
                                            identity.path))
                    .hint("start it first: `tandem run` makes a run of its own of it"));
  }
  return RunLayout(normal(run_dir), identity.id, identity.epoch, identity.is_home, identity.temporary);
}

Result<RunLayout> RunLayout::establish(const fs::path& run_dir) {
  Identity identity = TRY(draw_identity(run_dir));
  auto before = read_identity(run_dir);
  if (!before && before.error().code() != Code::kNotFound) return fail(std::move(before).error());
  const bool known = before && is_of(*before, identity);
  if (known) identity = *before;
  const std::string temporary = std::exchange(identity.temporary, temporary_folder());
  if (known && identity.temporary != temporary) {
    // Nothing names this folder once the new one is noted: what a killed run left there would stay for good.
    std::error_code ignored;
    fs::remove_all(RunLayout(run_dir, identity.id, identity.epoch, false, temporary).socket_folder(), ignored);
  }
  if (!known || identity.temporary != temporary) TRY(write_identity(run_dir, identity));
  return RunLayout(normal(run_dir), identity.id, identity.epoch, identity.is_home, identity.temporary);
}

Status RunLayout::settle(const fs::path& home, uint64_t run_id) {
  Identity identity = TRY(draw_identity(home));
  identity.id = run_id;
  identity.is_home = true;
  return write_identity(home, identity);
}

Status RunLayout::take_over(const fs::path& run_dir, uint64_t run_id, uint64_t epoch) {
  Identity identity = TRY(draw_identity(run_dir));
  identity.id = run_id;
  identity.epoch = epoch;
  return write_identity(run_dir, identity);
}

std::string name_of_run(const fs::path& run_dir) { return normal(run_dir).filename().string(); }

}  // namespace tandem::run
