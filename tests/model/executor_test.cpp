#include "model/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "kernels/attention.h"
#include "tests/model/emulated.h"
#include "tests/model/late_executor.h"
#include "tests/model/small_adapter.h"
#include "tests/model/tiny_weights.h"

namespace tandem::model {
namespace {

// On the CPU, and on devices that are emulated: of each another order of work.
class Executors : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<Executor> make(uint64_t seed = 1) {
    const Place place{.device = *kernels::device_named(GetParam()), .threads = 2};
    auto made = make_executor(tiny_weights(seed), place, {.pages = 6, .max_positions = 200});
    if (!made) throw std::runtime_error(made.error().to_string());
    return std::move(*made);
  }
};
INSTANTIATE_TEST_SUITE_P(Of, Executors,
                         testing::Values("cpu", "emulated:0", "emulated:1", "emulated:2", "emulated:3:tensor"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

const std::vector<int32_t> kSaid = {5, 77, 12, 199, 0, 31};
const std::vector<int> kPages = {4, 1};

Answer answer_of(Executor& executor, Plan plan) {
  auto ticket = executor.submit(std::move(plan));
  EXPECT_TRUE(ticket) << ticket.error().message();
  auto answer = executor.collect(*ticket);
  EXPECT_TRUE(answer) << answer.error().message();
  return std::move(*answer);
}

Plan prompt() {
  Plan plan;
  plan.batch.add(kSaid, 0, kPages);
  plan.draws = {{.row = 5, .seed = 9, .position = 6}};
  return plan;
}

kernels::Sampled first_of(Executor& executor) {
  EXPECT_TRUE(executor.clear(kPages));
  return answer_of(executor, prompt()).draws.at(0);
}

bool same(const kernels::Sampled& a, const kernels::Sampled& b) {
  return a.token == b.token && a.logprob == b.logprob && a.sampling_logprob == b.sampling_logprob;
}

TEST_P(Executors, a_token_that_an_earlier_plan_samples_gives_the_bits_of_one_that_is_known) {
  const auto executor = make();
  ASSERT_TRUE(executor->clear(kPages));
  const Ticket first = *executor->submit(prompt());
  Plan next;
  next.batch.add(std::vector<int32_t>{0}, 6, kPages);
  next.later = {{.row = 0, .token = {.ticket = first, .draw = 0}}};
  next.draws = {{.row = 0, .seed = 9, .position = 7}};
  const Ticket second = *executor->submit(next);
  const auto ahead = *executor->collect(second), before = *executor->collect(first);

  const auto known = make();
  const int32_t token = first_of(*known).token;
  EXPECT_EQ(before.draws[0].token, token);
  next.batch.tokens[0] = token;
  next.later.clear();
  EXPECT_TRUE(same(answer_of(*known, next).draws[0], ahead.draws[0]));
}

TEST_P(Executors, gives_the_logprobs_and_the_likeliest_tokens_that_are_asked_for) {
  const auto executor = make();
  ASSERT_TRUE(executor->clear(kPages));
  Plan plan = prompt();
  plan.draws[0].sampling.temperature = 0;
  plan.likeliest = {5, 0};
  const auto greedy = answer_of(*executor, plan);
  EXPECT_EQ(greedy.likeliest.at(0), greedy.draws[0].token);
  plan.picks = {{1, 12}, {5, greedy.draws[0].token}};
  plan.likeliest.clear();
  const auto picked = answer_of(*executor, plan);
  EXPECT_EQ(picked.picks.at(1), greedy.draws[0].logprob);
  EXPECT_LT(picked.picks.at(0), 0);
}

TEST_P(Executors, that_slept_say_the_same_and_have_no_pages_meanwhile) {
  const auto executor = make();
  const auto before = first_of(*executor);
  const size_t bytes = executor->page_bytes();
  ASSERT_TRUE(executor->sleep());
  EXPECT_EQ(executor->page_bytes(), bytes);
  if (std::string(GetParam()) != "cpu") {
    const auto refused = executor->submit(prompt());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().to_string().find("sleeps"), std::string::npos);
  }
  ASSERT_TRUE(executor->wake());
  EXPECT_TRUE(same(first_of(*executor), before));
}

TEST_P(Executors, an_adapter_that_is_not_attached_is_refused) {
  const auto executor = make();
  ASSERT_TRUE(executor->clear(kPages));
  Plan plan = prompt();
  plan.batch.runs[0].adapter = 1;
  const auto refused = executor->submit(plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalid);
  EXPECT_EQ(executor->detach(1).code(), Code::kInvalid);
  const auto attached = executor->attach(small_live_adapter(*tiny_weights(1), 1));
  if (std::string(GetParam()) != "cpu") {
    ASSERT_FALSE(attached);
    EXPECT_EQ(attached.error().code(), Code::kUnfit) << attached.error().to_string();
    return;
  }
  ASSERT_TRUE(attached);
  plan.batch.runs[0].adapter = *attached;
  EXPECT_FALSE(same(answer_of(*executor, plan).draws[0], first_of(*executor)));
  EXPECT_TRUE(executor->detach(*attached));
  EXPECT_FALSE(executor->submit(plan));
}

TEST_P(Executors, draws_only_what_the_mask_allows_and_says_where_it_allows_nothing) {
  const auto executor = make();
  ASSERT_TRUE(executor->clear(kPages));
  Plan plan = prompt();
  plan.draws.push_back(plan.draws[0]);
  plan.draws[0].mask = [](std::span<uint64_t> allowed) { allowed[1] = uint64_t{1} << 3; };
  // Bits behind the vocabulary of 200 are of no token.
  plan.draws[1].mask = [](std::span<uint64_t> allowed) { allowed[3] = uint64_t{1} << 8; };
  const auto answer = answer_of(*executor, plan);
  EXPECT_EQ(answer.draws[0].token, 67);
  EXPECT_EQ(answer.draws[0].sampling_logprob, 0);
  EXPECT_EQ(answer.draws[1].token, -1);
}

TEST_P(Executors, new_weights_are_those_of_the_plans_after_the_flip_and_can_be_rolled_back) {
  const auto old = make(1), fresh = make(2);
  const auto before = first_of(*old), expected = first_of(*fresh);
  ASSERT_FALSE(same(before, expected));
  const auto flip = [&](uint64_t seed) {
    auto staged = std::move(*old->stage());
    const auto weights = tiny_weights(seed);
    EXPECT_FALSE(old->flip(nullptr));
    EXPECT_TRUE(staged->prepare(weights->wire()));
    EXPECT_TRUE(staged->verify(weights->wire()));
    EXPECT_EQ(staged->verify(tiny_weights(seed + 1)->wire()).code(), Code::kCorrupt);
    EXPECT_TRUE(old->flip(std::move(staged)));
  };
  EXPECT_EQ(old->roll_back().code(), Code::kNotFound);
  auto of_before = prompt();
  of_before.before_flip = true;
  EXPECT_EQ(old->submit(of_before).error().code(), Code::kInvalid) << "nothing was flipped";
  flip(2);
  EXPECT_TRUE(same(first_of(*old), expected));
  // The weights before are there for the plans that ask for them, until another version is staged.
  EXPECT_TRUE(same(answer_of(*old, of_before).draws.at(0), before));
  EXPECT_TRUE(same(first_of(*old), expected));
  ASSERT_TRUE(old->roll_back());
  EXPECT_TRUE(same(first_of(*old), before));
  EXPECT_EQ(old->roll_back().code(), Code::kNotFound);
  flip(2);
  flip(1);
  EXPECT_TRUE(same(first_of(*old), before));
  const auto room = old->stage();
  EXPECT_EQ(old->roll_back().code(), Code::kNotFound) << "its memory is another version's";
  EXPECT_EQ(old->submit(of_before).error().code(), Code::kInvalid);
}

// The next token of a sequence whose pages went to the host while others wrote on them, and came back elsewhere; and of
// one that went on with a copy of its last page.
void pages_keep_their_bits(const std::function<std::unique_ptr<Executor>()>& make) {
  const auto executor = make(), other = make();
  const kernels::Sampled first = first_of(*executor);
  const auto next = [&](Executor& on, const std::vector<int>& pages) {
    Plan plan;
    plan.batch.add(std::vector<int32_t>{first.token}, 6, pages);
    plan.draws = {{.row = 0, .seed = 9, .position = 7}};
    return answer_of(on, plan).draws.at(0);
  };
  const size_t size = executor->page_bytes();
  std::vector<std::byte> host(2 * size);
  ASSERT_TRUE(executor->save(kPages, host));
  ASSERT_TRUE(executor->copy(kPages[0], 2));
  const auto expected = next(*executor, kPages);
  EXPECT_TRUE(same(next(*executor, {2, kPages[1]}), expected)) << "of a copy, made before the sequence went on";

  const std::vector<std::byte> kept = host;
  Plan over;
  over.batch.add(std::vector<int32_t>{9, 8, 7, 6}, 0, kPages);
  answer_of(*executor, over);
  for (Executor* on : {executor.get(), other.get()}) {
    const std::vector<int> elsewhere = {0, 5};
    ASSERT_TRUE(on->load(host, elsewhere));
    std::ranges::fill(host, std::byte{0xff});  // it was taken
    std::vector<std::byte> again(2 * size);
    ASSERT_TRUE(on->save(elsewhere, again));
    EXPECT_EQ(again, kept);
    EXPECT_TRUE(same(next(*on, elsewhere), expected));
    host = kept;
  }
}

TEST_P(Executors, pages_that_went_to_the_host_and_back_or_were_copied_keep_their_bits) {
  pages_keep_their_bits([] { return make(); });
}

TEST_P(Executors, pages_keep_their_bits_on_a_device_that_runs_behind_its_host) {
  pages_keep_their_bits([] { return std::make_unique<LateExecutor>(make(), 2); });
}

TEST_P(Executors, refuses_plans_that_would_reach_beyond_their_memory) {
  const auto executor = make();
  ASSERT_TRUE(executor->clear(kPages));
  const auto refused = [&](const std::function<void(Plan&)>& spoil) {
    Plan plan = prompt();
    spoil(plan);
    const auto ticket = executor->submit(plan);
    return !ticket && ticket.error().code() == Code::kInvalid;
  };
  EXPECT_TRUE(refused([](Plan& p) { p = {}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.pages[0] = 6; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.pages[0] = -1; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.runs[0].pages = 3; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.runs[0].rows = 5; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.runs[0].position = 195; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.runs[0].position = 2 * kernels::kPageTokens - 1; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.tokens[0] = 200; }));
  EXPECT_TRUE(refused([](Plan& p) { p.batch.positions.pop_back(); }));
  EXPECT_TRUE(refused([](Plan& p) { p.draws[0].row = 6; }));
  EXPECT_TRUE(refused([](Plan& p) { p.draws[0].sampling.temperature = -1; }));
  EXPECT_TRUE(refused([](Plan& p) { p.picks = {{-1, 3}}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.picks = {{3, 3}, {2, 3}}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.picks = {{3, 200}}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.likeliest = {6}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.later = {{.row = 0, .token = {.ticket = 99, .draw = 0}}}; }));
  EXPECT_FALSE(executor->clear(std::vector<int>{6}));
  EXPECT_FALSE(executor->copy(0, -1));
  std::vector<std::byte> host(executor->page_bytes());
  EXPECT_EQ(executor->save(std::vector<int>{6}, host).code(), Code::kInvalid);
  EXPECT_EQ(executor->load(host, std::vector<int>{-1}).code(), Code::kInvalid);
  EXPECT_EQ(executor->save(std::vector<int>{0, 1}, host).code(), Code::kInvalid);
  EXPECT_EQ(executor->load(std::span(host).first(7), std::vector<int>{0}).code(), Code::kInvalid);
  EXPECT_FALSE(executor->collect(12345));
  EXPECT_TRUE(executor->submit(prompt()));
}

}  // namespace
}  // namespace tandem::model
