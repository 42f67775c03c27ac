#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "base/text.h"

namespace tandem {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox 4x32 10 rounds).
TEST(Philox, gives_the_published_known_answers) {
  EXPECT_EQ(philox4x32(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~0ull, ~0ull, ~0ull), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, below_stays_within_its_bound_and_reaches_every_value) {
  Random random(7);
  std::array<int, 5> seen{};
  for (int i = 0; i < 1000; ++i) ++seen.at(random.below(5));
  for (const int count : seen) EXPECT_GT(count, 100);
}

TEST(Text, suggests_the_nearest_name_and_stays_silent_for_strangers) {
  const std::vector<std::string_view> names = {"group_size", "weight_decay", "steps"};
  EXPECT_EQ(nearest("gruop_size", names), "group_size");
  EXPECT_EQ(nearest("wieght_decay", names), "weight_decay");
  EXPECT_EQ(nearest("temperature", names), "");
}

TEST(Json, refuses_a_key_that_stands_twice) {
  const auto parsed = parse_json(R"({"a":1,"b":{"a":2},"a":3})");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message().find("\"a\" stands twice"), std::string::npos);
}

TEST(Json, says_what_is_wrong_in_words_that_are_no_parsers) {
  const auto said = [](const char* text) { return parse_json(text).error().message(); };
  EXPECT_EQ(said(R"({"a": no})"), "not JSON at line 1 column 8: cannot read '\"a\": no'");
  EXPECT_EQ(said(R"({"a":)"), "not JSON at line 1 column 6: the text ends here, expected '[', '{', or another value");
  EXPECT_EQ(said("{b"), "not JSON at line 1 column 2: cannot read '{b', expected a text in double quotes");
  EXPECT_EQ(said("{} x"), "not JSON at line 1 column 4: cannot read '{} x', expected the end");
  EXPECT_EQ(said("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n"),
            "is a pointer of Git LFS, not the file itself");
}

TEST(Json, names_line_and_column_of_a_mistake) {
  const auto parsed = parse_json("{\n  \"a\": }");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message().find("line 2"), std::string::npos) << parsed.error().message();
}

TEST(Json, a_number_that_no_double_holds_is_refused_and_not_thrown) {
  for (const char* text : {"{\"x\": 2.5e3002}", "[-1e999]", "1e400"}) {
    const auto parsed = parse_json(text);
    ASSERT_FALSE(parsed);
    EXPECT_NE(parsed.error().message().find("number overflow"), std::string::npos) << parsed.error().message();
    EXPECT_FALSE(parse_json(text));
  }
}

TEST(Json, refuses_bottomless_nesting) { EXPECT_FALSE(parse_json(std::string(200, '[') + std::string(200, ']'))); }

TEST(File, a_private_folder_is_made_or_found_and_nothing_else_is_taken_for_one) {
  const fs::path root = fs::temp_directory_path() / ("tandem-private-folder-" + std::to_string(::getpid()));
  ASSERT_TRUE(make_directories(root).ok());
  const fs::path folder = root / "mine";
  for (int again = 0; again < 2; ++again) EXPECT_TRUE(make_private_folder(folder).ok());
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  fs::create_directory_symlink(folder, root / "link");
  EXPECT_EQ(make_private_folder(root / "link").code(), Code::kUnfit);
  ASSERT_TRUE(write_file(root / "file", "").ok());
  EXPECT_EQ(make_private_folder(root / "file").code(), Code::kUnfit);
  fs::permissions(folder, fs::perms::group_read, fs::perm_options::add);
  EXPECT_EQ(make_private_folder(folder).code(), Code::kUnfit);
  fs::remove_all(root);
}

TEST(File, write_replaces_the_whole_content_and_leaves_no_temporary) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-file-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  ASSERT_TRUE(make_directories(folder));
  ASSERT_TRUE(write_file(folder / "a", "first"));
  ASSERT_TRUE(write_file(folder / "a", "second"));
  EXPECT_EQ(*read_file(folder / "a"), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  EXPECT_EQ(read_file(folder / "a", 3).error().code(), Code::kInvalid);
  fs::remove_all(folder);
}

Result<int> half(int number) {
  if (number % 2 != 0) return fail(Status::invalid("odd"));
  return number / 2;
}
Status quarter(int number, int& out) {
  out = TRY(half(TRY(half(number))));
  return {};
}

TEST(Files, what_is_no_regular_file_is_refused_without_waiting_for_it) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-no-file-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  ASSERT_TRUE(make_directories(folder / "folder"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder / "link");
  for (const char* name : {"pipe", "link", "folder"}) {
    const auto read = read_file(folder / name);
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.error().to_string(), (folder / name).string() + ": is not a regular file");
    EXPECT_FALSE(MappedFile::open(folder / name)) << name;
  }
  EXPECT_EQ(read_file(folder / "none").error().code(), Code::kNotFound);
  fs::remove_all(folder);
}

TEST(Status, try_passes_values_on_and_returns_errors) {
  int out = 0;
  EXPECT_TRUE(quarter(8, out));
  EXPECT_EQ(out, 2);
  EXPECT_EQ(quarter(6, out).message(), "odd");
}

}  // namespace
}  // namespace tandem
