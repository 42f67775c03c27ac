#include "hosts/session.h"

#include <gmock/gmock.h>
#include <signal.h>

namespace tandem::hosts {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

HostJob job(uint64_t number, JobEnd end = JobEnd::kNone) {
  return {.number = number, .arguments = {"role"}, .log = "a.log", .end = end};
}

// "start 1", "ask 101", "end 101": processes are numbered 100 above their jobs.
std::vector<std::string> said(const std::vector<Session::Action>& actions) {
  std::vector<std::string> words;
  for (const auto& action : actions) {
    if (const auto* start = std::get_if<Session::Start>(&action))
      words.push_back("start " + std::to_string(start->job.number));
    if (const auto* end = std::get_if<Session::End>(&action))
      words.push_back((end->kind == run::EndKind::kAsk ? "ask " : "end ") + std::to_string(end->process));
  }
  return words;
}

std::vector<std::string> step(Session& session, const Beat& beat) {
  const auto actions = session.on_beat(beat);
  for (const auto& action : actions) {
    if (const auto* start = std::get_if<Session::Start>(&action))
      session.started(start->job, static_cast<int64_t>(start->job.number + 100));
  }
  return said(actions);
}

TEST(Session, starts_what_a_beat_names_once_and_ends_what_it_does_not_name) {
  Session session;
  EXPECT_THAT(step(session, {1, {job(1), job(2)}}), ElementsAre("start 1", "start 2"));
  EXPECT_THAT(step(session, {2, {job(1), job(2)}}), IsEmpty());
  EXPECT_THAT(step(session, {1, {}}), IsEmpty()) << "an old beat comes late";
  EXPECT_THAT(step(session, {3, {job(2)}}), ElementsAre("end 101"));
  EXPECT_THAT(step(session, {4, {job(2)}}), IsEmpty()) << "it is told once";
  EXPECT_EQ(session.processes().size(), 2u) << "until it is gone";
  EXPECT_TRUE(session.ended({.process = 101, .signal = SIGKILL}));
  EXPECT_FALSE(session.ended({.process = 101, .signal = SIGKILL}));
  EXPECT_THAT(step(session, {5, {job(2)}}), IsEmpty());
  EXPECT_EQ(session.processes().size(), 1u);
  EXPECT_THAT(step(session, {6, {job(1), job(2)}}), IsEmpty()) << "what was here is not started again";
}

TEST(Session, an_ending_is_kept_until_the_run_has_heard_of_it) {
  Session session;
  step(session, {1, {job(1)}});
  EXPECT_TRUE(session.ended({.process = 101, .code = 3}));
  step(session, {2, {job(1)}});
  ASSERT_EQ(session.processes().count(1), 1u);
  EXPECT_EQ(session.processes().at(1).code, 3);
  step(session, {3, {}});
  EXPECT_TRUE(session.processes().empty());
}

TEST(Session, processes_are_asked_before_they_are_ended) {
  Session session;
  step(session, {1, {job(1)}});
  EXPECT_THAT(step(session, {2, {job(1, JobEnd::kAsk)}}), ElementsAre("ask 101"));
  EXPECT_THAT(step(session, {3, {job(1, JobEnd::kNow)}}), ElementsAre("end 101"));
  EXPECT_THAT(step(session, {4, {job(1, JobEnd::kNow), job(2, JobEnd::kNow)}}), IsEmpty());
  EXPECT_NE(session.processes().at(2).failure, "") << "it was told to end before it began";
}

TEST(Session, a_draining_host_asks_all_to_end_and_starts_nothing) {
  Session session;
  step(session, {1, {job(1), job(2)}});
  EXPECT_THAT(said(session.drain()), ElementsAre("ask 101", "ask 102"));
  EXPECT_THAT(said(session.drain()), IsEmpty());
  EXPECT_THAT(step(session, {2, {job(1), job(2), job(3)}}), IsEmpty());
  EXPECT_EQ(session.processes().at(3).failure, "the host is draining");
  EXPECT_EQ(session.running().size(), 2u);
}

}  // namespace
}  // namespace tandem::hosts
