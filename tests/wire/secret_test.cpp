#include "wire/secret.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "wire/ask.h"

namespace tandem::wire {
namespace {

using testing::HasSubstr;

class SecretTest : public testing::Test {
 protected:
  SecretTest() {
    std::string name = (fs::temp_directory_path() / "tandem-secret-XXXXXX").string();
    if (mkdtemp(name.data())) folder_ = name;
  }
  ~SecretTest() override { fs::remove_all(folder_); }

  // Whether a client with `client` is heard by a server with `server`, and answered.
  static Status talk(const Secret* server, const Secret* client, double seconds) {
    zmq::context_t context;
    auto listening = Socket::listen(context, "tcp://127.0.0.1:*", {"server", 1, kEveryRun}, server);
    if (!listening) return listening.error();
    auto connected = Socket::connect(context, listening->address(), {"client", 1, 7}, client);
    if (!connected) return connected.error();
    const auto serve = [&] {
      while (auto message = listening->receive()) {
        Outgoing welcome(message->id(), message->run());
        welcome.body().initWelcome().setStep(3);
        EXPECT_TRUE(listening->send(message->sender(), welcome));
      }
      return false;
    };
    const auto answer = ask(
        *connected, 1, [](Body::Builder body) { body.initHello(); }, seconds, serve);
    if (!answer) return answer.error();
    EXPECT_EQ(answer->body().getWelcome().getStep(), 3u);
    return {};
  }

  fs::path folder_;
};

TEST_F(SecretTest, is_read_as_it_was_made_and_is_its_owners_alone) {
  const auto path = folder_ / "key";
  const auto made = Secret::create(path);
  ASSERT_TRUE(made) << made.error().to_string();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto read = Secret::read(path);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->secret_key(), made->secret_key());
  EXPECT_EQ(read->public_key(), made->public_key());
  EXPECT_FALSE(Secret::create(path));  // one that is in use is not written over

  ::chmod(path.c_str(), 0640);
  EXPECT_THAT(Secret::read(path).error().to_string(), testing::AllOf(HasSubstr("others may read"), HasSubstr("key")));
}

TEST_F(SecretTest, what_is_none_is_named) {
  for (const std::string text :
       {"", "tandem-key-1 short\n", "another-key-1 0123456789012345678901234567890123456789\n",
        "tandem-key-1 \"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\n"}) {
    const auto path = folder_ / "wrong";
    ASSERT_TRUE(write_file(path, text));
    ::chmod(path.c_str(), 0600);
    const auto read = Secret::read(path);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().to_string(), HasSubstr("wrong"));
  }
  EXPECT_FALSE(Secret::read(folder_ / "missing"));
}

TEST_F(SecretTest, who_has_it_is_answered_and_who_has_not_is_not) {
  const auto ours = Secret::create(folder_ / "ours"), other = Secret::create(folder_ / "other");
  ASSERT_TRUE(ours && other);
  EXPECT_TRUE(talk(&*ours, &*ours, 20));
  EXPECT_TRUE(talk(nullptr, nullptr, 20));
  EXPECT_EQ(talk(&*ours, &*other, 0.5).code(), Code::kUnavailable);
  EXPECT_EQ(talk(&*ours, nullptr, 0.5).code(), Code::kUnavailable);
  EXPECT_EQ(talk(nullptr, &*ours, 0.5).code(), Code::kUnavailable);
}

TEST_F(SecretTest, beyond_this_machine_nothing_is_said_without_one) {
  zmq::context_t context;
  for (const char* address : {"tcp://0.0.0.0:*", "tcp://*:*", "tcp://192.0.2.1:7070"}) {
    const auto listening = Socket::listen(context, address, {"server", 1, 7});
    ASSERT_FALSE(listening) << address;
    EXPECT_THAT(listening.error().to_string(), HasSubstr("needs a key"));
  }
  EXPECT_FALSE(Socket::connect(context, "tcp://192.0.2.1:7070", {"client", 1, 7}));
  EXPECT_TRUE(Socket::listen(context, "tcp://127.0.0.1:*", {"server", 1, 7}));
}

TEST_F(SecretTest, a_socket_of_one_run_hears_no_other) {
  zmq::context_t context;
  auto listening = *Socket::listen(context, "tcp://127.0.0.1:*", {"server", 1, 8});
  auto connected = *Socket::connect(context, listening.address(), {"client", 1, 7});
  const auto look = [&] {
    EXPECT_FALSE(listening.receive());
    return listening.refused() > 0;
  };
  EXPECT_EQ(ask(
                connected, 1, [](Body::Builder body) { body.initHello(); }, 20, look)
                .error()
                .code(),
            Code::kCancelled);
}

}  // namespace
}  // namespace tandem::wire
