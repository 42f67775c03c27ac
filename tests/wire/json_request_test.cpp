// Keys of foreign servers, and the URLs below theirs. How a server is asked is tested where one is: rewards, teachers.
#include "wire/json_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "wire/completions_url.h"

namespace tandem::wire {
namespace {

using testing::HasSubstr;

TEST(ServerKeys, are_in_one_place_and_named_where_they_are_missing) {
  EXPECT_EQ(*read_server_key("", ""), "");
  EXPECT_THAT(read_server_key("TANDEM_NO_SUCH_VARIABLE", "").error().message(), HasSubstr("TANDEM_NO_SUCH_VARIABLE"));
  EXPECT_EQ(read_server_key("A", "b").error().code(), Code::kInvalid);
  const fs::path file = fs::temp_directory_path() / ("tandem-key-" + std::to_string(::getpid()));
  ASSERT_TRUE(write_file(file, " sk-1 \nsecond line\n"));
  EXPECT_EQ(*read_server_key("", file), "sk-1");
  ASSERT_TRUE(write_file(file, "\nsk-1"));
  EXPECT_THAT(read_server_key("", file).error().message(), HasSubstr("has no key in its first line"));
  fs::remove(file);
  EXPECT_EQ(read_server_key("", file).error().code(), Code::kNotFound);
  ::setenv("TANDEM_KEY_OF_A_TEST", " sk-2", 1);
  EXPECT_EQ(*read_server_key("TANDEM_KEY_OF_A_TEST", ""), "sk-2");
  ::unsetenv("TANDEM_KEY_OF_A_TEST");
}

TEST(ApiUrl, is_below_v1_where_a_host_stands_alone) {
  for (const char* url : {"http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/models"})
    EXPECT_EQ(api_url(url, "/models"), "http://h:1/v1/models") << url;
  EXPECT_EQ(api_url("https://h/api/openai", "/completions"), "https://h/api/openai/completions");
}

}  // namespace
}  // namespace tandem::wire
