// The members of a JSON object: in order, and found by key.
//
// Lookup scans up to kScanned members linearly. Larger objects keep a hash table, so that vocabularies of hundreds of
// thousands of keys are read in linear time.
#pragma once

#include "base/json.h"

namespace tandem {

class JsonObject {
 public:
  struct Member {
    std::string key;
    Json value;
  };

  std::vector<Member>& members() { return members_; }
  const std::vector<Member>& members() const { return members_; }
  // Returns npos where the key is missing.
  size_t find(std::string_view key) const;
  // The key must not be there yet.
  Json& add(std::string key, Json value);
  void erase(size_t index);
  void reserve(size_t members) { members_.reserve(members); }

  static constexpr size_t npos = ~size_t{0};

 private:
  static constexpr size_t kScanned = 16;
  void index_all();
  void note(size_t member);

  std::vector<Member> members_;
  std::vector<uint32_t> slots_;  // 1 + the member's place, 0: free; a power of two, at most half full
};

}  // namespace tandem
