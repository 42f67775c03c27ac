// Benchmarks of the server under more than it can answer at once: completions at the cursor beside other work, and how
// much is answered in time at several times the rate that it can hold.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "base/random.h"
#include "bench/served.h"

namespace tandem::bench {

namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr auto kPatienceUnderLoad = 120s;
constexpr int kAgents = 16, kAgentTokens = 256;
constexpr int kShared = 128, kSuggested = 16;  // tokens before the cursor, and of a suggestion

double seconds_since(Steady::time_point begin) { return std::chrono::duration<double>(Steady::now() - begin).count(); }

// Requests under way, each on a connection of its own.
class Exchanges {
 public:
  explicit Exchanges(uint16_t port) : port_(port) {}

  struct Ended {
    int id = 0;
    bool ok = false;  // status 200
    double seconds = 0;
  };

  Result<int> begin(const std::string& request) {
    Exchange exchange{.socket = TRY(connect_to(port_)), .begun = Steady::now(), .answer = {}};
    TRY(write_all(exchange.socket.get(), request, "request"));
    exchanges_.emplace(++last_, std::move(exchange));
    return last_;
  }
  // As a client does that wants no answer any more.
  void drop(int id) { exchanges_.erase(id); }
  void drop_all() { exchanges_.clear(); }
  bool is_under_way(int id) const { return exchanges_.contains(id); }

  // What has ended by `until`; returns as soon as anything has.
  Result<std::vector<Ended>> wait(Steady::time_point until) {
    std::vector<Ended> ended;
    while (ended.empty()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Steady::now()).count();
      if (left < 0) return ended;
      std::vector<pollfd> waits;
      std::vector<int> ids;
      for (const auto& [id, exchange] : exchanges_) {
        waits.push_back({exchange.socket.get(), POLLIN, 0});
        ids.push_back(id);
      }
      if (::poll(waits.data(), waits.size(), static_cast<int>(left)) < 0 && errno != EINTR)
        return fail(Status::from_errno("poll", errno));
      for (size_t i = 0; i < waits.size(); ++i) {
        if (waits[i].revents == 0) continue;
        Exchange& exchange = exchanges_.at(ids[i]);
        char buffer[16384];
        const ssize_t got = ::recv(waits[i].fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got > 0) exchange.answer.append(buffer, static_cast<size_t>(got));
        if (got > 0 && !ends_whole(exchange.answer)) continue;
        if (got < 0 && errno == EAGAIN) continue;
        const bool ok = got > 0 && exchange.answer.starts_with("HTTP/1.1 200");
        ended.push_back({ids[i], ok, seconds_since(exchange.begun)});
        exchanges_.erase(ids[i]);
      }
    }
    return ended;
  }

 private:
  struct Exchange {
    FileDescriptor socket;
    Steady::time_point begun;
    std::string answer;
  };
  const uint16_t port_;
  std::map<int, Exchange> exchanges_;
  int last_ = 0;
};

std::string completion(const std::vector<int32_t>& prompt, int tokens, std::string_view priority, int n = 1) {
  return post("/v1/completions",
              {{"model", "model"}, {"prompt", prompt}, {"max_tokens", tokens}, {"ignore_eos", true}, {"n", n}},
              priority);
}

// Answers that do not matter, but must go on: each that ends is begun anew.
class Others {
 public:
  Others(uint16_t port, std::string request) : exchanges_(port), request_(std::move(request)) {}

  Status begin(int count) {
    for (int i = 0; i < count; ++i) TRY(exchanges_.begin(request_));
    return {};
  }
  Status go_on() {
    const auto ended = TRY(exchanges_.wait(Steady::now()));
    return begin(static_cast<int>(ended.size()));
  }

 private:
  Exchanges exchanges_;
  const std::string request_;
};

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

struct Typed {
  std::vector<double> seconds;  // to whole suggestions that were waited for
  int superseded = 0;
};

// An editor: five keystrokes 60 ms apart, each of which asks anew and lets go of the one before, then a pause until the
// suggestion is there.
Result<Typed> type(uint16_t port, double seconds, const std::function<Status()>& meanwhile) {
  Exchanges exchanges(port);
  Typed typed;
  std::vector<int32_t> prompt(kShared, 5);
  const auto end = Steady::now() + std::chrono::duration<double>(seconds);
  while (typed.seconds.size() < 10 || Steady::now() < end) {
    int last = 0;
    for (int key = 0; key < 5; ++key) {
      if (last != 0 && exchanges.is_under_way(last)) {
        exchanges.drop(last);
        ++typed.superseded;
      }
      prompt.push_back(static_cast<int32_t>(6 + typed.seconds.size() % 40));
      last = TRY(exchanges.begin(completion(prompt, kSuggested, "autocomplete")));
      const auto next = Steady::now() + 60ms;
      while (key < 4 && Steady::now() < next) {
        TRY(exchanges.wait(next));
        TRY(meanwhile());
      }
    }
    const auto deadline = Steady::now() + kPatienceUnderLoad;
    for (bool there = false; !there;) {
      if (Steady::now() > deadline) return fail(Status::deadline("a suggestion did not come in time"));
      for (const auto& one : TRY(exchanges.wait(Steady::now() + 20ms))) {
        if (one.id != last) continue;
        if (!one.ok) return fail(Status::unavailable("a suggestion was refused"));
        typed.seconds.push_back(one.seconds);
        there = true;
      }
      TRY(meanwhile());
    }
    if (prompt.size() > 300) prompt.resize(kShared);
  }
  return typed;
}

Status add_keystrokes(const Settings& settings, std::vector<Figure>& figures) {
  const auto served = TRY(Served::start(settings, {.queue = 20'000}));
  const auto add = [&](const char* name, const Typed& typed, double limit, const char* bound) {
    const double ms = 1e3 * percentile(typed.seconds, 0.99);
    figures.push_back({fmt::format("{}, p99 of {}", name, typed.seconds.size()), ms, "ms", limit, bound});
    return ms;
  };
  const auto nothing = [] { return Status(); };
  const double idle =
      add("suggestion while typing, idle server", TRY(type(served->port(), settings.seconds, nothing)), 0, "");
  {
    Others agents(served->port(), completion(std::vector<int32_t>(64, 9), kAgentTokens, "agent"));
    TRY(agents.begin(kAgents));
    add("the same beside 16 agents", TRY(type(served->port(), settings.seconds, [&] { return agents.go_on(); })), idle,
        "idle");
  }
  double running = 0;
  {
    Others batch(served->port(), completion(std::vector<int32_t>(64, 8), kAgentTokens, "batch"));
    TRY(batch.begin(kAgents));
    running = add("the same beside 16 of a batch",
                  TRY(type(served->port(), settings.seconds, [&] { return batch.go_on(); })), idle, "idle");
  }
  // 640 requests of 16 answers each.
  Others queued(served->port(), completion(std::vector<int32_t>(64, 7), kAgentTokens, "batch", 16));
  TRY(queued.begin(640));
  add("the same, 10,240 of a batch queued", TRY(type(served->port(), settings.seconds, [&] { return queued.go_on(); })),
      running, "16 of a batch");
  return {};
}

struct Load {
  double in_time = 0, refused = 0;  // a second
};

// Requests at random moments, `rate` a second, of which those count that are answered within `limit` seconds.
Result<Load> offer(uint16_t port, const std::string& request, double rate, double seconds, double limit,
                   uint64_t seed) {
  Exchanges exchanges(port);
  Random random(seed);
  const auto begin = Steady::now();
  auto next = begin;
  int in_time = 0, refused = 0;
  const auto take = [&](const std::vector<Exchanges::Ended>& ended) {
    for (const auto& one : ended) {
      refused += !one.ok;
      in_time += one.ok && one.seconds <= limit;
    }
  };
  while (seconds_since(begin) < seconds) {
    while (Steady::now() >= next) {
      TRY(exchanges.begin(request));
      next += std::chrono::duration_cast<Steady::duration>(
          std::chrono::duration<double>(-std::log(1 - random.uniform()) / rate));
    }
    take(TRY(exchanges.wait(next)));
  }
  const double took = seconds_since(begin);
  exchanges.drop_all();
  return Load{in_time / took, refused / took};
}

// The most that is answered when as many are under way as there are slots, and how long each takes then.
Result<std::pair<double, double>> capacity(uint16_t port, const std::string& request, double seconds) {
  Exchanges exchanges(port);
  for (int i = 0; i < kAgents; ++i) TRY(exchanges.begin(request));
  const auto begin = Steady::now();
  std::vector<double> took;
  while (seconds_since(begin) < seconds || took.size() < 2 * kAgents) {
    if (seconds_since(begin) > 120) return fail(Status::deadline("the server did not answer in time"));
    for (const auto& one : TRY(exchanges.wait(Steady::now() + 100ms))) {
      took.push_back(one.seconds);
      TRY(exchanges.begin(request));
    }
  }
  return std::pair{static_cast<double>(took.size()) / seconds_since(begin), percentile(took, 0.5)};
}

Status add_goodput(const Settings& settings, std::vector<Figure>& figures) {
  constexpr int kLeastTokens = 32, kMostTokens = 400;
  constexpr double kMostAnswers = 250;  // a second
  const auto request = [](int tokens) { return completion(std::vector<int32_t>(64, 5), tokens, "interactive"); };
  double most = 0, each = 0;
  int tokens = kLeastTokens;
  {
    const auto served = TRY(Served::start(settings, {}));
    const double seconds = std::max(2.0, settings.seconds);
    std::tie(most, each) = TRY(capacity(served->port(), request(kLeastTokens), seconds));
    // Connections of thousands of answers a second would be what is measured.
    tokens = std::clamp(static_cast<int>(kLeastTokens * most / kMostAnswers), kLeastTokens, kMostTokens);
    if (tokens > kLeastTokens) std::tie(most, each) = TRY(capacity(served->port(), request(tokens), seconds));
  }
  // In time is what takes five times as long as beside a full server, of which it may wait for four.
  const double limit = 5 * each, window = std::max(3.0, settings.seconds) + 2 * limit;
  Admitted admitted;
  admitted.longest_wait[static_cast<size_t>(serve::Priority::kInteractive)] = from_seconds(4 * each);
  double peak = 0;
  for (const double load : {0.8, 1.0, 1.25}) {
    const auto served = TRY(Served::start(settings, admitted));
    peak = std::max(peak, TRY(offer(served->port(), request(tokens), load * most, window, limit, 1)).in_time);
  }
  figures.push_back({fmt::format("answers of {} tokens within {:.0f} ms, at the best rate", tokens, 1e3 * limit), peak,
                     "/s", most, "16 clients that wait"});
  for (const double load : {4.0, 16.0}) {
    const auto served = TRY(Served::start(settings, admitted));
    const Load at = TRY(offer(served->port(), request(tokens), load * most, window, limit, 2));
    figures.push_back({fmt::format("the same at {:.0f} times the rate, {:.0f} /s refused", load, at.refused),
                       at.in_time, "/s", peak, "the best rate"});
  }
  return {};
}

}  // namespace

Result<std::vector<Figure>> bench_load(const Settings& settings) {
  if (settings.model.empty()) return fail(Status::invalid("which model? --model DIR says it"));
  std::vector<Figure> figures;
  TRY(add_keystrokes(settings, figures));
  TRY(add_goodput(settings, figures));
  return figures;
}

}  // namespace tandem::bench
