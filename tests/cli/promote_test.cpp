// `tandem promote`: a new version into the service of a real server, under traffic.
#include "tests/cli/promote_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

TEST_F(Promote, a_sound_version_is_promoted_no_request_fails_and_the_next_start_serves_it) {
  start_server();
  const std::string before = served();
  const double before_logprob = first_logprob(post("/v1/chat/completions", asked("a")));
  start_traffic();
  EXPECT_EQ(tandem(promotion({"--max-slowdown", "1000"})), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("promoted: "));
  EXPECT_THAT(served(), testing::EndsWith("/candidates/other"));
  EXPECT_NE(before, served());
  stop_traffic();
  EXPECT_EQ(failed_, 0) << "of " << answered_;
  const double after_logprob = first_logprob(post("/v1/chat/completions", asked("a")));
  EXPECT_NE(after_logprob, before_logprob);
  EXPECT_EQ(audit().back()["what"], "verdict");
  EXPECT_GE(audit().back()["figures"]["answers"].get<double>(), 20);
  // Given again, it says the same.
  EXPECT_EQ(tandem(promotion()), 0) << text(output());
  start_server();
  EXPECT_THAT(served(), testing::EndsWith("/candidates/other"));
  EXPECT_EQ(first_logprob(post("/v1/chat/completions", asked("a"))), after_logprob);
}

TEST_F(Promote, a_version_that_was_promoted_and_replaced_since_is_not_called_promoted) {
  start_server();
  const fs::path again = root() / "candidates" / "again";
  fs::remove_all(again);
  fs::copy(root() / "model", again, fs::copy_options::recursive);
  start_traffic();
  ASSERT_EQ(tandem(promotion({"--max-slowdown", "1000"})), 0) << text(output());
  stop_traffic();
  ASSERT_EQ(admin("/promotion/begin", {{"directory", again.string()}}).status, 200);
  ASSERT_EQ(admin("/promotion/end", {{"promote", true}}).status, 200);
  EXPECT_EQ(tandem(promotion()), 2) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("was promoted before, and the server serves " + again.string() + " now"));
  EXPECT_THAT(served(), testing::EndsWith("/candidates/again"));
}

TEST_F(Promote, a_folder_that_was_written_anew_is_another_version) {
  start_server();
  const fs::path folder = root() / "candidates" / "rewritten";
  fs::remove_all(folder);
  fs::copy(root() / "candidates" / "other", folder, fs::copy_options::recursive);
  ASSERT_EQ(admin("/promotion/begin", {{"directory", folder.string()}}).status, 200);
  ASSERT_EQ(admin("/promotion/end", {{"promote", true}}).status, 200);
  // The same files elsewhere are the version that is served: nothing is loaded.
  const auto same = admin("/promotion/begin", {{"directory", (root() / "candidates" / "other").string()}});
  EXPECT_EQ(same.status, 200);
  EXPECT_TRUE(same.json()["candidate"].is_null()) << same.body;
  const std::string served_digest = state()["current"]["digest"].get<std::string>();
  // Other files in the folder that is served are not.
  fs::remove_all(folder);
  fs::copy(root() / "model", folder, fs::copy_options::recursive);
  EXPECT_EQ(admin("/promotion/begin", {{"directory", folder.string()}, {"digest", served_digest}}).status, 409)
      << "they are not what was asked for";
  const auto other = admin("/promotion/begin", {{"directory", folder.string()}});
  ASSERT_EQ(other.status, 200) << other.body;
  EXPECT_EQ(other.json()["candidate"]["directory"], folder.string());
  EXPECT_NE(other.json()["candidate"]["digest"], served_digest);
  // A start does not serve what nobody has tried.
  server_.reset();
  Arguments again = {"serve", "--model",    "tiny=" + (root() / "model").string(), "--port",
                     "0",     "--promoted", (root() / "promoted.json").string()};
  EXPECT_EQ(tandem(again), 2);
  EXPECT_THAT(text(output()), HasSubstr("are others than when it was promoted as \"tiny\""));
  fs::remove_all(folder);
}

TEST_F(Promote, a_command_ends_where_another_has_promoted_the_same_meanwhile) {
  start_server();
  start_traffic();
  const auto command = trial_without_end();
  ASSERT_TRUE(within(60s, [&] { return state()["share"] == 0.5; })) << text(output());
  EXPECT_EQ(ask("/promotion/end", dump_json({{"promote", true}}), "the-admin").status, 200);
  EXPECT_EQ(command->wait(), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("promoted: the server serves it"));
}

TEST_F(Promote, who_asks_for_the_same_candidate_while_it_is_loaded_waits_for_it) {
  start_server();
  const std::string body = dump_json({{"directory", (root() / "candidates" / "other").string()}});
  std::vector<std::jthread> clients;
  std::atomic<int> loaded = 0;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      const auto answer = ask("/promotion/begin", body, "the-admin");
      if (answer.status == 200 && answer.json()["state"] == "trial") ++loaded;
    });
  }
  clients.clear();
  EXPECT_EQ(loaded, 8);
}

TEST_F(Promote, a_second_command_on_one_folder_is_refused_with_the_first_ones_process) {
  start_server();
  start_traffic();
  const auto first = trial_without_end();
  ASSERT_TRUE(within(60s, [&] { return state()["share"] == 0.5; })) << text(output());
  Arguments again = promotion();
  again.insert(again.begin(), TANDEM_BINARY);
  Process second(again, root() / "second.out");
  EXPECT_EQ(second.wait(60s), 2) << text(root() / "second.out");
  EXPECT_THAT(text(root() / "second.out"), HasSubstr(fmt::format("process {}", first->pid())));
  EXPECT_THAT(text(root() / "second.out"), HasSubstr("name another folder with --out"));
  first->signal(SIGINT);
  EXPECT_EQ(first->wait(), 75) << text(output());
  EXPECT_EQ(json(root() / "promotion" / "promotion.json")["format"], 1);
}

TEST_F(Promote, a_version_whose_answers_are_of_less_use_goes_back_with_the_figures) {
  start_server();
  const double before = first_logprob(post("/v1/chat/completions", asked("a")));
  start_traffic([before](double logprob) { return logprob == before; });
  EXPECT_EQ(tandem(promotion({"--max-slowdown", "1000", "--json"}, "400")), 4) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("accepted answers: -100.0 points"));
  EXPECT_TRUE(state()["candidate"].is_null());
  stop_traffic();
  EXPECT_EQ(failed_, 0) << "of " << answered_;
  EXPECT_EQ(first_logprob(post("/v1/chat/completions", asked("a"))), before);
  EXPECT_FALSE(fs::exists(root() / "promoted.json"));
}

TEST_F(Promote, a_command_that_is_ended_leaves_one_version_and_goes_on) {
  start_server();
  const std::string before = served();
  start_traffic();
  const auto first = trial_without_end();
  ASSERT_TRUE(within(60s, [&] { return state()["share"] == 0.5; })) << text(output());
  first->signal(SIGINT);
  EXPECT_EQ(first->wait(), 75) << text(output());
  EXPECT_EQ(state()["share"], 0.0);
  EXPECT_EQ(served(), before);
  EXPECT_EQ(tandem(promotion({"--max-slowdown", "1000"})), 0) << text(output());
  EXPECT_THAT(served(), testing::EndsWith("/candidates/other"));
  stop_traffic();
  EXPECT_EQ(failed_, 0) << "of " << answered_;
}

TEST_F(Promote, copies_of_requests_are_answered_by_the_candidate_alone_and_seen_by_nobody) {
  start_server();
  const Json before = post("/v1/chat/completions", asked("a"));
  const std::string other = (root() / "candidates" / "other").string();
  ASSERT_EQ(admin("/promotion/begin", {{"directory", other}}).status, 200);
  ASSERT_EQ(admin("/promotion/share", {{"share", 1}, {"shadow", true}, {"lease_seconds", 600}}).status, 200);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(first_logprob(post("/v1/chat/completions", asked("a"))), first_logprob(before));
  EXPECT_FALSE(stream("/v1/chat/completions", asked("a")).empty());
  EXPECT_TRUE(within(60s, [&] { return state()["candidate"]["outcomes"]["answers"] == 11; })) << dump_json(state());
  EXPECT_EQ(state()["current"]["outcomes"]["answers"], 12);
  // The command goes through them to the shares.
  EXPECT_EQ(admin("/promotion/end", {{"promote", false}}).status, 200);
  start_traffic();
  EXPECT_EQ(tandem(promotion({"--max-slowdown", "1000", "--shadow", "50"})), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("copies of the requests of 50 % of the sessions"));
  stop_traffic();
  EXPECT_EQ(failed_, 0) << "of " << answered_;
}

TEST_F(Promote, what_a_candidate_cannot_read_is_answered_by_the_version_that_is_served) {
  // The same model, made for far fewer tokens.
  const fs::path brief = root() / "candidates" / "brief";
  fs::remove_all(brief);
  fs::copy(root() / "model", brief, fs::copy_options::recursive);
  Json config = json(brief / "config.json");
  config["max_position_embeddings"] = 64;
  std::ofstream(brief / "config.json") << dump_json(config);
  start_server();
  ASSERT_EQ(admin("/promotion/begin", {{"directory", brief.string()}}).status, 200);
  ASSERT_EQ(admin("/promotion/share", {{"share", 1}, {"lease_seconds", 600}}).status, 200);
  std::string words;
  for (int i = 0; i < 100; ++i) words += "word ";
  const auto answer = ask("/v1/chat/completions", dump_json(chat(words, {{"max_tokens", 4}})));
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json after = state();
  EXPECT_EQ(after["candidate"]["outcomes"]["errors"], 1) << dump_json(after);
  EXPECT_EQ(after["current"]["outcomes"]["answers"], 1);
}

TEST_F(Promote, a_trial_that_somebody_else_ends_is_not_begun_again) {
  start_server();
  start_traffic();
  const auto first = trial_without_end();
  ASSERT_TRUE(within(60s, [&] { return state()["share"] == 0.5; })) << text(output());
  EXPECT_EQ(ask("/promotion/end", dump_json({{"promote", false}}), "the-admin").status, 200);
  EXPECT_EQ(first->wait(), 5) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("somebody else has ended the trial"));
  EXPECT_TRUE(state()["candidate"].is_null());
  stop_traffic();
  EXPECT_EQ(failed_, 0) << "of " << answered_;
}

TEST_F(Promote, the_lease_of_a_share_ends_where_nobody_renews_it) {
  start_server();
  const std::string other = (root() / "candidates" / "other").string();
  ASSERT_EQ(admin("/promotion/begin", {{"directory", other}}).status, 200);
  ASSERT_EQ(admin("/promotion/share", {{"share", 1}, {"lease_seconds", 1}}).status, 200);
  EXPECT_TRUE(within(30s, [&] { return state()["share"] == 0.0; }));
  EXPECT_EQ(state()["state"], "trial");
  EXPECT_EQ(admin("/promotion/end", {{"promote", false}}).status, 200);
  EXPECT_TRUE(state()["candidate"].is_null());
}

TEST_F(Promote, what_may_not_be_done_is_refused_in_words) {
  start_server();
  const std::string other = (root() / "candidates" / "other").string();
  EXPECT_EQ(ask("/promotion/begin", dump_json({{"directory", other}})).status, 403) << "no key";
  EXPECT_THAT(admin("/promotion/begin", {{"directory", (root() / "model").string()}}).body,
              HasSubstr("is not below a folder of serve.candidate_folders"));
  EXPECT_THAT(admin("/promotion/begin", {{"directory", (root() / "candidates").string()}}).body,
              HasSubstr("cannot be served"));
  EXPECT_EQ(admin("/promotion/share", {{"share", 0.5}}).status, 409);
  EXPECT_EQ(admin("/promotion/share", {{"share", 2}}).status, 400);
  EXPECT_EQ(admin("/promotion/begin", {{"model", "unknown"}, {"directory", other}}).status, 404);
  const Json answer = post("/v1/chat/completions", asked("a"));
  EXPECT_EQ(ask("/feedback", dump_json({{"id", "chatcmpl-0"}, {"accepted", true}})).status, 404);
  EXPECT_EQ(ask("/feedback", dump_json({{"id", answer["id"]}, {"accepted", true}})).status, 200);
  EXPECT_EQ(state()["current"]["outcomes"]["accepted"], 1);
  ask("/feedback", dump_json({{"id", answer["id"]}, {"accepted", true}}));
  EXPECT_EQ(state()["current"]["outcomes"]["accepted"], 1) << "an answer counts once";
  EXPECT_EQ(tandem({"promote", other, "--server", url_, "--out", (root() / "promotion").string(), "--shares", "50"}),
            2);
  EXPECT_THAT(text(output()), HasSubstr("must end with 100"));
  ::unsetenv("TANDEM_ADMIN_KEY");
  EXPECT_EQ(tandem(promotion()), 2);
  EXPECT_THAT(text(output()), HasSubstr("the environment has no TANDEM_ADMIN_KEY"));
}

}  // namespace
}  // namespace tandem
