#include "wire/http_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "wire/http_server.h"

namespace tandem::wire {
namespace {

using namespace std::chrono_literals;

// Says what it was sent; /stream begins and says no more, /never says nothing, /large is of 8 MiB.
class HttpTransfersTest : public testing::Test {
 protected:
  HttpTransfersTest()
      : server_(*HttpServer::listen("127.0.0.1", 0, {.body_bytes = 1 << 20, .connections = 512})),
        transfers_(*HttpTransfers::create(clock_)) {
    handler_.answer = [this](const HttpRequest& request, const HttpReply& reply) {
      if (request.path == "/never") return kept_.push_back(reply);
      if (request.path == "/large") return reply({200, {}, std::string(size_t{8} << 20, 'x')});
      if (request.path == "/busy") return reply({429, {{"Retry-After", "7"}, {"X-One", "a"}}, "wait"});
      if (request.path == "/stream") {
        auto stream = std::make_shared<HttpStream>();
        stream->write("first ");
        streams_.push_back(stream);
        numbers_.insert(request.number);
        return reply({200, {{"Content-Type", "text/event-stream"}}, "", stream});
      }
      reply({200, {}, request.method + " " + request.body});
    };
    handler_.tick = [this] {
      if (!breaks_off_) return;
      for (const auto& stream : streams_) stream->abandon();
    };
    handler_.gone = [this](uint64_t number) { gone_ += static_cast<int>(numbers_.erase(number)); };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~HttpTransfersTest() override {
    transfers_.reset();
    stop_ = true;
    thread_.join();
    kept_.clear();
  }
  TransferRequest to(const std::string& path) const {
    TransferRequest transfer;
    transfer.request = {.url = "http://127.0.0.1:" + std::to_string(server_.port()) + path, .body = "hello"};
    return transfer;
  }
  struct Told {
    std::optional<TransferHead> head;
    std::string bytes;
    int ends = 0;
    bool connected = false;
    Status outcome;
  };
  // Takes events until `done`, a minute at most.
  void until(const std::function<bool()>& done) {
    const auto end = clock_.now() + 60s;
    while (!done() && clock_.now() < end) {
      pollfd waited{.fd = transfers_->wake_fd(), .events = POLLIN, .revents = 0};
      ::poll(&waited, 1, 100);
      for (auto& event : transfers_->take_events()) {
        Told& told = told_[event.transfer];
        EXPECT_EQ(told.ends, 0) << "nothing follows an end";
        if (event.head) told.head = std::move(event.head);
        told.bytes += event.bytes;
        told.ends += event.ended ? 1 : 0;
        told.connected = event.connected;
        told.outcome = event.outcome;
      }
    }
    EXPECT_TRUE(done());
  }
  bool ended(uint64_t transfer) { return told_[transfer].ends > 0; }

  SystemClock clock_;
  HttpServer server_;
  std::vector<HttpReply> kept_;
  std::vector<std::shared_ptr<HttpStream>> streams_;
  std::set<uint64_t> numbers_;
  std::atomic<int> gone_{0};
  std::atomic<bool> breaks_off_{false};  // all streams
  HttpHandler handler_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
  std::unique_ptr<HttpTransfers> transfers_;
  std::map<uint64_t, Told> told_;
};

TEST_F(HttpTransfersTest, many_at_once_each_with_its_own_answer) {
  std::vector<uint64_t> all;
  for (int i = 0; i < 200; ++i) {
    auto request = to("/");
    request.request.body = std::to_string(i);
    all.push_back(transfers_->start(std::move(request)));
  }
  until([&] { return std::ranges::all_of(all, [&](uint64_t one) { return ended(one); }); });
  for (int i = 0; i < 200; ++i) {
    const Told& told = told_[all[static_cast<size_t>(i)]];
    EXPECT_TRUE(told.outcome.ok()) << told.outcome.to_string();
    EXPECT_EQ(told.bytes, "POST " + std::to_string(i));
    ASSERT_TRUE(told.head);
    EXPECT_EQ(told.head->status, 200);
  }
}

TEST_F(HttpTransfersTest, heads_come_with_their_headers) {
  const auto busy = transfers_->start(to("/busy"));
  until([&] { return ended(busy); });
  ASSERT_TRUE(told_[busy].head);
  EXPECT_EQ(told_[busy].head->status, 429);
  EXPECT_EQ(told_[busy].head->headers.at("retry-after"), "7");
  EXPECT_EQ(told_[busy].head->headers.at("x-one"), "a");
  EXPECT_TRUE(told_[busy].outcome.ok());
}

TEST_F(HttpTransfersTest, a_stream_comes_as_it_is_sent_and_its_server_learns_that_it_was_cancelled) {
  const auto one = transfers_->start(to("/stream"));
  until([&] { return told_[one].bytes == "first "; });
  EXPECT_FALSE(ended(one));
  transfers_->cancel(one);
  until([&] { return gone_ == 1; });
  EXPECT_FALSE(ended(one));
}

TEST_F(HttpTransfersTest, failures_say_how_far_it_came) {
  const auto cut = transfers_->start(to("/stream"));
  auto nobody = to("/");
  nobody.request.url = "http://127.0.0.1:1/";  // a port that is nobody's
  const auto absent = transfers_->start(std::move(nobody));
  auto never = to("/never");
  never.first_byte = 300ms;
  const auto late = transfers_->start(std::move(never));
  auto silent = to("/stream");
  silent.silence = 300ms;
  const auto stopped = transfers_->start(std::move(silent));
  auto bad = to("/");
  bad.request.headers.emplace_back("X", "a\r\nY: b");
  const auto wrong = transfers_->start(std::move(bad));
  until([&] { return !told_[cut].bytes.empty() && ended(stopped); });
  breaks_off_ = true;
  until([&] { return ended(cut) && ended(absent) && ended(late) && ended(stopped) && ended(wrong); });
  EXPECT_EQ(told_[cut].outcome.code(), Code::kUnavailable);
  EXPECT_TRUE(told_[cut].head);
  EXPECT_EQ(told_[absent].outcome.code(), Code::kUnavailable);
  EXPECT_FALSE(told_[absent].connected);
  EXPECT_EQ(told_[late].outcome.code(), Code::kDeadline);
  EXPECT_TRUE(told_[late].connected);
  EXPECT_FALSE(told_[late].head);
  EXPECT_EQ(told_[stopped].outcome.code(), Code::kDeadline);
  EXPECT_EQ(told_[stopped].bytes, "first ");
  EXPECT_EQ(told_[wrong].outcome.code(), Code::kInvalid);
}

TEST_F(HttpTransfersTest, what_nobody_takes_is_bounded_and_nothing_of_it_is_lost) {
  const auto large = transfers_->start(to("/large"));
  until([&] { return !told_[large].bytes.empty(); });
  transfers_->hold(large, true);
  // What has been read by now comes; then no more, however often it is asked for.
  until([&, before = size_t{0}, same = 0]() mutable {
    same = told_[large].bytes.size() == before ? same + 1 : 0;
    before = told_[large].bytes.size();
    return same > 5 || ended(large);
  });
  transfers_->hold(large, false);
  until([&] { return ended(large); });
  EXPECT_TRUE(told_[large].outcome.ok());
  EXPECT_EQ(told_[large].bytes.size(), size_t{8} << 20);
  auto small = to("/large");
  small.request.largest_answer = 1000;
  const auto one = transfers_->start(std::move(small));
  until([&] { return ended(one); });
  EXPECT_EQ(told_[one].outcome.code(), Code::kExhausted);
}

TEST_F(HttpTransfersTest, it_ends_with_what_runs) {
  for (int i = 0; i < 20; ++i) transfers_->start(to(i % 2 == 0 ? "/never" : "/stream"));
  until([&] { return told_.size() >= 10; });
  transfers_.reset();
  const auto end = clock_.now() + 60s;
  while (gone_ < 10 && clock_.now() < end) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(gone_, 10);
}

}  // namespace
}  // namespace tandem::wire
