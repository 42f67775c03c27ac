#include "weights_sync/stored_chunks.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "weights_sync/left_alone.h"
#include "weights_sync/stored_versions.h"

namespace tandem::weights_sync {
namespace {

using namespace std::chrono_literals;

constexpr int kThreads = 4;
constexpr size_t kMostWaiting = 64;
constexpr Duration kFirstLook = 20ms, kLongestLook = 500ms;

}  // namespace

StoredChunks::StoredChunks(std::unique_ptr<ObjectStore> store, Settings settings, const Clock& clock)
    : store_(std::move(store)), settings_(settings), clock_(clock), queue_(kThreads, kMostWaiting) {}

StoredChunks::~StoredChunks() {
  stop_.request_stop();
  spdlog::info("read {} chunks of weights from the store, {} bytes; gave it up {} times", chunks_, bytes_, given_up_);
}

bool StoredChunks::has(const Manifest& manifest) const {
  return manifest.whole() != settings_.deltas && clock_.now() >= left_alone_until_;
}

bool StoredChunks::ask(const Manifest& manifest, uint32_t index) {
  return queue_.submit([this, base = manifest.base, version = manifest.version, index,
                        limit = size_t{manifest.chunk_bytes},
                        name = name_of_chunk(settings_.run, manifest, index)]() -> WorkQueue::Completion {
    auto bytes = std::make_shared<Result<std::string>>(read(name, limit));
    return [this, base, version, index, bytes] { come_.push_back({base, version, index, std::move(*bytes)}); };
  });
}

// The trainer announces a version and stores it at the same time: what is not there may come yet.
Result<std::string> StoredChunks::read(const std::string& name, size_t limit) const {
  const Time end = clock_.now() + from_seconds(settings_.seconds);
  std::mutex mutex;
  std::condition_variable_any sleep;
  for (Duration pause = kFirstLook;; pause = std::min<Duration>(2 * pause, kLongestLook)) {
    auto bytes = store_->get(name, limit, stop_.get_token());
    const bool may_come =
        !bytes && (bytes.error().code() == Code::kNotFound || bytes.error().code() == Code::kUnavailable);
    if (!may_come || stop_.stop_requested() || clock_.now() + pause >= end) return bytes;
    std::unique_lock lock(mutex);
    sleep.wait_for(lock, stop_.get_token(), pause, [] { return false; });
  }
}

std::vector<StoredChunks::Come> StoredChunks::take() {
  queue_.run_completions();
  return std::exchange(come_, {});
}

void StoredChunks::gave_up() {
  ++given_up_;
  left_alone_until_ = clock_.now() + left_alone_for(failures_++);
}

}  // namespace tandem::weights_sync
