// Answers of /v1/responses in memory, so that a request can continue from one by its id (`previous_response_id`).
//
// Bounded in bytes: the oldest answers go first. Nobody but the key that asked sees an answer again. Nothing of it
// reaches a disk.
//
// Thread safety: any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/json.h"

namespace tandem::serve {

class ResponseStore {
 public:
  // `most_bytes`: of all answers as JSON; 0: nothing is kept.
  explicit ResponseStore(size_t most_bytes) : most_bytes_(most_bytes), used_(std::make_shared<size_t>(0)) {}

  bool keeps() const { return most_bytes_ > 0; }
  // `items`: what the request brought and what was answered, after those of `previous` (or empty). `body`: the answer.
  // Not kept: what is larger than all that may be, and the end of a conversation of more than kMostTurns answers.
  void add(const std::string& id, const std::string& key, const std::string& previous, const Json& items,
           const Json& body);
  static constexpr size_t kMostTurns = 2000;
  // All items up to and with this answer, oldest first; nothing where there is none of that key.
  std::optional<Json> items_until(const std::string& id, const std::string& key) const;
  std::optional<Json> body(const std::string& id, const std::string& key) const;
  // False: there is none. Answers that go on from it keep what it held.
  bool remove(const std::string& id, const std::string& key);
  size_t answers() const;
  size_t bytes() const;

 private:
  // Counts its bytes for as long as it lives, by itself or before another one.
  struct Answer {
    Answer(std::shared_ptr<size_t> counter, size_t size) : used(std::move(counter)), bytes(size) { *used += bytes; }
    ~Answer() { *used -= bytes; }
    Answer(const Answer&) = delete;
    std::shared_ptr<size_t> used;
    size_t bytes;
    std::string key;
    std::shared_ptr<const Answer> previous;
    std::string items, body;  // JSON
    size_t turn = 1;          // with those before it
  };
  std::shared_ptr<const Answer> find(const std::string& id, const std::string& key) const;

  const size_t most_bytes_;
  mutable std::mutex mutex_;  // of what follows, and of the lives of answers
  std::shared_ptr<size_t> used_;
  std::unordered_map<std::string, std::shared_ptr<const Answer>> answers_;
  std::deque<std::string> order_;  // oldest first; may name some that are gone
};

}  // namespace tandem::serve
