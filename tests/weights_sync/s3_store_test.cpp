// A bucket as a store of weights, over real HTTP.
#include "weights_sync/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/weights_sync/bucket_server.h"

namespace tandem::weights_sync {
namespace {

using testing::HasSubstr;

class S3Store : public testing::Test {
 protected:
  StoreSettings at(const std::string& place) const { return {.place = place, .endpoint = server_.url()}; }
  std::unique_ptr<ObjectStore> store(const std::string& place = "s3://bucket/weights") const {
    return std::move(*open_store(at(place)));
  }
  static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
  BucketServer server_;
};

TEST_F(S3Store, keeps_what_is_put_and_forgets_what_is_removed) {
  const std::string chunk(4 << 20, '\0');
  ASSERT_TRUE(store()->put("run/1-0-ab/0", bytes_of(chunk), {}));
  EXPECT_EQ(server_.objects().begin()->first, "/bucket/weights/run/1-0-ab/0");
  EXPECT_EQ(*store()->get("run/1-0-ab/0", chunk.size(), {}), chunk);
  EXPECT_EQ(store()->get("run/1-0-ab/0", chunk.size() - 1, {}).error().code(), Code::kExhausted);
  EXPECT_EQ(store()->get("run/1-0-ab/1", 10, {}).error().code(), Code::kNotFound);
  ASSERT_TRUE(store("s3://bucket")->put("a b/+%", bytes_of("odd"), {}));
  EXPECT_EQ(*store("s3://bucket/")->get("a b/+%", 3, {}), "odd");
  for (const char* name : {"run/1-0-ab/0", "run/1-0-ab/0"}) EXPECT_TRUE(store()->remove(name, {}));
  EXPECT_EQ(server_.objects().size(), 1u);
  EXPECT_TRUE(probe_store(at("s3://bucket/weights")));
  EXPECT_EQ(server_.objects().size(), 1u) << "the probe is removed";
}

TEST_F(S3Store, what_is_refused_is_told_by_its_code_and_never_with_the_key) {
  const auto why = [&](const std::string& place) { return probe_store(at(place)); };
  EXPECT_THAT(why("s3://other/x").to_string(), HasSubstr("status 404 (NoSuchBucket)"));
  ::setenv("AWS_SECRET_ACCESS_KEY", "another secret", 1);
  const Status refused = why("s3://bucket");
  EXPECT_EQ(refused.code(), Code::kUnfit);
  EXPECT_THAT(refused.to_string(), HasSubstr("status 403 (SignatureDoesNotMatch)"));
  EXPECT_THAT(refused.to_string(), HasSubstr("look at the key, its rights, the region and the clock"));
  EXPECT_THAT(refused.to_string(), testing::Not(HasSubstr("secret")));
  ::setenv("AWS_SECRET_ACCESS_KEY", "a secret", 1);
  for (const int status : {408, 429, 500, 503}) {
    server_.status = status;
    EXPECT_EQ(store()->put("x", bytes_of("x"), {}).code(), Code::kUnavailable) << status;
    EXPECT_EQ(store()->get("x", 1, {}).error().code(), Code::kUnavailable) << status;
  }
  server_.status = 0;
  ::unsetenv("AWS_ACCESS_KEY_ID");
  const auto keyless = open_store(at("s3://bucket"));
  ASSERT_FALSE(keyless.has_value());
  EXPECT_EQ(keyless.error().code(), Code::kUnfit);
  EXPECT_THAT(keyless.error().to_string(), HasSubstr("the environment has no AWS_ACCESS_KEY_ID"));
  ::setenv("AWS_ACCESS_KEY_ID", "AK\nTEST", 1);
  EXPECT_THAT(open_store(at("s3://bucket")).error().message(), HasSubstr("has a line end"));
}

TEST_F(S3Store, a_server_that_is_not_there_is_an_error_that_says_so) {
  const Status away = probe_store({.place = "s3://bucket", .endpoint = "http://127.0.0.1:1"});
  EXPECT_EQ(away.code(), Code::kUnfit);
  EXPECT_THAT(away.message(), HasSubstr("s3://bucket cannot be used"));
}

}  // namespace
}  // namespace tandem::weights_sync
