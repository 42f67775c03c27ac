#include "weights_sync/stored_versions.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>

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
  std::error_code error;
  std::unique_ptr<ObjectStore> store;
  if (!place.place.empty())
    store = TRY(open_store(place));
  else if (!fs::exists(settings.record, error))
    return std::unique_ptr<StoredVersions>();
  return std::make_unique<StoredVersions>(std::move(store), place, std::move(settings));
}

StoredVersions::StoredVersions(std::unique_ptr<ObjectStore> store, StoreSettings place, Settings settings)
    : store_(std::move(store)),
      place_(std::move(place)),
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
  if (!written_.empty()) {
    spdlog::warn("{} objects of weights stay at {}; `tandem run --resume` removes them", written_.size(), place_.place);
    return;
  }
  std::error_code error;
  if (store_ != nullptr) fs::remove(settings_.record, error);
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
  sweep(stop);
  while (store_ != nullptr && !stop.stop_requested()) {
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
  // The newest first: who waits for a version waits for that.
  std::vector<std::pair<std::string, std::shared_ptr<const Object>>> wanted;
  if (settings_.deltas) {
    for (const auto& [versions, object] : offer.deltas())
      wanted.emplace_back(name_of_object(settings_.run, object->manifest), object);
    std::ranges::sort(wanted, std::greater(), [](const auto& each) {
      return std::pair(each.second->manifest.version, each.second->manifest.base);
    });
  } else if (auto whole = offer.find(offer.newest(), offer.newest())) {
    wanted.emplace_back(name_of_object(settings_.run, whole->manifest), std::move(whole));
  }
  Status failure;
  std::set<std::string> names;
  for (const auto& [name, object] : wanted) names.insert(name);
  for (const auto& [name, object] : wanted) {
    if (written_.contains(name)) continue;
    failure = put(*object, name, stop);
    if (failure.code() == Code::kCancelled) return;
    if (!failure) break;  // the rest would fail as well, each after its time
    const std::lock_guard lock(mutex_);
    ++counts_.objects;
    counts_.bytes += object->bytes.size();
  }
  if (!failure && !is_failing_)
    spdlog::warn("weights are not stored, and sent by the trainer: {}", failure.to_string());
  is_failing_ = !failure.ok();
  {
    const std::lock_guard lock(mutex_);
    counts_.failures += failure ? 0 : 1;
    counts_.failure = failure ? "" : failure.to_string();
  }
  // What is gone from the offer; of whole versions the newest stay.
  const size_t most = settings_.deltas ? 0 : kMostWhole;
  std::vector<std::string> old;
  for (const auto& [name, chunks] : written_) {
    if (!names.contains(name)) old.push_back(name);
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
  const Json record = {{"place", place_.place},
                       {"endpoint", place_.endpoint},
                       {"region", place_.region},
                       {"objects", std::move(objects)}};
  return write_file(settings_.record, with_format(record, kRecordFormat).dump() + "\n");
}

void StoredVersions::sweep(const std::stop_token& stop) {
  std::error_code error;
  if (!fs::exists(settings_.record, error)) return;
  const auto json = read_json_file(settings_.record, kRecordFormat);
  if (!json) return spdlog::warn("what an earlier start stored is not known: {}", json.error().to_string());
  const auto text = [&](const char* key) {
    return json->contains(key) && json->at(key).is_string() ? json->at(key).get<std::string>() : "";
  };
  const StoreSettings before{.place = text("place"), .endpoint = text("endpoint"), .region = text("region")};
  Names left = names_in(*json, settings_.run);
  if (before.place == place_.place && before.endpoint == place_.endpoint && store_ != nullptr) {
    written_ = std::move(left);
    for (const auto& [name, chunks] : Names(written_)) remove(name, stop);
    return;
  }
  Status failure;
  if (auto store = open_store(before); !store) {
    failure = store.error();
  } else {
    for (const auto& [name, chunks] : left) {
      for (uint32_t i = 0; i < chunks && failure; ++i) failure = (*store)->remove(name_of_chunk(name, i), stop);
    }
  }
  if (!failure)
    return spdlog::warn("{} objects of weights stay at {}: {}", left.size(), before.place, failure.to_string());
  fs::remove(settings_.record, error);
}

StoredVersions::Names StoredVersions::names_in(const Json& record, uint64_t run) {
  Names names;
  const std::string own = fmt::format("{:016x}/", run);
  if (!record.contains("objects") || !record.at("objects").is_array()) return names;
  for (const auto& each : record.at("objects")) {
    const bool is_sound = each.is_object() && each.contains("name") && each.at("name").is_string() &&
                          each.contains("chunks") && each.at("chunks").is_number_unsigned();
    if (!is_sound) continue;
    // Names of this run alone, as they are written: nothing else is ever removed.
    const auto name = each.at("name").get<std::string>();
    const bool is_own =
        name.starts_with(own) && name.find_first_not_of("0123456789abcdef-", own.size()) == std::string::npos;
    if (is_own && each.at("chunks").get<uint64_t>() <= 1'000'000) names[name] = each.at("chunks").get<uint32_t>();
  }
  return names;
}

}  // namespace tandem::weights_sync
