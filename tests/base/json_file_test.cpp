#include "base/json_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

namespace tandem {
namespace {

using testing::HasSubstr;

class JsonFileTest : public testing::Test {
 protected:
  ~JsonFileTest() override { fs::remove(path_); }
  Result<Json> read(std::string_view text, int newest) {
    EXPECT_TRUE(write_file(path_, text));
    return read_json_file(path_, newest);
  }
  fs::path path_ = fs::temp_directory_path() / ("tandem-json-file-" + std::to_string(::getpid()));
};

TEST_F(JsonFileTest, what_is_written_with_a_format_is_read_without_it) {
  const Json object = {{"state", "done"}, {"step", 3}};
  const std::string text = dump_json(with_format(object, 2));
  EXPECT_TRUE(text.starts_with(R"({"format":2,)")) << text;
  EXPECT_EQ(*read(text, 2), object);
  EXPECT_EQ(*read(text, 3), object) << "the format before is read, too";
}

TEST_F(JsonFileTest, a_file_that_does_not_say_its_format_is_of_the_first) {
  const Json object = {{"step", 3}};
  EXPECT_EQ(*read(dump_json(object), 1), object);
  EXPECT_EQ(*read(dump_json(object), 2), object);
  EXPECT_THAT(read(dump_json(object), 3).error().to_string(), HasSubstr("format 1; this program reads formats 2 to 3"));
}

TEST_F(JsonFileTest, another_format_is_refused_with_the_file_its_format_and_those_that_are_read) {
  for (const char* format : {"2", "0", "-1", "1.5", "\"1\"", "null"}) {
    const auto refused = read(R"({"format":)" + std::string(format) + "}", 1);
    ASSERT_FALSE(refused) << format;
    EXPECT_EQ(refused.error().code(), Code::kInvalid);
    EXPECT_THAT(refused.error().to_string(),
                HasSubstr(path_.string() + ": is of format " + format + "; this program reads format 1"));
  }
}

TEST_F(JsonFileTest, what_holds_no_object_names_the_file) {
  for (const char* text : {"[]", "5", ""}) EXPECT_THAT(read(text, 1).error().to_string(), HasSubstr(path_.string()));
  EXPECT_EQ(read("[]", 1).error().code(), Code::kCorrupt);
  fs::remove(path_);
  EXPECT_EQ(read_json_file(path_, 1).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tandem
