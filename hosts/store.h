// The file store of a host: files by their digests, shared by all runs, and a home for the run that it serves.
//
// Files are kept when their run is over, so the next run that needs them need not send them; the oldest go when they
// take more than the limit, or when the disk is full. A home holds hard links to them, and is removed with its Home;
// one that a killed host left is removed by the next host of this folder. The digest of every file is taken over the
// bytes on disk before it gets its name.
//
// Thread safety: none. Two hosts may use one folder.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hosts/protocol.h"

namespace tandem::hosts {

class Store {
 public:
  // Makes `folder`, mode 0700; removes the homes of hosts that are no more.
  static Result<Store> open(const fs::path& folder, uint64_t most_bytes);

  Store(Store&&) = default;
  Store& operator=(Store&&) = delete;
  ~Store();

  // An empty home for a run, whose identity it has (run/layout.h); the one that was there is removed.
  Status make_home(uint64_t run);
  void remove_home();
  const fs::path& home() const { return home_; }

  // The files that are not there yet, by their places; all others are in the home now. kExhausted, with nothing done,
  // where they take more than the limit. A second offer takes the place of the first.
  Result<std::vector<uint32_t>> offer(const std::vector<HomeFile>& files);

  // Bytes that are there of an offered file: all of them once it is complete, and then it is in the home. kInvalid for
  // a file that was not offered or a chunk that does not follow the last; kCorrupt where the digest is another, and
  // then the file begins anew.
  Result<uint64_t> add(const Chunk& chunk, std::span<const std::byte> bytes);

  // Writes a file of the home; mode 0600.
  Status write(const HomeText& text);

 private:
  struct Coming {
    uint64_t bytes = 0, have = 0;
    FileDescriptor file;
    fs::path path;
    std::vector<HomeFile> places;
  };
  Store(fs::path folder, uint64_t most_bytes) : folder_(std::move(folder)), most_bytes_(most_bytes) {}
  fs::path kept(const HomeFile& file) const;
  Status place(const HomeFile& file);
  Status make_room(uint64_t bytes);

  fs::path folder_;
  uint64_t most_bytes_;
  fs::path home_;
  FileDescriptor home_lock_;
  std::map<Digest, Coming> coming_;
  std::set<std::string> in_use_;  // names of kept files that the home has
};

// $XDG_CACHE_HOME/tandem/host, else ~/.cache/tandem/host. kUnfit where neither is known.
Result<fs::path> usual_store();

}  // namespace tandem::hosts
