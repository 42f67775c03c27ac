#include "dashboard/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace tandem::dashboard {
namespace {

using testing::HasSubstr;
using testing::Not;

Json status_of_step(int step) {
  return {{"phase", "train"},
          {"step", step},
          {"steps", 40},
          {"finishing", false},
          {"episodes", {{"states", {{"queued", 3}, {"leased", 32}, {"trained", 128}, {"dropped", 0}}}}},
          {"roles",
           {{"rollout-0",
             {{"role", "rollout"},
              {"lost", false},
              {"silent", 0.1},
              {"metrics", {{"version", step}, {"sampled_tokens", 900}}}}},
            {"rollout-1",
             {{"role", "rollout"},
              {"lost", false},
              {"silent", 4.6},
              {"metrics", {{"version", step - 1}, {"sampled_tokens", 100}}}}},
            {"trainer", {{"role", "trainer"}, {"lost", true}, {"silent", 9.0}, {"metrics", nullptr}}}}},
          {"last_step", {{"step", step}, {"success", 0.5}, {"max_abs_logprob_diff", 0.0}}}};
}

Json history_of(int steps) {
  Json history = Json::array();
  for (int i = 1; i <= steps; ++i) {
    history.push_back({{"step", i},
                       {"time", 1000 + 2.0 * i},
                       {"success", i / 10.0},
                       {"trainer", {{"idle_seconds", 0.5 * i}}},
                       {"roles",
                        {{"rollout-0",
                          {{"sampled_tokens", 600 * i},
                           {"forward_seconds", 1.2 * i},
                           {"sample_seconds", 0.2 * i},
                           {"idle_seconds", 0.6 * i}}}}}});
  }
  return history;
}

size_t columns(std::string_view line) {
  size_t count = 0;
  for (const char c : line) count += (static_cast<uint8_t>(c) & 0xc0) != 0x80;
  return count;
}

TEST(Live, shows_step_success_states_rates_and_trouble) {
  const std::string view = render_live(status_of_step(10), history_of(10), 100);
  EXPECT_THAT(view, HasSubstr("step 10/40, 1m00s left"));  // 30 steps of 2 s
  EXPECT_THAT(view, HasSubstr("50 %"));
  EXPECT_THAT(view, HasSubstr("▁▂▃▄▅▅▆▇█"));
  EXPECT_THAT(view, HasSubstr("3 queued  32 leased  128 trained"));
  EXPECT_THAT(view, Not(HasSubstr("dropped")));
  EXPECT_THAT(view, HasSubstr("300 tokens/s"));
  EXPECT_THAT(view, HasSubstr("engines 70 %  trainer 75 %"));
  EXPECT_THAT(view, HasSubstr("engines 1 behind"));
  EXPECT_THAT(view, HasSubstr("logprob difference 0"));
  EXPECT_THAT(view, HasSubstr("rollout-1 silent for 5 s"));
  EXPECT_THAT(view, HasSubstr("trainer is lost"));
}

TEST(Live, no_line_is_wider_than_the_terminal) {
  Json status = status_of_step(10);
  status["heldout"] = {{"before", 0.2}, {"after", 0.8}};
  for (const int width : {40, 60, 80, 200}) {
    const std::string view = render_live(status, history_of(200), width);
    for (const auto line : split(view, '\n')) EXPECT_LE(columns(line), static_cast<size_t>(width)) << line;
  }
}

TEST(Live, held_out_results_appear_when_they_are_known) {
  Json status = status_of_step(40);
  EXPECT_THAT(render_live(status, Json::array(), 80), Not(HasSubstr("held-out")));
  status["heldout"] = {{"before", 0.21}};
  EXPECT_THAT(render_live(status, Json::array(), 80), HasSubstr("before 21 %"));
  status["heldout"]["after"] = 0.8;
  EXPECT_THAT(render_live(status, Json::array(), 80), HasSubstr("+59 points"));
}

TEST(Live, a_run_that_has_said_nothing_yet_is_shown_without_guesses) {
  const std::string view = render_live(Json::object(), Json::array(), 80);
  EXPECT_THAT(view, HasSubstr("starting"));
  EXPECT_THAT(view, Not(HasSubstr("tokens")));
  EXPECT_EQ(plain_line(Json()), "starting step 0/0");
}

TEST(Live, the_plain_line_has_the_same_facts) {
  const std::string line = plain_line(status_of_step(10), history_of(10));
  EXPECT_EQ(line,
            "train step 10/40, 1m00s left, training 50 %, episodes 3 queued 32 leased 128 trained, engines 70 %, "
            "trainer 75 %, 300 tokens/s, engines 1 behind, steals 0, logprob difference 0, rollout-1 silent for 5 s, "
            "trainer is lost");
}

TEST(Sparkline, keeps_the_last_values_and_survives_what_is_no_number) {
  const std::vector<double> values = {0, 0.5, 1, std::nan("")};
  EXPECT_EQ(sparkline(values, 3, 0, 1), "▅█▁");
}

}  // namespace
}  // namespace tandem::dashboard
