#include "weights_sync/stored_versions.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/json_file.h"

namespace tandem::weights_sync {
namespace {

constexpr int kRecordFormat = 1;
constexpr size_t kMostWhole = 2;  // whole versions that stay: of the one before, somebody may be in the middle
constexpr auto kToRemove = std::chrono::seconds(5);

std::string name_of_object(uint64_t run, const Manifest& manifest) {
  return fmt::format("{:016x}/{}-{}-{}", run, manifest.version, manifest.base,
                     digest_of_version(manifest).hex().substr(0, 16));
}

std::string name_of_chunk(const std::string& object, uint32_t index) { return fmt::format("{}/{}", object, index); }

}  // namespace

std::string name_of_chunk(uint64_t run, const Manifest& manifest, uint32_t index) {
  return name_of_chunk(name_of_object(run, manifest), index);
}

Result<std::unique_ptr<StoredVersions>> StoredVersions::open(const StoreSettings& place, Settings settings) {
  if (place.place.empty()) return std::unique_ptr<StoredVersions>();
  return std::make_unique<StoredVersions>(TRY(open_store(place)), std::move(settings));
}

StoredVersions::StoredVersions(std::unique_ptr<ObjectStore> store, Settings settings)
    : store_(std::move(store)),
      settings_(std::move(settings)),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

StoredVersions::~StoredVersions() {
  thread_.request_stop();
  thread_.join();
  std::stop_source enough;
  const std::jthread limit([&enough](const std::stop_token& done) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, done, kToRemove, [] { return false; });
    enough.request_stop();
  });
  for (const auto& [name, chunks] : Names(written_)) {
    if (!enough.stop_requested()) remove(name, enough.get_token());
  }
  const Counts counts = this->counts();
  spdlog::info("stored {} objects of weights, {} bytes; {} could not be stored", counts.objects, counts.bytes,
               counts.failures);
  if (!written_.empty()) return;
  std::error_code error;
  fs::remove(settings_.record, error);
}

void StoredVersions::offer(std::shared_ptr<const Offer> offer) {
  const std::lock_guard lock(mutex_);
  offered_ = std::move(offer);
  changed_.notify_all();
}

StoredVersions::Counts StoredVersions::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Json StoredVersions::metrics() const {
  const Counts counts = this->counts();
  return {{"stored_objects", counts.objects},
          {"stored_bytes", counts.bytes},
          {"store_seconds", counts.seconds},
          {"store_failures", counts.failures}};
}

void StoredVersions::work(const std::stop_token& stop) {
  read_record();
  for (const auto& [name, chunks] : Names(written_)) remove(name, stop);
  while (!stop.stop_requested()) {
    std::shared_ptr<const Offer> offer;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return offered_ != nullptr; })) return;
      offer = std::exchange(offered_, nullptr);
    }
    write(*offer, stop);
  }
}

void StoredVersions::write(const Offer& offer, const std::stop_token& stop) {
  const Time start = SystemClock().now();
  std::map<std::string, std::shared_ptr<const Object>> wanted;
  if (settings_.deltas) {
    for (const auto& [versions, object] : offer.deltas())
      wanted[name_of_object(settings_.run, object->manifest)] = object;
  } else if (auto whole = offer.find(offer.newest(), offer.newest())) {
    wanted[name_of_object(settings_.run, whole->manifest)] = std::move(whole);
  }
  for (const auto& [name, object] : wanted) {
    if (written_.contains(name)) continue;
    const Status status = put(*object, name, stop);
    if (status.code() == Code::kCancelled) return;
    const std::lock_guard lock(mutex_);
    if (status) {
      counts_.failure.clear();
      ++counts_.objects;
      counts_.bytes += object->bytes.size();
    } else {
      if (counts_.failure.empty())
        spdlog::warn("weights are not stored, and sent by the trainer: {}", status.to_string());
      ++counts_.failures;
      counts_.failure = status.to_string();
      break;  // the rest would fail as well, each after its time
    }
  }
  // What is gone from the offer; of whole versions the newest stay.
  const size_t most = settings_.deltas ? 0 : kMostWhole;
  std::vector<std::string> old;
  for (const auto& [name, chunks] : written_) {
    if (!wanted.contains(name)) old.push_back(name);
  }
  const auto version_of = [](const std::string& name) {
    return std::strtoull(name.c_str() + name.find('/') + 1, nullptr, 10);
  };
  std::ranges::sort(old, {}, version_of);
  for (size_t i = 0; i + (most > 0 ? most - 1 : 0) < old.size(); ++i) remove(old[i], stop);
  const std::lock_guard lock(mutex_);
  counts_.seconds += to_seconds(SystemClock().now() - start);
}

Status StoredVersions::put(const Object& object, const std::string& name, const std::stop_token& stop) {
  const auto& manifest = object.manifest;
  const auto chunks = static_cast<uint32_t>(manifest.digests.size());
  written_[name] = chunks;
  Status status = record();
  for (uint32_t i = 0; status && i < chunks; ++i) {
    if (stop.stop_requested()) return Status::cancelled("the run ends");
    status = store_->put(name_of_chunk(name, i), chunk_of(manifest, object.bytes, i), stop);
  }
  if (!status && status.code() != Code::kCancelled) remove(name, stop);
  return status;
}

// What cannot be removed stays among the names, and is tried again with the next offer.
void StoredVersions::remove(const std::string& name, const std::stop_token& stop) {
  const auto found = written_.find(name);
  for (uint32_t i = 0; i < found->second; ++i) {
    if (const Status status = store_->remove(name_of_chunk(name, i), stop); !status) {
      if (status.code() != Code::kCancelled) spdlog::debug("{} is not removed: {}", name, status.message());
      return;
    }
  }
  written_.erase(found);
  (void)record();
}

Status StoredVersions::record() const {
  Json objects = Json::array();
  for (const auto& [name, chunks] : written_) objects.push_back({{"name", name}, {"chunks", chunks}});
  return write_file(settings_.record, with_format({{"objects", std::move(objects)}}, kRecordFormat).dump() + "\n");
}

void StoredVersions::read_record() {
  std::error_code error;
  if (!fs::exists(settings_.record, error)) return;
  const std::string own = fmt::format("{:016x}/", settings_.run);
  const auto json = read_json_file(settings_.record, kRecordFormat);
  if (!json || !json->contains("objects") || !json->at("objects").is_array()) return;
  for (const auto& each : json->at("objects")) {
    const bool is_sound = each.is_object() && each.contains("name") && each.at("name").is_string() &&
                          each.contains("chunks") && each.at("chunks").is_number_unsigned();
    if (!is_sound) continue;
    // Names of this run alone, as they are written: nothing else is ever removed.
    const auto name = each.at("name").get<std::string>();
    const bool is_own =
        name.starts_with(own) && name.find_first_not_of("0123456789abcdef-", own.size()) == std::string::npos;
    if (is_own && each.at("chunks").get<uint64_t>() <= 1'000'000) written_[name] = each.at("chunks").get<uint32_t>();
  }
}

}  // namespace tandem::weights_sync
