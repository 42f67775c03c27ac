// Places for weights: which are refused, what a folder keeps, what a trainer writes and removes, what a rollout reads.
#include "weights_sync/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
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
  void SetUp() override { ASSERT_TRUE(make_directories(folder_ / "shared")); }
  void TearDown() override { fs::remove_all(folder_); }

  StoreSettings at_shared() const { return {.place = (folder_ / "shared").string()}; }
  std::unique_ptr<ObjectStore> store() { return std::move(*open_store(at_shared())); }
  static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

  // Versions of a model of one part.
  std::shared_ptr<const Offer> publish(uint64_t version) {
    for (int i = 0; i < 3000; ++i) bytes_[random_.below(bytes_.size())] ^= static_cast<std::byte>(random_.below(256));
    return history_.add(version, bytes_, threads_);
  }
  size_t stored_files() const {
    size_t files = 0;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "shared", error))
      files += entry.is_regular_file();
    return files;
  }
  std::unique_ptr<StoredVersions> writer(std::unique_ptr<ObjectStore> to, bool deltas = true) {
    return std::make_unique<StoredVersions>(
        std::move(to), at_shared(),
        StoredVersions::Settings{.run = 7, .record = folder_ / "weight_store.json", .deltas = deltas});
  }
  static bool wrote(const StoredVersions& writer, uint64_t objects) {
    return within(30s, [&] { return writer.counts().objects >= objects; });
  }

  const fs::path folder_ = fs::temp_directory_path() / ("weight-store-" + std::to_string(::getpid()));
  kernels::ThreadPool threads_{1};
  Random random_{1};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(3'000'000);
  History history_{
      Blocks({{.name = "w", .bytes = 3'000'000, .element_bytes = 1}}, 3'000'000), "fp8", {.most_delta_bytes = 0.02}};
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
  EXPECT_TRUE(fs::exists(folder_ / "shared")) << "but for the store's own";
  EXPECT_TRUE(probe_store({.place = (folder_ / "shared/").string()}));
  EXPECT_TRUE(fs::exists(folder_ / "shared"));
  EXPECT_TRUE(probe_store({.place = (folder_ / "shared").string()}));
  EXPECT_EQ(stored_files(), 0u);
  ASSERT_TRUE(write_file(folder_ / "file", "x"));
  const Status unfit = probe_store({.place = (folder_ / "file/below").string()});
  EXPECT_EQ(unfit.code(), Code::kUnfit);
}

TEST_F(StoreTest, what_is_offered_is_written_and_removed_when_it_is_offered_no_more) {
  auto writer = this->writer(store());
  std::shared_ptr<const Offer> offer;
  for (uint64_t version = 1; version <= 3; ++version) offer = publish(version);
  writer->offer(offer);
  ASSERT_TRUE(wrote(*writer, offer->deltas().size()));
  for (const auto& [versions, object] : offer->deltas()) {
    const auto chunk = store()->get(name_of_chunk(7, object->manifest, 0), kChunkBytes, {});
    ASSERT_TRUE(chunk.has_value()) << chunk.error().to_string();
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(*chunk)), object->bytes));
  }
  EXPECT_EQ(stored_files(), offer->deltas().size()) << "deltas alone";
  // Deltas that are left out as there are too many go from the store as well.
  uint64_t version = 3;
  const Manifest first = offer->deltas().begin()->second->manifest;
  do {
    offer = publish(++version);
    ASSERT_LT(version, 100u);
  } while (offer->deltas().contains({first.base, first.version}));
  writer->offer(offer);
  ASSERT_TRUE(within(30s, [&] { return !store()->get(name_of_chunk(7, first, 0), kChunkBytes, {}).has_value(); }));
  writer = nullptr;
  EXPECT_EQ(stored_files(), 0u);
  EXPECT_FALSE(fs::exists(folder_ / "weight_store.json"));
}

TEST_F(StoreTest, without_deltas_the_newest_two_versions_lie_there_whole) {
  const auto writer = this->writer(store(), false);
  std::vector<Manifest> whole;
  for (uint64_t version = 1; version <= 4; ++version) {
    const auto offer = publish(version);
    whole.push_back(offer->whole());
    writer->offer(offer);
    ASSERT_TRUE(wrote(*writer, version));
  }
  const auto is_there = [&](const Manifest& manifest) {
    return store()->get(name_of_chunk(7, manifest, 0), kChunkBytes, {}).has_value();
  };
  EXPECT_TRUE(within(30s, [&] { return !is_there(whole[1]); }));
  EXPECT_TRUE(is_there(whole[2]) && is_there(whole[3]));
}

TEST_F(StoreTest, what_a_killed_trainer_left_is_removed_by_the_next_and_nothing_else) {
  auto other = store();
  ASSERT_TRUE(other->put("0000000000000007/5-4-0123456789abcdef/0", bytes_of("left"), {}));
  ASSERT_TRUE(other->put("0000000000000008/5-4-0123456789abcdef/0", bytes_of("of another run"), {}));
  ASSERT_TRUE(write_file(folder_ / "precious", "x"));
  ASSERT_TRUE(write_file(folder_ / "weight_store.json", R"({"format": 1, "place": ")" + at_shared().place +
                                                            R"(", "objects": [
      {"name": "0000000000000007/5-4-0123456789abcdef", "chunks": 1},
      {"name": "0000000000000008/5-4-0123456789abcdef", "chunks": 1},
      {"name": "0000000000000007/../../precious", "chunks": 1}, {"name": 3}, 4]})"));
  const auto writer = this->writer(store());
  EXPECT_TRUE(within(30s, [&] { return stored_files() == 1; }));
  EXPECT_TRUE(other->get("0000000000000008/5-4-0123456789abcdef/0", 100, {}).has_value());
  EXPECT_TRUE(fs::exists(folder_ / "precious"));
}

// The run goes on with another place, or with none.
TEST_F(StoreTest, what_lies_at_another_place_than_now_is_removed_there) {
  for (const bool has_next : {true, false}) {
    {
      auto flaky = std::make_unique<Flaky>(store());
      flaky->fails_to_remove = true;
      auto writer = this->writer(std::move(flaky));
      publish(has_next ? 1 : 3);
      writer->offer(publish(has_next ? 2 : 4));
      ASSERT_TRUE(wrote(*writer, 1));
    }
    EXPECT_GT(stored_files(), 0u);
    ASSERT_TRUE(make_directories(folder_ / "next"));
    const StoreSettings next{.place = has_next ? (folder_ / "next").string() : ""};
    auto writer = std::move(*StoredVersions::open(next, {.run = 7, .record = folder_ / "weight_store.json"}));
    ASSERT_NE(writer, nullptr);
    EXPECT_TRUE(within(30s, [&] { return stored_files() == 0; }));
    writer = nullptr;
    EXPECT_FALSE(fs::exists(folder_ / "weight_store.json"));
    EXPECT_EQ(*StoredVersions::open({}, {.run = 7, .record = folder_ / "weight_store.json"}), nullptr);
  }
}

// A share that is gone, and the folder that it was mounted on.
TEST_F(StoreTest, a_folder_that_is_not_there_or_is_another_one_by_now_is_not_written) {
  EXPECT_THAT(probe_store({.place = (folder_ / "missing").string()}).to_string(), HasSubstr("make it, or mount"));
  const auto store = this->store();
  fs::rename(folder_ / "shared", folder_ / "away");
  EXPECT_EQ(store->put("run/a/0", bytes_of("x"), {}).code(), Code::kUnavailable);
  ASSERT_TRUE(make_folder(folder_ / "shared"));
  EXPECT_EQ(store->put("run/a/0", bytes_of("x"), {}).code(), Code::kUnavailable);
  EXPECT_EQ(stored_files(), 0u);
}

TEST_F(StoreTest, what_a_killed_writer_had_begun_goes_with_its_object) {
  const auto store = this->store();
  ASSERT_TRUE(store->put("run/a/0", bytes_of("x"), {}));
  ASSERT_TRUE(write_file(folder_ / "shared/run/a/.0.123.tmp", "part"));
  EXPECT_TRUE(store->remove("run/a/0", {}));
  EXPECT_FALSE(fs::exists(folder_ / "shared/run"));
}

TEST_F(StoreTest, what_cannot_be_written_is_counted_and_tried_again_with_the_next_version) {
  auto flaky = std::make_unique<Flaky>(store());
  Flaky& it = *flaky;
  it.puts_left = 0;
  auto writer = this->writer(std::move(flaky));
  publish(1);
  writer->offer(publish(2));
  ASSERT_TRUE(within(30s, [&] { return writer->counts().failures == 1; }));
  EXPECT_THAT(writer->counts().failure, HasSubstr("it is full"));
  it.puts_left = -1;
  const auto offer = publish(3);
  writer->offer(offer);
  ASSERT_TRUE(wrote(*writer, offer->deltas().size()));
  EXPECT_EQ(writer->counts().failure, "");
  // What cannot be removed at the end is left to the next start, by its record.
  it.fails_to_remove = true;
  writer = nullptr;
  EXPECT_EQ(stored_files(), offer->deltas().size());
  writer = this->writer(store());
  EXPECT_TRUE(within(30s, [&] { return stored_files() == 0; }));
}

// A version is announced and stored at the same time, so its chunks may come later than the question.
TEST_F(StoreTest, a_chunk_that_is_not_there_yet_is_waited_for_and_a_store_that_fails_is_left_alone) {
  publish(1);
  const auto offer = publish(2);
  const auto& object = *offer->deltas().begin()->second;
  StoredChunks reader(store(), {.run = 7, .deltas = true, .seconds = 60}, clock_);
  EXPECT_TRUE(reader.has(object.manifest));
  EXPECT_FALSE(reader.has(offer->whole())) << "which is not stored beside deltas";
  ASSERT_TRUE(reader.ask(object.manifest, 0));
  auto writer = this->writer(store());
  writer->offer(offer);
  std::vector<StoredChunks::Come> come;
  ASSERT_TRUE(within(30s, [&] { return !(come = reader.take()).empty(); }));
  ASSERT_TRUE(come[0].bytes.has_value()) << come[0].bytes.error().to_string();
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(*come[0].bytes)), object.bytes));

  writer = nullptr;
  StoredChunks hasty(store(), {.run = 7, .deltas = true, .seconds = 0.05}, clock_);
  ASSERT_TRUE(hasty.ask(object.manifest, 0));
  ASSERT_TRUE(within(30s, [&] { return !(come = hasty.take()).empty(); }));
  EXPECT_EQ(come[0].bytes.error().code(), Code::kNotFound);
  hasty.gave_up();
  EXPECT_FALSE(hasty.has(object.manifest));
  EXPECT_EQ(hasty.given_up(), 1u);
}

TEST_F(StoreTest, a_reader_that_waits_ends_at_once) {
  publish(1);
  const auto offer = publish(2);
  auto reader = std::make_unique<StoredChunks>(store(), StoredChunks::Settings{.run = 7, .seconds = 3600}, clock_);
  ASSERT_TRUE(reader->ask(offer->deltas().begin()->second->manifest, 0));
  const Time before = clock_.now();
  reader = nullptr;
  EXPECT_LT(clock_.now() - before, 60s);
}

}  // namespace
}  // namespace tandem::weights_sync
