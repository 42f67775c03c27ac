// The two machines of a standby, over a line that loses, doubles and delays, to a host that begins anew now and then.
#include "standby/source.h"

#include <gmock/gmock.h>

#include <random>

#include "standby/streams.h"

namespace tandem::standby {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using State = Source::State;
using Files = std::map<std::string, std::string>;

// A host's side without disks: files are what was carried out.
class FakeKeeper {
 public:
  Files files;
  std::optional<Fenced> fence;

  void begin_anew() {
    streams_ = {};
    coming_.clear();
  }

  std::optional<Answer> on(const Request& request, const std::string& bytes) {
    if (fence) return Answer{.life = request.life, .what = *fence};
    const bool is_survey = std::holds_alternative<Survey>(request.op);
    switch (streams_.judge("s", request.life, request.number, is_survey)) {
      case Streams::Verdict::kDrop:
        return {};
      case Streams::Verdict::kUnknown:
        return Answer{.life = request.life, .what = Unknown{}};
      case Streams::Verdict::kAgain:
        return Answer{.life = request.life, .number = streams_.done("s"), .what = Done{}};
      case Streams::Verdict::kSurvey:
        return survey(request);
      case Streams::Verdict::kApply:
        break;
    }
    if (!apply(request.op, bytes)) {
      streams_.failed("s");
      return Answer{.life = request.life, .what = Unknown{}};
    }
    streams_.applied("s");
    if (is_survey) return survey(request);
    return Answer{.life = request.life, .number = request.number, .what = Done{}};
  }

 private:
  Answer survey(const Request& request) const {
    Surveyed surveyed{.folder = "/copy", .files = {}};
    for (const auto& [path, content] : files)
      surveyed.files.push_back({.path = path, .bytes = content.size(), .digest = digest_of(content)});
    return {.life = request.life, .number = 1, .what = surveyed};
  }
  bool apply(const Op& op, const std::string& bytes) {
    if (const auto* extend = std::get_if<Extend>(&op)) {
      std::string& file = files[extend->path];
      if (file.size() != extend->offset) return false;
      file += bytes;
    } else if (const auto* put = std::get_if<Put>(&op)) {
      std::string& file = coming_[put->path];
      if (put->offset == 0) file.clear();
      if (file.size() != put->offset) return false;
      file += bytes;
      if (file.size() < put->total) return true;
      if (digest_of(file) != put->digest) return false;
      files[put->path] = std::exchange(file, {});
    } else if (const auto* remove = std::get_if<Remove>(&op)) {
      std::erase_if(files, [&](const auto& entry) { return is_at_or_below(entry.first, remove->path); });
    }
    return true;
  }
  Streams streams_;
  Files coming_;
};

class SourceTest : public testing::Test {
 protected:
  Source::Terms terms(bool goes_on = false) {
    return {.name = "far:1",
            .paths = {"a", "b"},
            .run = "r",
            .goes_on = goes_on,
            .digest_of_log = [this](const std::string& path, uint64_t bytes) -> std::optional<Digest> {
              const auto found = files_.find(path);
              if (found == files_.end() || found->second.size() < bytes) return {};
              return digest_of(std::string_view(found->second).substr(0, bytes));
            }};
  }
  std::string bytes_of(const Op& op) {
    const auto* extend = std::get_if<Extend>(&op);
    if (extend != nullptr && extend->bytes > 0) return files_.at(extend->path).substr(extend->offset, extend->bytes);
    if (const auto* put = std::get_if<Put>(&op)) return files_.at(put->path).substr(put->offset, put->bytes);
    return "";
  }
  // Everything that is to be sent reaches the host, and every answer comes back.
  void talk(Source& source, FakeKeeper& keeper) {
    auto turn = source.tick(now_);
    note(turn);
    while (!turn.requests.empty()) {
      std::vector<Request> more;
      for (const Request& request : turn.requests) {
        const auto answer = keeper.on(request, bytes_of(request.op));
        if (!answer) continue;
        auto next = source.on(*answer, now_);
        note(next);
        std::move(next.requests.begin(), next.requests.end(), std::back_inserter(more));
      }
      turn.requests = std::move(more);
    }
  }
  void note(const Source::Turn& turn) {
    for (const auto& line : turn.news) news_ += line + "\n";
  }
  // Time in which nobody answers.
  void silence(Source& source, Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += 100ms) note(source.tick(now_));
  }

  Files files_;
  Time now_{1s};
  std::string news_;
};

TEST_F(SourceTest, what_is_wanted_is_there_and_then_its_mark_is_held) {
  Source source(terms());
  FakeKeeper keeper;
  keeper.files["b/old"] = "of another life";
  files_["a"] = "log";
  files_["b/new"] = std::string(3 * kPartBytes + 7, 'x');
  const uint64_t log = source.extend("a", 3);
  const uint64_t file = source.put("b/new", files_["b/new"].size(), digest_of(files_["b/new"]), false);
  EXPECT_FALSE(source.covers(log));
  talk(source, keeper);
  EXPECT_TRUE(source.covers(file));
  EXPECT_EQ(source.state(), State::kWhole);
  EXPECT_EQ(keeper.files, files_);
  files_["a"] += " goes on";
  const uint64_t more = source.extend("a", files_["a"].size());
  EXPECT_FALSE(source.covers(more));
  talk(source, keeper);
  EXPECT_TRUE(source.covers(more));
  EXPECT_EQ(keeper.files["a"], "log goes on");
  files_.erase("b/new");
  source.remove("b");
  talk(source, keeper);
  EXPECT_EQ(keeper.files, files_);
}

TEST_F(SourceTest, what_is_there_already_is_not_sent_again) {
  FakeKeeper keeper;
  files_ = keeper.files = {{"a", std::string(5 * kPartBytes, 'l')}, {"b", std::string(2 * kPartBytes, 'f')}};
  files_["a"] += "tail";
  Source source(terms());
  source.extend("a", files_["a"].size());
  source.put("b", files_["b"].size(), digest_of(files_["b"]), false);
  auto turn = source.tick(now_);
  ASSERT_EQ(turn.requests.size(), 1u);
  turn = source.on(*keeper.on(turn.requests[0], ""), now_);
  ASSERT_EQ(turn.requests.size(), 1u);
  const auto& extend = std::get<Extend>(turn.requests[0].op);
  EXPECT_EQ(extend.offset, 5 * kPartBytes);
  EXPECT_EQ(extend.bytes, 4u);
}

TEST_F(SourceTest, a_log_that_is_another_there_is_sent_from_its_beginning) {
  for (const char* there : {"lag and more", "lox"}) {
    FakeKeeper keeper;
    keeper.files["a"] = there;
    files_["a"] = "log";
    Source source(terms());
    source.extend("a", 3);
    talk(source, keeper);
    EXPECT_EQ(keeper.files, files_);
    EXPECT_EQ(source.state(), State::kWhole);
  }
}

TEST_F(SourceTest, a_bounded_part_is_under_way) {
  Source source(terms());
  FakeKeeper keeper;
  files_["a"] = std::string(40 * kPartBytes, 'x');
  source.extend("a", files_["a"].size());
  auto turn = source.tick(now_);
  turn = source.on(*keeper.on(turn.requests.at(0), ""), now_);
  EXPECT_EQ(turn.requests.size(), kWindow / kPartBytes);
  EXPECT_TRUE(source.tick(now_ + 100ms).requests.empty());
  EXPECT_EQ(source.tick(now_ + 1100ms).requests.size(), kWindow / kPartBytes) << "the same ones again";
}

TEST_F(SourceTest, a_standby_that_is_lost_is_named_and_waited_for) {
  Source source(terms());
  FakeKeeper keeper;
  talk(source, keeper);
  const uint64_t mark = source.extend("a", 0);
  silence(source, 5s);
  EXPECT_EQ(source.state(), State::kLost);
  EXPECT_EQ(source.shown_state(), "lost");
  EXPECT_FALSE(source.covers(mark));
  EXPECT_THAT(news_, HasSubstr("the standby far:1 is lost: it has not answered for"));
  EXPECT_THAT(news_, HasSubstr("the run waits for it"));
  now_ += 1s;
  talk(source, keeper);
  EXPECT_TRUE(source.covers(mark));
  EXPECT_THAT(news_, HasSubstr("is back, and has everything again"));
}

TEST_F(SourceTest, a_standby_without_room_is_lost_until_it_takes_bytes_again_and_says_so_once) {
  Source source(terms());
  FakeKeeper keeper;
  talk(source, keeper);
  files_["a"] = "abc";
  const uint64_t mark = source.extend("a", 3);
  for (int i = 0; i < 20; ++i, now_ += 1s) {
    auto turn = source.tick(now_);
    note(turn);
    while (!turn.requests.empty()) {
      std::vector<Request> more;
      for (const Request& request : turn.requests) {
        const bool needs_room = std::holds_alternative<Extend>(request.op);
        const auto answer =
            needs_room ? Answer{.life = request.life, .what = Refused{Status::exhausted("No space left on device")}}
                       : keeper.on(request, "");
        if (!answer) continue;
        auto next = source.on(*answer, now_);
        note(next);
        std::move(next.requests.begin(), next.requests.end(), std::back_inserter(more));
      }
      turn.requests = std::move(more);
      if (i > 0) {
        EXPECT_EQ(source.shown_state(), "lost");
      }
    }
  }
  EXPECT_FALSE(source.covers(mark));
  const std::string kWords = "the standby far:1 cannot keep the copy: No space left on device\n";
  EXPECT_EQ(news_, kWords);
  EXPECT_EQ(source.trouble().message(), "No space left on device");
  now_ += 2s;
  talk(source, keeper);
  EXPECT_TRUE(source.covers(mark));
  EXPECT_EQ(source.shown_state(), "up");
  EXPECT_TRUE(source.trouble().ok());
  EXPECT_EQ(news_, kWords + "the standby far:1 is back, and has everything again\n");
}

TEST_F(SourceTest, an_idle_standby_that_is_lost_is_found) {
  Source source(terms());
  FakeKeeper keeper;
  talk(source, keeper);
  silence(source, 6s);
  EXPECT_EQ(source.state(), State::kLost);
}

TEST_F(SourceTest, our_own_absence_is_no_silence_of_the_standby) {
  Source source(terms());
  FakeKeeper keeper;
  talk(source, keeper);
  now_ += 60s;
  (void)source.tick(now_);
  EXPECT_NE(source.state(), State::kLost);
}

TEST_F(SourceTest, who_goes_on_without_says_so_until_the_copy_has_caught_up) {
  Source source(terms(true));
  FakeKeeper keeper;
  talk(source, keeper);
  silence(source, 5s);
  files_["a"] = "what was acknowledged alone";
  EXPECT_TRUE(source.covers(source.extend("a", files_["a"].size())));
  keeper.begin_anew();
  now_ += 1s;
  std::vector<bool> said;
  auto turn = source.tick(now_);
  for (int rounds = 0; rounds < 10 && !turn.requests.empty(); ++rounds) {
    std::vector<Request> more;
    for (const Request& request : turn.requests) {
      if (const auto* state = std::get_if<SetWhole>(&request.op)) said.push_back(state->whole);
      const auto answer = keeper.on(request, bytes_of(request.op));
      if (!answer) continue;
      auto next = source.on(*answer, now_);
      std::move(next.requests.begin(), next.requests.end(), std::back_inserter(more));
    }
    turn.requests = std::move(more);
  }
  // The first is the word of before, which was not answered.
  EXPECT_THAT(said, testing::ElementsAre(true, false, true));
  EXPECT_EQ(keeper.files, files_);
}

TEST_F(SourceTest, after_a_take_over_nothing_is_covered_any_more) {
  Source source(terms());
  FakeKeeper keeper;
  talk(source, keeper);
  keeper.fence = Fenced{.epoch = 2, .holder = "far:1"};
  const uint64_t mark = source.extend("a", 0);
  talk(source, keeper);
  EXPECT_EQ(source.state(), State::kFenced);
  EXPECT_THAT(news_, HasSubstr("the run was taken over at far:1: it has epoch 2 now, and this is epoch 1"));
  keeper.fence.reset();
  now_ += 10s;
  EXPECT_TRUE(source.tick(now_).requests.empty());
  EXPECT_FALSE(source.covers(mark));
}

TEST_F(SourceTest, a_file_that_went_is_wanted_no_longer) {
  Source source(terms());
  FakeKeeper keeper;
  talk(source, keeper);
  source.put("b/gone", 5, digest_of(std::string_view("12345")), false);
  files_["b/there"] = "x";
  const uint64_t mark = source.put("b/there", 1, digest_of(std::string_view("x")), false);
  (void)source.tick(now_);
  (void)source.unreadable("b/gone", now_);
  now_ += 6s;
  talk(source, keeper);
  EXPECT_TRUE(source.covers(mark));
  EXPECT_EQ(keeper.files, files_);
}

// A mark that is held stays true, whatever the line does; in the end all is there.
TEST_F(SourceTest, over_a_bad_line_a_mark_is_held_only_when_all_before_it_is_there) {
  for (uint32_t seed = 1; seed <= 300u; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
    files_.clear();
    news_.clear();
    now_ = Time{1s};
    FakeKeeper keeper;
    auto source = std::make_unique<Source>(terms());
    struct Flying {
      Time due;
      std::variant<std::pair<Request, std::string>, Answer> what;
    };
    std::vector<Flying> flying;
    const auto fly = [&](auto what) {
      if (chance(10)) return;
      const int copies = chance(10) ? 2 : 1;
      for (int i = 0; i < copies; ++i) flying.push_back({now_ + 1ms * (random() % (chance(10) ? 3000 : 50)), what});
    };
    const auto send = [&](const Source::Turn& turn) {
      for (const Request& request : turn.requests) {
        const auto* put = std::get_if<Put>(&request.op);
        if (put != nullptr && !files_.contains(put->path)) {
          for (const Request& survey : source->unreadable(put->path, now_).requests)
            fly(std::pair(survey, std::string()));
          return;
        }
        fly(std::pair(request, bytes_of(request.op)));
      }
    };
    std::map<uint64_t, Files> promised;  // what is to be there once the mark is held
    uint64_t lives = 1, made = 0;
    const auto check = [&] {
      for (auto it = promised.begin(); it != promised.end() && it->first <= source->held(); it = promised.erase(it)) {
        for (const auto& [path, content] : it->second) {
          const bool was_removed = !files_.contains(path);
          ASSERT_TRUE(was_removed || keeper.files[path].starts_with(content))
              << "seed " << seed << " mark " << it->first << " " << path;
        }
      }
    };
    for (int turn = 0; turn < 1500; ++turn, now_ += 10ms) {
      if (turn < 800 && chance(20)) {
        uint64_t mark = 0;
        if (chance(70)) {
          files_["a"] += std::to_string(++made) + ",";
          mark = source->extend("a", files_["a"].size());
        } else if (chance(70)) {
          const std::string path = "b/" + std::to_string(++made);
          files_[path] = std::string(random() % 50, 'f') + std::to_string(made);
          mark = source->put(path, files_[path].size(), digest_of(files_[path]), false);
        } else if (files_.size() > 3) {
          const std::string path = std::prev(files_.end())->first;
          if (path != "a") files_.erase(path), mark = source->remove(path);
        }
        if (mark > 0) promised[mark] = files_;
      }
      if (turn < 1000 && chance(1)) keeper.begin_anew();
      if (turn < 800 && chance(1)) {  // the process starts again, with what it has on its disk
        auto again = terms();
        again.first_life = ++lives << 20;
        source = std::make_unique<Source>(again);
        promised.clear();
        for (const auto& [path, content] : files_) {
          if (path == "a")
            source->extend(path, content.size());
          else
            source->put(path, content.size(), digest_of(content), false);
        }
      }
      send(source->tick(now_));
      for (size_t i = 0; i < flying.size();) {
        if (flying[i].due > now_) {
          ++i;
          continue;
        }
        const auto what = std::move(flying[i].what);
        flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(i));
        if (const auto* request = std::get_if<0>(&what)) {
          if (const auto answer = keeper.on(request->first, request->second)) fly(*answer);
        } else {
          send(source->on(std::get<Answer>(what), now_));
        }
      }
      check();
      if (HasFatalFailure()) return;
    }
    for (int turn = 0; turn < 400 && source->state() != State::kWhole; ++turn, now_ += 100ms) talk(*source, keeper);
    ASSERT_EQ(source->state(), State::kWhole)
        << "seed " << seed << " held " << source->held() << " of " << source->last_mark() << news_;
    ASSERT_EQ(keeper.files, files_) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tandem::standby
