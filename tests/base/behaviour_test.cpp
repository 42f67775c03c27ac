#include "base/behaviour.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Behaviour, is_the_same_when_it_was_written_and_read) {
  const Behaviour behaviour{.turns = 3,
                            .calls = 5,
                            .parallel_calls = 2,
                            .parallel_turns = 1,
                            .refused_calls = 1,
                            .edits = 2,
                            .edits_undone = 1,
                            .reads_before_edit = 4,
                            .searches_before_edit = 1,
                            .searches = 2,
                            .seconds_to_edit = 1.5,
                            .seconds = 2.25};
  const auto again = behaviour_from_json(*parse_json(dump_json(to_json(behaviour))));
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(*again, behaviour);
}

TEST(Behaviour, of_before_a_figure_was_counted_has_0_there) {
  const auto behaviour = behaviour_from_json({{"edits", 2}, {"seconds_to_edit", 0.5}});
  ASSERT_TRUE(behaviour);
  EXPECT_EQ(*behaviour, (Behaviour{.edits = 2, .seconds_to_edit = 0.5}));
}

TEST(Behaviour, with_impossible_numbers_is_refused_by_name) {
  for (const char* text : {R"({"edits": -1})", R"({"edits": 1e300})", R"({"edits": "2"})", R"({"edits": null})"}) {
    const auto behaviour = behaviour_from_json(*parse_json(text));
    ASSERT_FALSE(behaviour) << text;
    EXPECT_NE(behaviour.error().message().find("edits"), std::string::npos) << behaviour.error().message();
  }
  EXPECT_FALSE(behaviour_from_json(Json::array()));
}

TEST(BehaviourSums, means_are_of_what_each_is_a_share_of) {
  BehaviourSums sums;
  sums.add(Behaviour{.turns = 4, .calls = 6, .parallel_calls = 3, .edits = 1, .seconds_to_edit = 2, .seconds = 8});
  sums.add(Behaviour{.turns = 1, .calls = 4, .parallel_calls = 4, .refused_calls = 2, .seconds = 2});
  const Json means = sums.means();
  EXPECT_EQ(means["episodes"], 2);
  EXPECT_EQ(means["calls_per_turn"], 2.0);
  EXPECT_EQ(means["parallel_share"], 0.7);
  EXPECT_EQ(means["refused_share"], 0.2);
  EXPECT_EQ(means["edits"], 0.5);
  EXPECT_EQ(means["seconds"], 5.0);
  EXPECT_EQ(means["seconds_to_edit"], 2.0) << "of the one episode with an edit";
}

TEST(BehaviourSums, what_there_is_nothing_of_is_missing) {
  BehaviourSums sums;
  sums.add(Behaviour{.turns = 1, .seconds = 1});
  const Json means = sums.means();
  EXPECT_EQ(means["calls_per_turn"], 0.0);
  EXPECT_FALSE(means.contains("parallel_share")) << means.dump();
  EXPECT_FALSE(means.contains("seconds_to_edit")) << means.dump();
}

TEST(BehaviourSums, of_all_kinds_weigh_each_episode_once) {
  std::map<std::string, BehaviourSums> by_kind;
  by_kind["echo"].add(Behaviour{.turns = 1, .calls = 3});
  for (int i = 0; i < 3; ++i) by_kind["bug"].add(Behaviour{.turns = 1, .calls = 1});
  const Json line = means_of(by_kind);
  EXPECT_EQ(line["all"]["episodes"], 4);
  EXPECT_EQ(line["all"]["calls_per_turn"], 1.5);
  EXPECT_EQ(line["kinds"]["echo"]["calls_per_turn"], 3.0);
  EXPECT_EQ(line["kinds"]["bug"]["episodes"], 3);
}

TEST(BehaviourSums, go_on_after_they_were_written_and_read) {
  BehaviourSums sums;
  sums.add(Behaviour{.turns = 2, .calls = 3, .edits = 1, .seconds = 0.1});
  auto again = BehaviourSums::sums_from_json(*parse_json(dump_json(sums.sums_to_json())));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, sums);
  EXPECT_FALSE(BehaviourSums::sums_from_json({1, 2}));
}

}  // namespace
}  // namespace tandem
