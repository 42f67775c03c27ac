// Where chunks of weights lie for rollouts to read: a folder that hosts have in common, or a bucket of an object store
// that speaks the API of S3. The trainer writes each once, and each region reads it without asking the trainer.
//
// What is read is not trusted: a receiver compares each chunk with its digest, which comes from the trainer.
//
// Thread safety: all of it from any threads.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "base/status.h"

namespace tandem::weights_sync {

struct StoreSettings {
  std::string place;                 // a folder, or s3://BUCKET[/PREFIX]; empty: none
  std::string endpoint = {};         // URL of the API; empty: Amazon's in the region
  std::string region = "us-east-1";  // as signatures have it
  double seconds = 10;               // that a rollout waits for a chunk there

  bool is_bucket() const { return place.starts_with("s3://"); }
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // Whole or not at all. kUnavailable, kDeadline, kExhausted: later may work; kInvalid: it is refused as it is;
  // kCancelled soon after `stop`.
  virtual Status put(const std::string& name, std::span<const std::byte> bytes, const std::stop_token& stop) = 0;
  // kNotFound where there is none of this name, kExhausted where it is larger than `limit` bytes; else as put().
  virtual Result<std::string> get(const std::string& name, size_t limit, const std::stop_token& stop) = 0;
  // Ok where there is none of this name.
  virtual Status remove(const std::string& name, const std::stop_token& stop) = 0;
};

// kInvalid, naming the place or the endpoint, for what cannot be one; nothing is asked or opened.
Status check_store(const StoreSettings& settings);

// kUnfit where a bucket's key is missing: it is in the environment, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with
// AWS_SESSION_TOKEN where it has one.
Result<std::unique_ptr<ObjectStore>> open_store(const StoreSettings& settings);

// Writes a small object there, reads it and removes it again. Errors as open_store() and ObjectStore have them; kUnfit
// where it cannot be reached or refuses. Ok without a place.
Status probe_store(const StoreSettings& settings);

}  // namespace tandem::weights_sync
