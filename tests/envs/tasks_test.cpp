#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/digest.h"
#include "base/text.h"
#include "envs/episodes/demonstration.h"
#include "envs/episodes/episode.h"
#include "envs/episodes/floors.h"
#include "envs/sandbox/host_backend.h"
#include "envs/tasks/task.h"
#include "envs/tasks/workspace/formats.h"
#include "envs/tasks/workspace/kinds.h"
#include "envs/tasks/workspace/parts.h"

namespace tandem::envs {
namespace {

Task task_of(std::string_view kind, Split split, uint64_t seed) {
  auto task = make_task({std::string(kind), split, seed});
  EXPECT_TRUE(task.has_value()) << task.error().to_string();
  return *task;
}

struct Ingredients {
  std::set<std::string> wordings, vocabulary, formats;
};

Ingredients ingredients(std::string_view kind, Split split, uint64_t count) {
  Ingredients found;
  for (uint64_t seed = 0; seed < count; ++seed) {
    const auto task = task_of(kind, split, seed);
    found.wordings.insert(task.wording);
    found.vocabulary.insert(task.vocabulary.begin(), task.vocabulary.end());
    found.formats.insert(task.formats.begin(), task.formats.end());
  }
  return found;
}

template <typename Set>
size_t shared(const Set& a, const Set& b) {
  return static_cast<size_t>(std::count_if(a.begin(), a.end(), [&](const auto& item) { return b.contains(item); }));
}

class EveryKind : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Workspace, EveryKind, testing::ValuesIn(every_kind().begin(), every_kind().end()),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EveryKind, a_task_is_a_function_of_its_spec) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto a = task_of(GetParam(), Split::kTrain, seed), b = task_of(GetParam(), Split::kTrain, seed);
    EXPECT_EQ(a.instruction, b.instruction);
    EXPECT_EQ(a.files, b.files);
  }
}

TEST_P(EveryKind, training_has_dozens_of_wordings_and_the_held_out_side_too) {
  EXPECT_GE(ingredients(GetParam(), Split::kTrain, 400).wordings.size(), 200u);
  EXPECT_GE(ingredients(GetParam(), Split::kHeldout, 200).wordings.size(), 30u);
}

TEST_P(EveryKind, the_held_out_side_shares_no_wording_word_or_format_with_training) {
  const auto train = ingredients(GetParam(), Split::kTrain, 600),
             heldout = ingredients(GetParam(), Split::kHeldout, 300);
  EXPECT_EQ(shared(train.wordings, heldout.wordings), 0u);
  EXPECT_EQ(shared(train.vocabulary, heldout.vocabulary), 0u);
  EXPECT_EQ(shared(train.formats, heldout.formats), 0u);
}

TEST_P(EveryKind, each_diagnostic_split_changes_one_thing) {
  const auto kind = GetParam();
  const auto train = ingredients(kind, Split::kTrain, 3000);
  const auto instances = ingredients(kind, Split::kHeldoutInstances, 100);
  const auto wordings = ingredients(kind, Split::kHeldoutWordings, 100);
  const auto formats = ingredients(kind, Split::kHeldoutFormats, 100);
  EXPECT_EQ(shared(instances.vocabulary, train.vocabulary), instances.vocabulary.size());
  EXPECT_EQ(shared(instances.formats, train.formats), instances.formats.size());
  EXPECT_EQ(shared(wordings.wordings, train.wordings), 0u);
  EXPECT_EQ(shared(wordings.vocabulary, train.vocabulary), wordings.vocabulary.size());
  EXPECT_EQ(shared(formats.vocabulary, train.vocabulary), 0u);
  EXPECT_EQ(shared(formats.formats, train.formats), 0u);
}

TEST_P(EveryKind, instances_of_different_splits_are_different) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 300; ++seed) seen.insert(task_of(GetParam(), Split::kTrain, seed).instruction);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_FALSE(seen.contains(task_of(GetParam(), Split::kHeldoutInstances, seed).instruction));
  }
}

TEST_P(EveryKind, tasks_are_small) {
  const bool is_find = GetParam() == "find";  // too much to be read at once is what it is about
  for (auto split : kSplits) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const auto task = task_of(GetParam(), split, seed);
      size_t bytes = 0;
      for (const auto& [path, content] : task.files) bytes += content.size() + path.size();
      EXPECT_LT(bytes, is_find ? 6000u : 800u) << task.spec.id();
      EXPECT_LT(task.instruction.size(), 260u) << task.instruction;
      EXPECT_LE(task.files.size(), is_find ? 10u : 5u);
      EXPECT_GE(task.files.size(), 1u);
      EXPECT_EQ(task.instruction.find_first_of("<{"), std::string::npos) << task.instruction;
    }
  }
}

TEST(Find, no_word_of_the_question_that_means_something_stands_in_the_file_of_its_answer) {
  for (auto split : kSplits) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const auto task = task_of("find", split, seed);
      const auto query = task.solution.turns.at(0).at(0).arguments.at("query").get<std::string>();
      const auto has_answer = [&](const auto& file) {
        return file.second.find("def " + *task.expectation.answer + "(") != std::string::npos;
      };
      const auto file = std::find_if(task.files.begin(), task.files.end(), has_answer);
      ASSERT_NE(file, task.files.end()) << task.spec.id();
      EXPECT_EQ(std::count_if(task.files.begin(), task.files.end(), has_answer), 1) << task.spec.id();
      for (const auto word : tandem::split(query, ' ')) {
        if (word.size() < 6) continue;
        EXPECT_EQ(file->second.find(word), std::string::npos) << task.spec.id() << ": " << word;
      }
    }
  }
}

TEST_P(EveryKind, the_clean_oracle_scores_one_on_every_split) {
  for (auto split : kSplits) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const auto task = task_of(GetParam(), split, 1000 + seed);
      Random random(seed);
      const auto transcript = demonstrate(task, random, {});
      ASSERT_TRUE(transcript.has_value()) << transcript.error().to_string();
      EXPECT_EQ(transcript->grade.reward, 1) << task.spec.id() << "\n" << task.instruction;
      EXPECT_TRUE(transcript->turns.back().outcomes.empty()) << "it ends with what the oracle says";
    }
  }
}

TEST_P(EveryKind, doing_nothing_scores_zero) {
  HostBackend backend;
  for (auto split : {Split::kTrain, Split::kHeldout}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const auto grade = play_floor(Floor::kNothing, task_of(GetParam(), split, seed), backend);
      ASSERT_TRUE(grade.has_value());
      EXPECT_EQ(grade->reward, 0);
    }
  }
}

TEST(Parts, half_of_the_names_that_are_practised_are_in_no_list) {
  size_t listed = 0, made_up = 0;
  std::set<std::string_view> known;
  for (auto list : {Words::kThing, Words::kAspect, Words::kProgram, Words::kPerson, Words::kPlace, Words::kAdjective,
                    Words::kStem}) {
    for (const auto word : words(list)) known.insert(word);
  }
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const auto& word : task_of("replace", Split::kTrain, seed).vocabulary) {
      EXPECT_FALSE(held_out(word)) << word;
      ++(known.contains(word) ? listed : made_up);
    }
    for (const auto split : {Split::kHeldout, Split::kHeldoutInstances}) {
      for (const auto& word : task_of("replace", split, seed).vocabulary) EXPECT_TRUE(known.contains(word)) << word;
    }
  }
  EXPECT_GT(made_up, listed / 2);
  EXPECT_GT(listed, made_up / 2);
}

TEST(Parts, both_sides_of_every_word_list_have_enough) {
  for (auto list : {Words::kThing, Words::kAspect, Words::kProgram, Words::kPerson, Words::kPlace, Words::kAdjective,
                    Words::kStem}) {
    EXPECT_GE(side(words(list), true).size(), 8u);
    EXPECT_GE(side(words(list), false).size(), 16u);
  }
}

TEST(Parts, no_file_format_is_on_both_sides) {
  const auto disjoint = [](auto formats) {
    std::set<std::string_view> train, heldout;
    for (const auto& format : formats) (format.held_out ? heldout : train).insert(format.extension);
    EXPECT_EQ(shared(train, heldout), 0u);
    EXPECT_GE(heldout.size(), 2u);
  };
  disjoint(settings_formats());
  disjoint(notes_formats());
  disjoint(records_formats());
  disjoint(code_formats());
  disjoint(script_formats());
}

// Results are compared over months: whatever changes in the generator, these tasks stay.
TEST(Tasks, the_held_out_tasks_never_move) {
  std::string all;
  for (const auto kind : task_kinds()) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto task = task_of(std::string(kind), Split::kHeldout, seed);
      all += task.instruction;
      for (const auto& [path, content] : task.files) all.append(path).append(content);
    }
  }
  EXPECT_EQ(digest_of(all).hex(), "98c33be3cdb7308daf4b954762fd602e");
}

TEST(Tasks, an_unknown_kind_is_answered_with_the_nearest) {
  const auto task = make_task({"lokup", Split::kTrain, 1});
  ASSERT_FALSE(task.has_value());
  EXPECT_THAT(task.error().message(), testing::HasSubstr("did you mean \"lookup\""));
}

TEST(Bug, the_visible_test_fails_before_and_the_hidden_ones_catch_a_hard_coded_answer) {
  HostBackend backend;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto task = task_of("bug", seed % 2 ? Split::kTrain : Split::kHeldout, seed);
    auto sandbox = backend.create({});
    ASSERT_TRUE((*sandbox)->put(task.files).ok());
    for (const auto& [path, content] : task.files) {
      if (!path.starts_with("test_")) continue;
      const auto outcome = (*sandbox)->call("run_terminal_cmd", {{"command", "python3 " + path}});
      EXPECT_NE(outcome->exit_code, 0) << task.files.begin()->second << content;
    }
    Files cheated = task.files;
    for (auto& [path, content] : cheated) {
      if (!path.starts_with("test_")) content = "def " + task.vocabulary[0] + "(*a):\n    return 1\n";
    }
    EXPECT_EQ(grade(task, cheated, "all tests pass", sandbox_runner(backend, 10))->reward, 0);
  }
}

TEST(Answers, the_value_is_accepted_in_plain_forms_and_lists_of_guesses_are_not) {
  const std::vector<std::string> others = {"blue", "99"};
  for (const char* good : {"80", " 80\n", "`80`", "\"80\"", "80.", "**80**", "The value is 80.",
                           "It is `80`, as set there", "I looked.\n80"}) {
    EXPECT_TRUE(answer_matches(good, "80", others)) << good;
  }
  for (const char* bad : {"", "8", "180", "80 or 81", "80, 99", "`80` or `81`", "port80", "80 81 82", "80.5"}) {
    EXPECT_FALSE(answer_matches(bad, "80", others)) << bad;
  }
  EXPECT_TRUE(answer_matches("It is set to amber.", "amber", {"blue"}));
  EXPECT_FALSE(answer_matches("amber or blue", "amber", {"blue"}));
}

TEST(Grades, files_must_be_exact_but_for_the_last_line_end) {
  const auto task = task_of("create", Split::kTrain, 3);
  auto files = *task.expectation.files;
  EXPECT_EQ(grade(task, files, "", nullptr)->reward, 1);
  for (auto& [path, content] : files) content.pop_back();
  EXPECT_EQ(grade(task, files, "", nullptr)->reward, 1);
  files["extra.txt"] = "";
  EXPECT_EQ(grade(task, files, "", nullptr)->reward, 0);
  EXPECT_EQ(grade(task, task.files, "I have created the file.", nullptr)->reward, 0);
}

TEST(Episodes, a_change_ends_the_episode_and_parallel_reads_come_back_in_order) {
  HostBackend backend;
  auto episode = Episode::open(task_of("set", Split::kTrain, 5), backend);
  ASSERT_TRUE(episode.has_value());
  std::vector<ParsedCall> calls;
  for (const auto& [path, content] : (*episode)->task().files)
    calls.push_back({{"read_file", {{"target_file", path}}}, ""});
  calls.push_back({{}, "Error: not readable"});
  const auto outcomes = (*episode)->turn(calls);
  ASSERT_TRUE(outcomes.has_value());
  ASSERT_EQ(outcomes->size(), calls.size());
  EXPECT_EQ(outcomes->back().output, "Error: not readable");
  EXPECT_FALSE((*episode)->over());
  ASSERT_TRUE((*episode)->call("write", {{"file_path", "new"}, {"contents", "x"}})->ok);
  EXPECT_TRUE((*episode)->over());
  EXPECT_EQ((*episode)->score("")->reward, 0);
}

TEST(Demonstrations, noise_lowers_success_and_dictated_ones_hold_the_call) {
  size_t successes = 0, dictated = 0;
  Random random(7);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto kind = task_kinds()[seed % task_kinds().size()];
    const auto transcript = demonstrate(task_of(kind, Split::kTrain, seed), random,
                                        {.random_tool = 0.2, .corrupt_argument = 0.3, .dictated = 0.2});
    ASSERT_TRUE(transcript.has_value());
    successes += transcript->grade.reward == 1;
    dictated += transcript->dictated;
    EXPECT_TRUE(transcript->turns.back().outcomes.empty()) << "it ends with what the oracle says";
  }
  EXPECT_GT(successes, 15u);
  EXPECT_LT(successes, 55u);
  EXPECT_GT(dictated, 3u);
}

}  // namespace
}  // namespace tandem::envs
