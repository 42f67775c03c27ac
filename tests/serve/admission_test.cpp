#include "serve/admission.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

Offer offer(AnswerId id, Priority priority = Priority::kInteractive, std::string key = "") {
  return {.answers = {id}, .priority = priority, .key = std::move(key)};
}

TEST(Admission, starts_what_there_are_slots_for_and_the_rest_as_they_get_free) {
  Admission admission({.slots = 2, .queue = 10});
  EXPECT_EQ(admission.step(offer(1, Priority::kAutocomplete), {}).start, std::vector<AnswerId>{1});
  EXPECT_EQ(admission.step(offer(2, Priority::kAutocomplete), {}).start, std::vector<AnswerId>{2});
  EXPECT_TRUE(admission.step(offer(3, Priority::kAutocomplete), {}).start.empty());
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(admission.step(Ended{1}, {}).start, std::vector<AnswerId>{3});
  EXPECT_TRUE(admission.step(Ended{99}, {}).start.empty()) << "an unknown answer frees nothing";
}

TEST(Admission, a_full_queue_refuses_whole_requests_and_says_when_to_come_again) {
  Admission admission({.slots = 1, .queue = 2});
  Time now{};
  EXPECT_EQ(admission.step(offer(1), now).start.size(), 1u);
  const Offer three{.answers = {2, 3, 4}};
  const auto refused = admission.step(three, now);
  ASSERT_TRUE(refused.refused);
  EXPECT_GE(*refused.refused, 1s);
  EXPECT_EQ(admission.waiting(), 0) << "no part of a refused request waits";
  EXPECT_FALSE(admission.step(Offer{.answers = {5, 6}}, now).refused);
  EXPECT_TRUE(admission.step(offer(7), now).refused);
}

TEST(Admission, a_better_class_goes_first_and_none_starves) {
  Admission admission({.slots = 1, .queue = 10000});
  std::map<AnswerId, Priority> of;
  AnswerId next = 1;
  admission.step(offer(next++), {});
  for (int i = 0; i < 500; ++i) {
    for (const auto priority : {Priority::kBatch, Priority::kAgent, Priority::kInteractive, Priority::kAutocomplete}) {
      of[next] = priority;
      admission.step(offer(next++, priority), {});
    }
  }
  std::map<Priority, int> started;
  AnswerId running = 1;
  for (int i = 0; i < 850; ++i) {
    const auto actions = admission.step(Ended{running}, {});
    ASSERT_EQ(actions.start.size(), 1u);
    running = actions.start[0];
    ++started[of.at(running)];
  }
  EXPECT_EQ(started[Priority::kAutocomplete], 500) << "64 of 85 starts, until none is left";
  EXPECT_GT(started[Priority::kInteractive], 3 * started[Priority::kAgent]);
  EXPECT_GT(started[Priority::kAgent], 3 * started[Priority::kBatch]);
  EXPECT_GT(started[Priority::kBatch], 5);
}

TEST(Admission, keys_of_a_class_take_turns) {
  Admission admission({.slots = 1, .queue = 1000});
  admission.step(offer(1), {});
  for (AnswerId id = 100; id < 200; ++id) admission.step(offer(id, Priority::kInteractive, "many"), {});
  admission.step(offer(2, Priority::kInteractive, "few"), {});
  EXPECT_EQ(admission.step(Ended{1}, {}).start, std::vector<AnswerId>{100});
  EXPECT_EQ(admission.step(Ended{100}, {}).start, std::vector<AnswerId>{2});
}

TEST(Admission, a_class_leaves_slots_for_those_above_it) {
  Admission admission({.slots = 10, .queue = 1000});
  for (AnswerId id = 1; id <= 20; ++id) admission.step(offer(id, Priority::kBatch), {});
  EXPECT_EQ(admission.running(), 7);
  EXPECT_EQ(admission.step(offer(100, Priority::kAutocomplete), {}).start, std::vector<AnswerId>{100});
}

TEST(Admission, the_first_class_begins_beside_others_where_all_slots_are_taken) {
  Admission admission({.slots = 4, .queue = 100});
  for (AnswerId id = 1; id <= 4; ++id)
    admission.step(offer(id, id <= 3 ? Priority::kInteractive : Priority::kAutocomplete), {});
  ASSERT_EQ(admission.running(), 4);
  EXPECT_TRUE(admission.step(offer(10, Priority::kInteractive), {}).start.empty());
  EXPECT_EQ(admission.step(offer(11, Priority::kAutocomplete), {}).start, std::vector<AnswerId>{11});
  EXPECT_TRUE(admission.step(offer(12, Priority::kAutocomplete), {}).start.empty()) << "half of the slots, no more";
  EXPECT_TRUE(admission.step(Ended{1}, {}).start.empty()) << "the engine has four to sample";
  EXPECT_EQ(admission.step(Ended{11}, {}).start.size(), 1u);
}

// A flood of batch requests had the only queue full, and completions at the cursor got 429.
TEST(Admission, a_flood_of_one_class_refuses_nothing_of_a_better_one) {
  Admission admission({.slots = 4, .queue = 100});
  AnswerId next = 1;
  int taken = 0;
  while (!admission.step(offer(next++, Priority::kBatch), {}).refused) ASSERT_LT(++taken, 200);
  for (const auto priority : {Priority::kAgent, Priority::kInteractive, Priority::kAutocomplete})
    EXPECT_FALSE(admission.step(offer(next++, priority), {}).refused) << name_of(priority);
  EXPECT_TRUE(admission.step(offer(next++, Priority::kBatch), {}).refused);
  // And each is bounded itself.
  taken = 0;
  while (!admission.step(offer(next++, Priority::kInteractive), {}).refused) ASSERT_LT(++taken, 200);
  EXPECT_LE(admission.waiting(), 2 * 100 + 8);
}

// Requests at four times the rate that can be answered: those that are taken on wait no longer than they may, and no
// slot stands free for it.
TEST(Admission, what_would_wait_too_long_is_refused_at_once_and_the_rest_is_in_time) {
  for (const double load : {0.5, 1.0, 4.0, 20.0}) {
    AdmissionSettings settings{.slots = 8, .queue = 1000};
    settings.longest_wait[static_cast<size_t>(Priority::kInteractive)] = 2s;
    Admission admission(settings);
    Random random(7);
    Time now{};
    std::map<AnswerId, Time> sent;
    std::multimap<Time, AnswerId> ends;
    int answered = 0, refused = 0, late = 0;
    AnswerId next = 1;
    const auto begin = [&](const AdmissionActions& actions) {
      for (const AnswerId id : actions.start) {
        late += now - sent.at(id) > 3s;
        ends.emplace(now + from_seconds(0.5 + random.uniform()), id);  // a second in the mean, so 7 a second at most
      }
    };
    for (int tick = 0; tick < 20'000; ++tick, now += 10ms) {
      while (!ends.empty() && ends.begin()->first <= now) {
        const AnswerId id = ends.begin()->second;
        ends.erase(ends.begin());
        ++answered;
        begin(admission.step(Ended{id}, now));
      }
      if (!random.chance(std::min(1.0, load * 0.07))) continue;
      for (int i = 0; i < (load > 10 ? 2 : 1); ++i) {
        sent[next] = now;
        const auto actions = admission.step(offer(next++), now);
        refused += actions.refused.has_value();
        EXPECT_EQ(actions.too_late, actions.refused.has_value());
        begin(actions);
      }
    }
    const double capacity = 7.0 * 200;
    if (load <= 0.5) {
      EXPECT_EQ(refused, 0) << load;
    }
    if (load >= 4) {
      EXPECT_GT(answered, 0.97 * capacity) << load;
      EXPECT_GT(refused, 1000) << load;
    }
    EXPECT_LE(late, answered / 100) << load;
  }
}

TEST(Admission, nothing_is_foreseen_from_a_time_when_nothing_was_asked) {
  AdmissionSettings settings{.slots = 2, .queue = 10};
  settings.longest_wait.fill(1s);
  Admission admission(settings);
  Time now{};
  admission.step(offer(1, Priority::kAgent), now);
  admission.step(Ended{1}, now + 100ms);
  now += 1h;
  // Two begin, and a third waits for a tenth of a second or so.
  for (AnswerId id = 2; id <= 4; ++id) EXPECT_FALSE(admission.step(offer(id, Priority::kAgent), now).refused) << id;
}

TEST(Admission, nothing_is_started_while_it_is_held) {
  Admission admission({.slots = 2, .queue = 100});
  EXPECT_EQ(admission.step(offer(1), {}).start.size(), 1u);
  admission.step(Hold{true}, {});
  EXPECT_TRUE(admission.step(offer(2), {}).start.empty());
  EXPECT_TRUE(admission.step(Ended{1}, {}).start.empty());
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(admission.step(Hold{false}, {}).start, std::vector<AnswerId>{2});
}

TEST(Admission, random_requests_that_come_end_and_go_lose_no_slot) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    const int slots = 1 + static_cast<int>(random.below(8));
    Admission admission({.slots = slots, .queue = 50});
    std::set<AnswerId> running, waiting;
    AnswerId next = 1;
    Time now{};
    const auto take = [&](const AdmissionActions& actions) {
      for (const AnswerId id : actions.start) {
        EXPECT_EQ(waiting.erase(id), 1u);
        EXPECT_TRUE(running.insert(id).second);
      }
    };
    for (int i = 0; i < 2000; ++i) {
      now += 10ms;
      if (random.chance(0.5)) {
        Offer one{.priority = static_cast<Priority>(random.below(4)), .key = std::to_string(random.below(3))};
        for (uint64_t k = 0; k <= random.below(4); ++k) one.answers.push_back(next++);
        const auto actions = admission.step(one, now);
        if (!actions.refused) waiting.insert(one.answers.begin(), one.answers.end());
        take(actions);
      } else {
        auto& from = random.chance(0.2) && !waiting.empty() ? waiting : running;
        if (from.empty()) continue;
        const AnswerId id = *std::next(from.begin(), static_cast<long>(random.below(from.size())));
        from.erase(id);
        take(admission.step(Ended{id}, now));
      }
      ASSERT_EQ(admission.running(), static_cast<int>(running.size()));
      ASSERT_EQ(admission.waiting(), static_cast<int>(waiting.size()));
      ASSERT_LE(admission.running(), slots + slots / 2);
    }
    // All that waits is started once what runs has ended.
    while (!running.empty()) {
      const AnswerId id = *running.begin();
      running.erase(id);
      take(admission.step(Ended{id}, now));
    }
    EXPECT_TRUE(waiting.empty());
  }
}

}  // namespace
}  // namespace tandem::serve
