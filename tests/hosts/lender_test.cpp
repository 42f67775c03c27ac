// A host that listens, in a thread of this process, and what it answers to runs and to others.
#include "hosts/lender.h"

#include <capnp/serialize.h>
#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "tests/run/temporary_run.h"
#include "wire/ask.h"

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class LenderTest : public run::TemporaryRun {
 protected:
  explicit LenderTest(bool once = false) : secret_(*wire::Secret::create(root() / "key")) {
    settings_ = std::make_unique<LenderSettings>(
        LenderSettings{.address = "tcp://127.0.0.1:*",
                       .secret = secret_,
                       .version = "1",
                       .cores = 2,
                       .once = once,
                       .numerics_id = [](const std::string& weights) -> Result<std::string> { return "v3-" + weights; },
                       .check_home = [](const fs::path& home) -> Status {
                         if (fs::exists(home / "config")) return {};
                         return Status::unfit("the tasks need podman");
                       }});
    settings_->on_address = [this](const std::string& address) { address_.set_value(address); };
    thread_ = std::thread([this] {
      outcome_ = lend(*settings_, std::move(*Store::open(root() / "store", 1 << 20)), clock_, interrupts_);
    });
    at_ = address_.get_future().get();
  }
  ~LenderTest() override {
    interrupts_ = 2;
    thread_.join();
    EXPECT_TRUE(outcome_) << outcome_.to_string();
  }

  // What the host says to a request of a session of run 7, or of another.
  Result<Answer> ask(const Request& request, uint64_t session = 1, uint64_t run = 7,
                     const wire::Secret* secret = nullptr, double seconds = 20) {
    zmq::context_t context;
    auto socket = TRY(wire::Socket::connect(
        context, at_, {.sender = "asker-" + std::to_string(++askers_), .epoch = session, .run = run},
        secret != nullptr ? secret : &secret_));
    const auto answer = TRY(wire::ask(
        socket, 1, [&](wire::Body::Builder body) { write_request(session, request, body.initHostRequest()); },
        seconds));
    return read_answer(answer.body().getHostAnswer());
  }
  std::string refusal(const Request& request, uint64_t session = 1, uint64_t run = 7) {
    const auto answer = ask(request, session, run);
    if (!answer) return answer.error().to_string();
    const auto* refused = std::get_if<Refused>(&*answer);
    return refused == nullptr ? "" : refused->why.message();
  }

  int askers_ = 0;  // a name that comes again would take the answers of the one before
  wire::Secret secret_;
  std::unique_ptr<LenderSettings> settings_;
  const SystemClock clock_{};
  std::atomic<int> interrupts_{0};
  std::promise<std::string> address_;
  std::string at_;
  Status outcome_;
  std::thread thread_;
};

TEST_F(LenderTest, serves_one_run_and_refuses_another_by_name) {
  const auto opened = ask(Open{.version = "1", .weights = "fp8", .run = "mine"});
  ASSERT_TRUE(opened) << opened.error().to_string();
  const auto& home = std::get<Opened>(*opened);
  EXPECT_EQ(home.numerics_id, "v3-fp8");
  EXPECT_EQ(home.cores, 2u);
  EXPECT_TRUE(fs::exists(home.home));
  EXPECT_EQ(refusal(Open{.version = "1", .weights = "fp8", .run = "theirs"}, 2, 8), "it is lent to run mine already");
  EXPECT_THAT(refusal(Settle{}, 2, 8), HasSubstr("does not know this session"));
  EXPECT_EQ(refusal(Settle{}), "the tasks need podman");
  EXPECT_TRUE(std::holds_alternative<Settled>(*ask(Settle{{{.path = "config", .content = ""}}})));

  // Another life of the same supervisor takes the place of the one before.
  EXPECT_TRUE(std::holds_alternative<Opened>(*ask(Open{.version = "1", .weights = "fp8", .run = "mine"}, 3)));
  EXPECT_FALSE(std::get<HostState>(*ask(Beat{.number = 1, .jobs = {}}, 1)).is_known);
  EXPECT_TRUE(std::holds_alternative<Closed>(*ask(Close{}, 3)));
  EXPECT_FALSE(fs::exists(home.home));
  EXPECT_TRUE(std::holds_alternative<Opened>(*ask(Open{.version = "1", .weights = "fp8", .run = "theirs"}, 2, 8)));
}

class LenderOnceTest : public LenderTest {
 protected:
  LenderOnceTest() : LenderTest(true) {}
};

TEST_F(LenderOnceTest, ends_with_its_first_run) {
  ASSERT_TRUE(ask(Open{.version = "1", .weights = "bf16", .run = "mine"}));
  EXPECT_TRUE(std::holds_alternative<Closed>(*ask(Close{})));
  thread_.join();
  EXPECT_TRUE(outcome_);
  thread_ = std::thread([] {});
}

TEST_F(LenderTest, starts_roles_and_nothing_else) {
  ASSERT_TRUE(ask(Open{.version = "1", .weights = "bf16", .run = "mine"}));
  ASSERT_TRUE(ask(Settle{{{.path = "config", .content = ""}}}));
  const auto state = ask(Beat{1, {{.number = 1, .arguments = {"eval", "x"}, .log = "a.log"}}});
  ASSERT_TRUE(state);
  EXPECT_THAT(std::get<HostState>(*state).processes.at(0).failure, HasSubstr("starts roles of runs"));
}

TEST_F(LenderTest, is_silent_to_another_key) {
  const auto other = wire::Secret::create(root() / "other");
  const auto answer = ask(Open{.version = "1", .weights = "bf16", .run = "r"}, 1, 7, &*other, 1);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST_F(LenderTest, names_both_versions_of_the_protocol_where_they_differ) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  std::array<char, 41> own_public{}, own_secret{};
  ASSERT_EQ(::zmq_curve_keypair(own_public.data(), own_secret.data()), 0);
  socket.set(zmq::sockopt::routing_id, "old");
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::curve_serverkey, secret_.public_key());
  socket.set(zmq::sockopt::curve_publickey, std::string(own_public.data()));
  socket.set(zmq::sockopt::curve_secretkey, std::string(own_secret.data()));
  socket.connect(at_);
  const auto send = [&](capnp::MessageBuilder& builder, zmq::send_flags flags) {
    const auto words = capnp::messageToFlatArray(builder);
    const auto bytes = words.asBytes();
    socket.send(zmq::message_t(bytes.begin(), bytes.size()), flags);
  };
  capnp::MallocMessageBuilder head, body;
  auto header = head.initRoot<wire::Header>();
  header.setProtocol(wire::kProtocolVersion + 1);
  header.setSender("old");
  header.setRun(7);
  write_request(1, Open{.version = "1", .weights = "bf16", .run = "r"}, body.initRoot<wire::Body>().initHostRequest());
  send(head, zmq::send_flags::sndmore);
  send(body, zmq::send_flags::none);
  zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
  ASSERT_EQ(zmq::poll(&item, 1, 20s), 1);
  zmq::message_t frame;
  ASSERT_TRUE(socket.recv(frame));
  ASSERT_TRUE(frame.more());
  ASSERT_TRUE(socket.recv(frame));
  auto words = kj::heapArray<capnp::word>(frame.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), frame.data(), frame.size());
  capnp::FlatArrayMessageReader reader(words);
  const auto answer = read_answer(reader.getRoot<wire::Body>().getHostAnswer());
  ASSERT_TRUE(answer);
  EXPECT_THAT(std::get<Refused>(*answer).why.message(),
              HasSubstr("version " + std::to_string(wire::kProtocolVersion) +
                        " of the protocol, and this machine version " + std::to_string(wire::kProtocolVersion + 1)));
}

}  // namespace
}  // namespace tandem::hosts
