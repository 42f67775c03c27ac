#include "serve/response_store.h"

#include <gtest/gtest.h>

namespace tandem::serve {
namespace {

Json items_of(const std::string& text) { return Json::array({{{"content", text}}}); }
const Json kBody = {{"id", "r"}};

TEST(ResponseStore, goes_on_from_an_answer_with_all_before_it) {
  ResponseStore store(1 << 20);
  store.add("r1", "k", "", items_of("one"), kBody);
  store.add("r2", "k", "r1", items_of("two"), kBody);
  store.add("r3", "k", "r1", items_of("three"), kBody);
  EXPECT_EQ(store.items_until("r2", "k")->size(), 2u);
  EXPECT_EQ((*store.items_until("r3", "k"))[0]["content"], "one");
  EXPECT_EQ((*store.items_until("r3", "k"))[1]["content"], "three");
  EXPECT_FALSE(store.items_until("r2", "another key"));
  EXPECT_FALSE(store.body("r2", "another key"));
  EXPECT_FALSE(store.remove("r2", "another key"));
  EXPECT_FALSE(store.items_until("none", "k"));
  EXPECT_TRUE(store.remove("r1", "k"));
  EXPECT_FALSE(store.body("r1", "k"));
  EXPECT_EQ(store.items_until("r2", "k")->size(), 2u) << "what went on from it keeps what it held";
}

TEST(ResponseStore, is_bounded_and_the_oldest_answers_go_first) {
  ResponseStore store(20'000);
  std::string previous;
  for (int i = 0; i < 1000; ++i) {
    const auto id = "r" + std::to_string(i);
    // Some go on from the one before, which lives on in them.
    store.add(id, "k", i % 3 == 0 ? "" : previous, items_of(std::string(500, 'x')), kBody);
    previous = id;
    EXPECT_LE(store.bytes(), 20'000u);
  }
  EXPECT_FALSE(store.body("r0", "k"));
  EXPECT_TRUE(store.body("r999", "k"));
  store.add("large", "k", "", items_of(std::string(30'000, 'x')), kBody);
  EXPECT_FALSE(store.body("large", "k"));
  EXPECT_TRUE(store.body("r999", "k")) << "and it takes nothing away";
}

TEST(ResponseStore, a_conversation_without_end_ends_and_frees_its_memory) {
  ResponseStore store(size_t{1} << 30);
  std::string previous;
  for (size_t i = 0; i < ResponseStore::kMostTurns + 10; ++i) {
    const auto id = "r" + std::to_string(i);
    store.add(id, "k", previous, items_of("x"), kBody);
    previous = id;
  }
  EXPECT_EQ(store.answers(), ResponseStore::kMostTurns);
  for (size_t i = 0; i < ResponseStore::kMostTurns; ++i) EXPECT_TRUE(store.remove("r" + std::to_string(i), "k"));
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(ResponseStore, of_no_size_keeps_nothing) {
  ResponseStore store(0);
  EXPECT_FALSE(store.keeps());
  store.add("r", "k", "", items_of("x"), kBody);
  EXPECT_EQ(store.answers(), 0u);
}

}  // namespace
}  // namespace tandem::serve
