// Both ends with sockets, threads and files.
#include "standby/replicator.h"

#include <gmock/gmock.h>

#include <atomic>

#include "standby/keeper.h"
#include "tests/standby/scratch_folder.h"
#include "tests/within.h"

namespace tandem::standby {
namespace {

using testing::HasSubstr;

// A host that does nothing but keep copies, on a thread, while it lives.
class KeepingHost {
 public:
  KeepingHost(const fs::path& folder, const wire::Secret& secret, const std::string& address) {
    thread_ = std::thread([this, folder, &secret, address] {
      zmq::context_t context;
      auto socket = wire::Socket::listen(
          context, address, {.sender = "host", .epoch = 1, .run = wire::kEveryRun, .hears_other_protocols = true},
          &secret);
      ASSERT_TRUE(socket) << socket.error().to_string();
      {
        const std::lock_guard lock(mutex_);
        address_ = socket->address();
      }
      Keeper keeper({.folder = folder, .host = socket->address(), .key = "/key"});
      while (!is_ending_) {
        wire::Socket* const sockets[] = {&*socket};
        wire::wait(sockets, std::chrono::milliseconds(20), keeper.wake_fd());
        while (auto message = socket->receive()) keeper.take(std::move(*message));
        keeper.turn([&](const Keeper::Reply& reply) {
          wire::Outgoing out(reply.id, reply.run);
          write_answer(reply.answer, out.body().initCopyAnswer());
          (void)socket->send(reply.to, out);
        });
      }
    });
    EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return !this->address().empty(); }));
  }
  ~KeepingHost() {
    is_ending_ = true;
    thread_.join();
  }
  std::string address() {
    const std::lock_guard lock(mutex_);
    return address_;
  }

 private:
  std::mutex mutex_;
  std::string address_;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

class ReplicatorTest : public ScratchFolder {
 protected:
  ReplicatorTest() : secret_(wire::Secret::create(folder() / "key").value()) { EXPECT_TRUE(make_directories(run())); }
  fs::path run() const { return folder() / "run"; }
  fs::path copy() const { return folder() / "copies" / "000000000000002a"; }
  void write(const std::string& path, const std::string& content) {
    ASSERT_TRUE(make_directories((run() / path).parent_path()));
    ASSERT_TRUE(write_file(run() / path, content));
  }
  std::string there(const std::string& path) { return read_file(copy() / path).value_or("-"); }
  ReplicatorSettings settings(const std::string& address, uint64_t start = 1, uint64_t epoch = 1) {
    return {.run_dir = run(),
            .run = "r",
            .run_id = 0x2a,
            .epoch = epoch,
            .stream = "trainer-0",
            .start = start,
            .paths = {"log", "checkpoints"},
            .address = address,
            .secret = secret_};
  }
  wire::Secret secret_;
};

TEST_F(ReplicatorTest, a_mark_is_waited_for_until_it_is_on_the_other_disk) {
  std::string address = "tcp://127.0.0.1:*";
  write("log", "one");
  write("checkpoints/step_1/a", std::string(3'000'000, 'a'));
  write("checkpoints/step_1/learner.json", "{}");
  {
    KeepingHost host(folder() / "copies", secret_, address);
    address = host.address();
    Replicator replicator(settings(address));
    replicator.extend("log", 3);
    const auto mark = replicator.put_all("checkpoints", "learner.json");
    ASSERT_TRUE(mark) << mark.error().to_string();
    ASSERT_TRUE(replicator.wait(*mark));
    EXPECT_EQ(there("log"), "one");
    EXPECT_EQ(there("checkpoints/step_1/a").size(), 3'000'000u);
    EXPECT_EQ(there("checkpoints/step_1/learner.json"), "{}");
    EXPECT_EQ(replicator.report(0)["state"], "up");
    EXPECT_EQ(replicator.report(0)["folder"], copy().string());
  }
  // Without the host nothing is covered; the process that starts again has it all again when the host is back.
  write("log", "one two");
  Replicator replicator(settings(address, 2));
  const uint64_t mark = replicator.extend("log", 7);
  EXPECT_FALSE(replicator.covers(mark));
  KeepingHost host(folder() / "copies", secret_, address);
  ASSERT_TRUE(replicator.wait(mark));
  EXPECT_EQ(there("log"), "one two");
  EXPECT_FALSE(fs::exists(copy() / "checkpoints/step_1/a")) << "it is wanted no longer";
}

TEST_F(ReplicatorTest, after_a_take_over_the_old_side_is_told_and_nothing_comes_in) {
  KeepingHost host(folder() / "copies", secret_, "tcp://127.0.0.1:*");
  write("log", "one");
  Replicator replicator(settings(host.address()));
  ASSERT_TRUE(replicator.wait(replicator.extend("log", 3)));
  {
    const auto lock = RecordLock::take(copy());
    ASSERT_TRUE(lock);
    auto record = read_record_of(copy());
    ASSERT_TRUE(record);
    record->epoch = 2;
    record->is_taken = true;
    record->holder = "here";
    ASSERT_TRUE(write_record_of(copy(), *record));
  }
  write("log", "one late");
  const Status fenced = replicator.wait(replicator.extend("log", 8));
  EXPECT_EQ(fenced.code(), Code::kUnfit);
  EXPECT_THAT(fenced.message(), HasSubstr("taken over at here: it has epoch 2 there, and this is epoch 1"));
  EXPECT_EQ(there("log"), "one");
  // Nor does anybody else write into it.
  Replicator later(settings(host.address(), 3, 3));
  (void)later.extend("log", 8);
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return later.report(0).contains("trouble"); }));
  EXPECT_EQ(there("log"), "one");
}

TEST_F(ReplicatorTest, who_ends_does_not_wait) {
  Replicator replicator(settings("tcp://127.0.0.1:1"));
  const uint64_t mark = replicator.extend("log", 3);
  std::thread ending([&] { replicator.cancel(); });
  EXPECT_EQ(replicator.wait(mark).code(), Code::kCancelled);
  ending.join();
}

}  // namespace
}  // namespace tandem::standby
