#include "dashboard/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dashboard/transcripts.h"
#include "model/tokenizer.h"
#include "synthetic_run.h"

namespace tandem::dashboard {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string report_of(const SyntheticRun& run) {
  const auto files = read_run(run.dir(), run.plan());
  EXPECT_TRUE(files) << files.error().to_string();
  const Status status = write_report(*files);
  EXPECT_TRUE(status) << status.to_string();
  return read_file(run.dir() / "report.html").value_or("");
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t from = 0; (from = text.find(part, from)) != std::string_view::npos; from += part.size()) ++count;
  return count;
}

// A model that says what a page must not obey.
class HostileRun : public testing::Test {
 protected:
  HostileRun()
      : run_(two_kinds()),
        tokenizer_(*model::Tokenizer::load(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/tokenizers/smollm")) {
    fs::create_directories(run_.dir() / "model");
    fs::copy_file(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/tokenizers/smollm/tokenizer.json",
                  run_.dir() / "model" / "tokenizer.json");
    run_.speak(*tokenizer_.encode("<user> say \"hello\""),
               *tokenizer_.encode("</pre></main><script>alert(1)</script>"));
    run_.play(learns);
  }
  SyntheticRun run_;
  model::Tokenizer tokenizer_;
};

TEST_F(HostileRun, what_the_model_said_is_text_and_never_markup) {
  const std::string html = report_of(run_);
  EXPECT_THAT(html, HasSubstr("&lt;/pre&gt;&lt;/main&gt;&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;user&gt; say &#34;hello&#34;"));
  EXPECT_EQ(count_of(html, "<script"), 1u);
  EXPECT_EQ(count_of(html, "</main>"), 1u);
}

TEST_F(HostileRun, tasks_that_turned_from_failure_to_success_are_shown_first) {
  const auto files = read_run(run_.dir(), run_.plan());
  ASSERT_TRUE(files);
  const auto pairs = choose_transcripts(*files, 1);
  ASSERT_TRUE(pairs) << pairs.error().to_string();
  ASSERT_EQ(pairs->size(), 2u);
  EXPECT_EQ((*pairs)[0].task, "find/heldout/1");  // find 0 was solved before
  EXPECT_EQ((*pairs)[1].task, "set/heldout/0");
  EXPECT_TRUE((*pairs)[0].greedy);
  EXPECT_EQ((*pairs)[0].before->reward, 0);
  EXPECT_EQ((*pairs)[0].after->reward, 1);
  ASSERT_EQ((*pairs)[0].after->passages.size(), 2u);
  EXPECT_FALSE((*pairs)[0].after->passages[0].sampled);
  EXPECT_TRUE((*pairs)[0].after->passages[1].sampled);
}

TEST_F(HostileRun, where_greedy_episodes_did_not_change_samples_that_did_are_shown) {
  SyntheticRun run(two_kinds());
  fs::copy(run_.dir() / "model", run.dir() / "model");
  run.play([](const rollout::LeaseTerms& lease, rollout::Phase phase) {
    return lease.temperature == 0 || phase != rollout::Phase::kBefore ? 1.0 : 0.0;
  });
  const auto files = read_run(run.dir(), run.plan());
  ASSERT_TRUE(files);
  const auto pairs = choose_transcripts(*files, 2);
  ASSERT_TRUE(pairs) << pairs.error().to_string();
  ASSERT_EQ(pairs->size(), 4u);
  for (const TranscriptPair& pair : *pairs) {
    EXPECT_FALSE(pair.greedy);
    EXPECT_EQ(pair.before->reward, 0);
    EXPECT_EQ(pair.after->reward, 1);
  }
}

TEST(Report, needs_nothing_from_outside_and_lets_only_its_own_script_run) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  const std::string html = report_of(run);
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, Not(HasSubstr("unsafe-eval")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("<link")));
  EXPECT_THAT(html, Not(HasSubstr("data-live>")));
  EXPECT_EQ(count_of(html, "http"), count_of(html, "http-equiv") + count_of(html, "http://www.w3.org/2000/svg"));
}

TEST(Report, the_headline_is_before_to_after_with_intervals_and_floors) {
  SyntheticRun run(two_kinds());
  run.play(learns);
  run.write("floors.json", R"({"regex_script": 0.125})");
  const std::string html = report_of(run);
  EXPECT_THAT(html, HasSubstr("25.0 % <small>→</small> 75.0 %"));
  EXPECT_THAT(html, HasSubstr("+50.0 points"));
  EXPECT_THAT(html, HasSubstr("regex script 12.5 %"));
}

TEST(Report, of_a_run_that_has_only_begun_says_what_is_not_there_yet) {
  SyntheticRun run(two_kinds());
  const std::string html = report_of(run);
  EXPECT_THAT(html, HasSubstr("not measured yet"));
  EXPECT_THAT(html, HasSubstr("nothing yet"));
  EXPECT_THAT(html, HasSubstr("</html>"));
}

TEST(Html, escapes_markup_quotes_controls_and_broken_bytes) {
  EXPECT_EQ(escape("<a href=\"x\" b='y'>&"), "&lt;a href=&#34;x&#34; b=&#39;y&#39;&gt;&amp;");
  EXPECT_EQ(escape(std::string_view("a\0b\x1b[31m\n\t", 10)), "a␀b␛[31m\n\t");
  EXPECT_EQ(escape("\xff<"), "\xef\xbf\xbd&lt;");
}

TEST(Html, a_long_curve_is_thinned_and_one_without_numbers_says_so) {
  Series series{.name = "s", .points = {}};
  for (int i = 0; i < 100000; ++i) series.points.emplace_back(i, i % 7);
  EXPECT_LT(line_chart({.title = "long", .series = {series}}).size(), 20000u);
  EXPECT_THAT(line_chart({.title = "none", .series = {{"s", {{1, std::nan("")}}}}}), HasSubstr("nothing yet"));
}

}  // namespace
}  // namespace tandem::dashboard
