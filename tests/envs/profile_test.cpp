#include "envs/episodes/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Profiles, those_of_the_folder_are_the_built_in_ones) {
  for (const auto& [name, profile] : {std::pair("small", small_profile()), std::pair("default", default_profile())}) {
    const auto file = fs::path(TANDEM_SOURCE_DIR) / "profiles" / (std::string(name) + ".yaml");
    const auto read = read_profile(file);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(*read, profile) << name << " should be\n" << to_yaml(profile);
  }
}

TEST(Profiles, what_is_written_is_read_again_with_the_same_digest) {
  Profile profile = default_profile();
  profile.system = "Mind the \"quotes\": # and\nlines.";
  profile.call_seconds = 0.25;
  Scratch folder;
  folder.put("profile.yaml", to_yaml(profile));
  const auto read = profile_of_model(folder.path, small_profile());
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, profile);
  EXPECT_EQ(digest_of(*read), digest_of(profile));
  EXPECT_NE(digest_of(profile), digest_of(default_profile()));
}

TEST(Profiles, mistakes_are_told_with_their_places) {
  Scratch folder;
  folder.put("p.yaml", "version: 2\ntools: [read_file, wirte]\noutput_bytes: 5\nsytem: x\n");
  const auto read = read_profile(folder.path / "p.yaml");
  ASSERT_FALSE(read);
  for (const char* part : {"p.yaml:1", "p.yaml:2", "wirte", "p.yaml:3", "p.yaml:4", "sytem"})
    EXPECT_THAT(read.error().message(), HasSubstr(part));
}

TEST(Profiles, differences_name_each_key) {
  Profile learned = small_profile(), used = learned;
  EXPECT_TRUE(differences(learned, used).empty());
  std::erase(used.tools, "grep");
  used.tools.emplace_back("todo_write");
  used.output_bytes = 9;
  EXPECT_EQ(differences(learned, used), (std::vector<std::string>{"tools: grep is not offered",
                                                                  "tools: todo_write is offered, which it has not met",
                                                                  "output_bytes: 9, and it learned with 2000"}));
}

TEST(Profiles, a_compaction_is_read_written_and_told_apart_and_none_keeps_the_digest) {
  Scratch folder;
  folder.put("p.yaml", "version: 1\ntools: [read_file]\ncompaction: {at: 6000}\n");
  const auto usual = read_profile(folder.path / "p.yaml");
  ASSERT_TRUE(usual) << usual.error().to_string();
  EXPECT_EQ(usual->compaction,
            (Compaction{.at = 6000, .most = 8, .request = kCompactionRequest, .heading = kCompactionHeading}));
  Profile own = *usual;
  own.compaction = {.at = 900, .most = 2, .request = "Sum \"it\" up:\nbriefly.", .heading = "So far:"};
  folder.put("profile.yaml", to_yaml(own));
  EXPECT_EQ(*profile_of_model(folder.path, small_profile()), own);
  EXPECT_NE(digest_of(own), digest_of(*usual));
  EXPECT_EQ(differences(*usual, own),
            std::vector<std::string>{"compaction: at 900 tokens, and it learned with 6000 (0: never)"});
  own.compaction.at = 6000;
  EXPECT_EQ(differences(*usual, own),
            std::vector<std::string>{"compaction: another number of summaries, or other words"});
  Profile none = *usual;
  none.compaction = {};
  EXPECT_THAT(to_yaml(none), Not(HasSubstr("compaction")));

  folder.put("wrong.yaml",
             "version: 1\ntools: [read_file]\ncompaction: {at: 3, most: 999, request: '', headding: x}\n");
  const auto wrong = read_profile(folder.path / "wrong.yaml");
  ASSERT_FALSE(wrong);
  for (const char* part : {"at", "most", "request has 1 to 4096 bytes", "headding", "heading"})
    EXPECT_THAT(wrong.error().message(), HasSubstr(part));
  folder.put("without.yaml", "version: 1\ntools: [read_file]\ncompaction: {most: 3}\n");
  EXPECT_THAT(read_profile(folder.path / "without.yaml").error().message(), HasSubstr("compaction needs at"));
}

}  // namespace
}  // namespace tandem::envs
