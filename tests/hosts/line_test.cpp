#include "hosts/line.h"

#include <gmock/gmock.h>
#include <signal.h>

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using State = Line::State;

class LineTest : public testing::Test {
 protected:
  LineTest() {
    for (const auto& [path, bytes] : {std::pair("model/a", 3 * kChunkBytes + 5), std::pair("model/b", size_t{10})}) {
      bundle_.files.push_back({.path = path, .digest = digest_of(std::string_view(path)), .bytes = bytes});
      bundle_.sources.emplace_back(path);
    }
  }
  Line line() {
    return Line({.name = "far:1",
                 .open = {.version = "1", .weights = "bf16", .run = "r"},
                 .numerics_id = "v3",
                 .bundle = &bundle_,
                 .texts = [](const fs::path& home) -> Result<std::vector<HomeText>> {
                   return std::vector<HomeText>{{.path = "config", .content = home.string()}};
                 }});
  }
  static Opened opened() { return {.version = "1", .numerics_id = "v3", .home = "/home", .cores = 2}; }
  // A line to a host that has all files.
  Line up() {
    Line line = this->line();
    line.tick(now_);
    line.on(opened(), now_);
    line.on(Missing{}, now_);
    line.on(Settled{}, now_);
    EXPECT_EQ(line.state(), State::kUp);
    return line;
  }
  // Turns of 100 ms; what came of them, the answers being `answer`.
  Line::Turn pass(Line& line, Duration duration, const std::function<std::optional<Answer>(const Beat&)>& answer) {
    Line::Turn all;
    const auto add = [&](Line::Turn turn) {
      for (auto& text : turn.news) all.news.push_back(text);
      for (auto& ended : turn.ended) all.ended.push_back(ended);
      for (auto& said : turn.said) all.said.push_back(said);
      return turn.requests;
    };
    for (const Time end = now_ + duration; now_ < end; now_ += 100ms) {
      for (const Request& request : add(line.tick(now_))) {
        all.requests.push_back(request);
        const auto* beat = std::get_if<Beat>(&request);
        if (beat == nullptr) continue;
        if (const auto state = answer(*beat)) add(line.on(*state, now_));
      }
    }
    return all;
  }
  static std::optional<Answer> silent(const Beat&) { return {}; }
  static std::optional<Answer> well(const Beat& beat) {
    HostState state{.beat = beat.number, .is_known = true, .processes = {}};
    for (const HostJob& job : beat.jobs)
      state.processes.push_back({.number = job.number, .pid = 7, .is_running = true, .log_offset = job.log_offset});
    return state;
  }

  Bundle bundle_;
  Time now_ = Time{} + 1h;
};

TEST_F(LineTest, opens_a_host_and_sends_what_it_lacks_in_order_with_a_bound_on_what_is_under_way) {
  Line line = this->line();
  const auto asked = line.tick(now_).requests;
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(std::get<Open>(asked[0]).run, "r");
  EXPECT_EQ(std::get<Offer>(line.on(opened(), now_).requests.at(0)).files, bundle_.files);
  auto requests = line.on(Missing{{0, 1}}, now_).requests;
  EXPECT_EQ(line.bytes_to_send(), 3 * kChunkBytes + 15);
  std::vector<std::pair<Digest, uint64_t>> sent;
  while (line.state() == State::kFilling) {
    ASSERT_FALSE(requests.empty());
    ASSERT_LE(requests.size(), 8u);
    std::vector<Request> more;
    for (const Request& request : requests) {
      const Chunk& chunk = std::get<SendChunk>(request).chunk;
      sent.emplace_back(chunk.digest, chunk.offset);
      const uint64_t size = chunk.digest == bundle_.files[0].digest ? bundle_.files[0].bytes : bundle_.files[1].bytes;
      const uint64_t have = std::min(size, chunk.offset + kChunkBytes);
      for (auto& next : line.on(Took{{chunk.digest, have}}, now_).requests) more.push_back(next);
    }
    requests = more;
  }
  const Digest &a = bundle_.files[0].digest, &b = bundle_.files[1].digest;
  EXPECT_THAT(sent, ElementsAre(std::pair(a, 0), std::pair(a, kChunkBytes), std::pair(a, 2 * kChunkBytes),
                                std::pair(a, 3 * kChunkBytes), std::pair(b, 0)));
  EXPECT_EQ(line.bytes_sent(), line.bytes_to_send());
  EXPECT_EQ(std::get<Settle>(requests.at(0)).texts.at(0).content, "/home") << "texts are made for its home";
  line.on(Settled{}, now_);
  EXPECT_EQ(line.state(), State::kUp);
}

TEST_F(LineTest, a_host_that_does_not_fit_is_refused_with_both_sides_named) {
  for (const auto& [theirs, words] : {std::pair(Opened{.version = "2", .numerics_id = "v3"}, "has version 2"),
                                      std::pair(Opened{.version = "1", .numerics_id = "v2"}, "computes as v2")}) {
    Line line = this->line();
    line.tick(now_);
    line.on(theirs, now_);
    EXPECT_EQ(line.state(), State::kRefused);
    EXPECT_THAT(line.refusal().message(), HasSubstr(words));
    EXPECT_THAT(line.tick(now_ + 10s).requests, IsEmpty());
  }
  Line line = this->line();
  line.tick(now_);
  line.on(Refused{Status::exhausted("it is lent to run x already")}, now_);
  EXPECT_EQ(line.refusal().message(), "it is lent to run x already");
}

TEST_F(LineTest, a_damaged_chunk_is_sent_again_and_not_for_ever) {
  Line line = this->line();
  for (int attempt = 0; attempt < 4; ++attempt) {
    ASSERT_EQ(line.state(), State::kReaching) << attempt;
    now_ += 1s;
    line.tick(now_);
    line.on(opened(), now_);
    line.on(Missing{{1}}, now_);
    line.on(Refused{Status::corrupt("other bytes")}, now_);
  }
  now_ += 1s;
  line.tick(now_);
  line.on(opened(), now_);
  EXPECT_EQ(line.state(), State::kRefused);
}

TEST_F(LineTest, a_host_that_does_not_answer_is_lost_within_four_seconds_with_all_its_processes) {
  Line line = up();
  line.start(1, {"role"}, "a.log");
  line.start(2, {"role"}, "b.log");
  EXPECT_THAT(pass(line, 10s, well).ended, IsEmpty());
  EXPECT_EQ(line.pid(2), 7);
  auto passed = pass(line, 3s, silent);
  EXPECT_THAT(passed.ended, IsEmpty());
  passed = pass(line, 1s, silent);
  EXPECT_EQ(line.state(), State::kLost);
  EXPECT_THAT(passed.news, ElementsAre(HasSubstr("host far:1 is lost: it has not answered for 3.")));
  ASSERT_EQ(passed.ended.size(), 2u);
  EXPECT_EQ(passed.ended[1].number, 2u);
  EXPECT_EQ(passed.ended[1].how, "was lost with host far:1");
  EXPECT_FALSE(line.takes_roles());

  // What still runs there is ended before it is taken back.
  bool is_ended = false;
  const auto back = [&](const Beat& beat) -> std::optional<Answer> {
    EXPECT_THAT(beat.jobs, IsEmpty());
    HostState state{.beat = beat.number, .is_known = true, .processes = {}};
    if (!std::exchange(is_ended, true)) state.processes.push_back({.number = 1, .is_running = true});
    return state;
  };
  passed = pass(line, 5s, back);
  EXPECT_EQ(line.state(), State::kUp);
  EXPECT_THAT(passed.news, ElementsAre("host far:1 is back"));
}

TEST_F(LineTest, time_in_which_the_run_itself_stood_still_is_no_silence_of_the_host) {
  Line line = up();
  pass(line, 1s, well);
  now_ += 60s;
  EXPECT_THAT(line.tick(now_).news, IsEmpty());
  EXPECT_EQ(line.state(), State::kUp);
}

TEST_F(LineTest, a_host_that_began_anew_is_opened_again) {
  Line line = up();
  line.start(1, {"role"}, "a.log");
  const auto passed = pass(line, 1s, [](const Beat& beat) -> std::optional<Answer> {
    return HostState{.beat = beat.number, .is_known = false, .processes = {}};
  });
  EXPECT_EQ(passed.ended.size(), 1u);
  EXPECT_EQ(line.state(), State::kReaching);
  EXPECT_TRUE(std::holds_alternative<Open>(passed.requests.back()));
  line.on(opened(), now_);
  line.on(Missing{}, now_);
  EXPECT_THAT(line.on(Settled{}, now_).news, ElementsAre("host far:1 is back"));
}

TEST_F(LineTest, how_a_process_ended_is_told_once_its_whole_log_has_come) {
  Line line = up();
  line.start(1, {"role"}, "a.log");
  const std::string log = "one two three";
  const auto ended = [&](const Beat& beat) -> std::optional<Answer> {
    HostState state{.beat = beat.number, .is_known = true, .processes = {}};
    for (const HostJob& job : beat.jobs) {
      state.processes.push_back({.number = job.number,
                                 .pid = 7,
                                 .is_running = false,
                                 .signal = SIGSEGV,
                                 .log_offset = job.log_offset,
                                 .log = log.substr(job.log_offset, 4),
                                 .is_log_complete = job.log_offset + 4 >= log.size()});
    }
    return state;
  };
  const auto passed = pass(line, 3s, ended);
  std::string whole;
  for (const auto& said : passed.said) whole += said.text;
  EXPECT_EQ(whole, log);
  ASSERT_EQ(passed.ended.size(), 1u);
  EXPECT_EQ(passed.ended[0].signal, SIGSEGV);
  EXPECT_FALSE(line.has(1));
}

TEST_F(LineTest, a_draining_host_takes_nothing_new_and_leaves_without_being_called_lost) {
  Line line = up();
  pass(line, 1s, [](const Beat& beat) -> std::optional<Answer> {
    return HostState{.beat = beat.number, .is_known = true, .is_draining = true, .processes = {}};
  });
  EXPECT_EQ(line.state(), State::kDraining);
  EXPECT_FALSE(line.takes_roles());
  const auto passed = pass(line, 5s, silent);
  EXPECT_EQ(line.state(), State::kLeft);
  EXPECT_THAT(passed.news, ElementsAre("host far:1 has left"));
}

TEST_F(LineTest, a_host_that_obeys_a_later_epoch_of_the_run_is_not_asked_again) {
  Line line = up();
  line.start(1, {"role", "env"}, "env-0.log");
  line.tick(now_);
  // Another life has opened it: the session is not known any more, and this side is of the past.
  line.on(HostState{.beat = 1, .is_known = false}, now_);
  const auto asked = line.tick(now_);
  ASSERT_FALSE(asked.requests.empty());
  EXPECT_EQ(std::get<Open>(asked.requests.front()).epoch, 1u);
  const auto turn = line.on(Fenced{.epoch = 2, .holder = "there"}, now_);
  ASSERT_TRUE(line.fence());
  EXPECT_EQ(line.state(), State::kRefused);
  EXPECT_THAT(line.refusal().message(), HasSubstr("taken over at there: it has epoch 2 there, and this is epoch 1"));
  EXPECT_TRUE(line.tick(now_ + 60s).requests.empty());
}

}  // namespace
}  // namespace tandem::hosts
