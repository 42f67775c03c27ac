// An index in the form that may leave the machine: for each piece a name and its vector, and nothing else.
//
// A name is a keyed hash (BLAKE2b) of the piece with its path: who has the key and the same piece finds its vector, and
// need not embed it; who has no key can neither read a path or a text out of names nor try whether one is there. Pieces
// are in the order of their names, so that neither files nor their order show. Vectors say what a text is about: to
// whoever has the encoder they are not secret, only less than the text.
//
// Value type. Thread safety: const methods from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/search/code_index.h"
#include "envs/search/index_file.h"

namespace tandem::envs {

class ShareKey {
 public:
  static ShareKey draw();
  // 64 hexadecimal digits in a file; kInvalid where it holds something else.
  static Result<ShareKey> read(const std::filesystem::path& path);
  // Makes it, readable by its owner alone; kExists where there is a file.
  Status write(const std::filesystem::path& path) const;

  using Name = std::array<uint8_t, 32>;
  Name name_of(const Digest& piece) const;

 private:
  std::array<uint8_t, 32> bytes_{};
};

class SharedForm {
 public:
  static SharedForm of(const CodeIndex& index, const IndexModel& model, const ShareKey& key);

  std::string encode() const;
  // kInvalid where it is of another model or version, kCorrupt where it is not what was written.
  static Result<SharedForm> decode(std::string_view bytes, const IndexModel& model);

  size_t size() const { return vectors_.size(); }
  const float* find(const ShareKey::Name& name) const;  // null: not there

 private:
  IndexModel model_;
  std::map<ShareKey::Name, std::vector<float>> vectors_;
};

}  // namespace tandem::envs
