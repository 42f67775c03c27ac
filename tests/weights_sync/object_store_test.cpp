// Places for weights: which are refused, what a folder keeps, what a trainer writes and removes, what a rollout reads.
#include "weights_sync/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "tests/within.h"
#include "weights_sync/stored_chunks.h"
#include "weights_sync/stored_versions.h"

namespace tandem::weights_sync {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string mistake(const std::string& place, const std::string& endpoint = "", const std::string& region = "r") {
  return check_store({.place = place, .endpoint = endpoint, .region = region}).to_string();
}

TEST(CheckStore, takes_folders_and_buckets_and_says_what_else_is_wrong) {
  for (const char* place : {"", "/mnt/weights", "s3://bucket", "s3://bucket/a/b", "s3://b-1.x/"})
    EXPECT_TRUE(check_store({.place = place})) << place;
  EXPECT_TRUE(check_store({.place = "s3://bucket", .endpoint = "http://127.0.0.1:9000/"}));
  EXPECT_THAT(mistake("weights"), HasSubstr("a path from the root"));
  EXPECT_THAT(mistake("gs://bucket"), HasSubstr("s3:// alone"));
  for (const char* place : {"s3://", "s3://ab", "s3://Bucket", "s3://b_ucket/x"})
    EXPECT_THAT(mistake(place), HasSubstr("a bucket has 3 to 63")) << place;
  for (const char* place : {"s3://bucket/a//b", "s3://bucket/../x", "s3://bucket/./x", "s3://bucket/a\nb"})
    EXPECT_THAT(mistake(place), HasSubstr("its prefix has")) << place;
  EXPECT_THAT(mistake("s3://bucket", "http://h/path"), HasSubstr("has a path"));
  EXPECT_THAT(mistake("s3://bucket", "h:9000"), HasSubstr("is not a URL"));
  EXPECT_THAT(mistake("s3://bucket", "", "US East"), HasSubstr("is no region"));
}

// A store that others fail on purpose.
class Flaky final : public ObjectStore {
 public:
  explicit Flaky(std::shared_ptr<ObjectStore> store) : store_(std::move(store)) {}
  Status put(const std::string& name, std::span<const std::byte> bytes, const std::stop_token& stop) override {
    if (puts_left >= 0 && puts_left-- <= 0) return Status::unavailable("it is full");
    return store_->put(name, bytes, stop);
  }
  Result<std::string> get(const std::string& name, size_t limit, const std::stop_token& stop) override {
    return store_->get(name, limit, stop);
  }
  Status remove(const std::string& name, const std::stop_token& stop) override {
    return fails_to_remove ? Status::unavailable("it is away") : store_->remove(name, stop);
  }
  std::atomic<int> puts_left = -1;  // any number
  std::atomic<bool> fails_to_remove = false;

 private:
  const std::shared_ptr<ObjectStore> store_;
};

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_folder(folder_)); }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<ObjectStore> store() { return std::move(*open_store({.place = (folder_ / "shared").string()})); }
  static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

  // Versions of a model of one part.
  std::shared_ptr<const Offer> publish(uint64_t version) {
    for (size_t i = 0; i < bytes_.size(); i += 1000) bytes_[i] ^= std::byte{1};
    return history_.add(version, bytes_, threads_);
  }
  size_t stored_files() const {
    size_t files = 0;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "shared", error)) files += entry.is_regular_file();
    return files;
  }
  std::unique_ptr<StoredVersions> writer(std::unique_ptr<ObjectStore> to, bool deltas = true) {
    return std::make_unique<StoredVersions>(
        std::move(to), StoredVersions::Settings{.run = 7, .record = folder_ / "weight_store.json", .deltas = deltas});
  }
  static bool wrote(const StoredVersions& writer, uint64_t objects) {
    return within(30s, [&] { return writer.counts().objects >= objects; });
  }

  const fs::path folder_ = fs::temp_directory_path() / ("weight-store-" + std::to_string(::getpid()));
  kernels::ThreadPool threads_{1};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(3'000'000);
  History history_{Blocks::of_parts({{.name = "w", .bytes = 3'000'000, .element_bytes = 1}}), "bf16", {}};
  SystemClock clock_;
};

TEST_F(StoreTest, a_folder_keeps_what_is_put_and_forgets_what_is_removed) {
  const auto store = this->store();
  ASSERT_TRUE(store->put("run/a/0", bytes_of("hello"), {}));
  EXPECT_EQ(*store->get("run/a/0", 5, {}), "hello");
  EXPECT_FALSE(store->get("run/a/0", 4, {}).has_value()) << "more than the limit";
  EXPECT_EQ(store->get("run/a/1", 5, {}).error().code(), Code::kNotFound);
  ASSERT_TRUE(store->put("run/a/0", bytes_of("again"), {}));
  EXPECT_EQ(*store->get("run/a/0", 5, {}), "again");
  EXPECT_TRUE(store->remove("run/a/1", {}));
  EXPECT_TRUE(store->remove("run/a/0", {}));
  EXPECT_FALSE(fs::exists(folder_ / "shared/run")) << "empty folders go, too";
  EXPECT_TRUE(probe_store({.place = (folder_ / "shared").string()}));
  EXPECT_EQ(stored_files(), 0u);
  ASSERT_TRUE(write_file(folder_ / "file", "x"));
  const Status unfit = probe_store({.place = (folder_ / "file/below").string()});
  EXPECT_EQ(unfit.code(), Code::kUnfit);
}
}  // namespace
}  // namespace tandem::weights_sync
