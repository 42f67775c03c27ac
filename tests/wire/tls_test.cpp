#include "wire/tls.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <thread>

#include "tests/envs/scratch.h"
#include "tests/wire/certificate.h"
#include "tests/within.h"
#include "wire/http_client.h"
#include "wire/http_server.h"

namespace tandem::wire {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Echoes bodies over TLS; a stream goes on until its client has gone.
class TlsServed : public testing::Test {
 protected:
  explicit TlsServed(Duration transfer = 2s) {
    write_certificate(certificate_, key_, "first");
    tls_ = *Tls::open(certificate_, key_);
    server_.emplace(*HttpServer::listen(
        "127.0.0.1", 0, {.body_bytes = size_t{8} << 20, .connections = 4, .transfer = transfer, .keep_alive = 60s},
        tls_));
    handler_.answer = [this](const HttpRequest& request, const HttpReply& reply) {
      if (request.path == "/large") return reply({.body = std::string(size_t{64} << 20, 'x')});
      if (request.path != "/stream") return reply({200, {{"X-Peer", request.peer}}, request.body});
      stream_ = std::make_shared<HttpStream>();
      stream_->write("begun");
      reply({.stream = stream_});
    };
    handler_.gone = [this](uint64_t) { ++gone_; };
    handler_.tick = [this] {
      if (refreshes_.exchange(false)) refreshed_ = tls_->refresh(true).has_value() ? 1 : 2;
      ++turns_;
      turns_.notify_all();
      if (!holds_) return;
      holding_ = true;
      holding_.notify_all();
      holds_.wait(true);
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_->serve(handler_, stop_)); });
    if (const char* before = ::getenv("SSL_CERT_FILE")) before_ = before;
    trust();
  }
  ~TlsServed() override {
    stop_ = true;
    thread_.join();
    stream_.reset();
    before_.empty() ? ::unsetenv("SSL_CERT_FILE") : ::setenv("SSL_CERT_FILE", before_.c_str(), 1);
  }
  // The client takes the certificate that stands in the file now.
  void trust() {
    std::filesystem::copy_file(certificate_, trusted_, std::filesystem::copy_options::overwrite_existing);
    ::setenv("SSL_CERT_FILE", trusted_.c_str(), 1);
  }
  Result<HttpHead> ask(const std::string& path, std::string body, std::string* answer, std::stop_token stop = {}) {
    const OutgoingRequest request{.url = "https://127.0.0.1:" + std::to_string(server_->port()) + path,
                                  .method = "POST",
                                  .body = std::move(body),
                                  .limit = 120s,
                                  .largest_answer = size_t{16} << 20};
    return http_request(
        request,
        [&](const HttpHead&, std::string_view bytes) -> Status {
          answer->append(bytes);
          if (path == "/stream") saw_ = true;
          return {};
        },
        stop);
  }
  // 1: the files were read again, 2: they were not.
  int refresh() {
    refreshed_ = 0;
    refreshes_ = true;
    EXPECT_TRUE(within(60s, [&] { return refreshed_ != 0; }));
    return refreshed_;
  }
  // The server has seen whatever had been sent to it.
  void wait_for_turn() {
    const int turn = turns_;
    for (int now = turn; now < turn + 2; now = turns_) turns_.wait(now);
  }
  // The server does nothing until it is let go on.
  void hold() {
    holding_ = false;
    holds_ = true;
    holding_.wait(false);
  }
  void go_on() {
    holds_ = false;
    holds_.notify_all();
  }
  FileDescriptor raw() const {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(server_->port());
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    const timeval patience = {60, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return socket;
  }

  envs::Scratch folder_;
  const std::filesystem::path certificate_ = folder_.path / "certificate.pem", key_ = folder_.path / "key.pem",
                              trusted_ = folder_.path / "trusted.pem";
  std::shared_ptr<Tls> tls_;
  std::optional<HttpServer> server_;
  HttpHandler handler_;
  std::shared_ptr<HttpStream> stream_;
  std::atomic<int> gone_{0}, refreshed_{0};
  std::atomic<bool> stop_{false}, refreshes_{false}, saw_{false}, holds_{false}, holding_{false};
  std::atomic<int> turns_{0};
  std::thread thread_;
  std::string before_;
};

TEST_F(TlsServed, bodies_of_any_size_come_whole_both_ways) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16384}, size_t{16385}, size_t{5} << 20}) {
    std::string body(size, 'x'), answer;
    for (size_t i = 0; i < size; ++i) body[i] = static_cast<char>('a' + i % 23);
    const auto head = ask("/", body, &answer);
    ASSERT_TRUE(head) << head.error().to_string();
    EXPECT_EQ(head->status, 200);
    EXPECT_TRUE(answer == body) << size;
  }
}

TEST_F(TlsServed, a_client_that_goes_away_is_noticed_and_frees_its_place) {
  for (int i = 1; i <= 6; ++i) {  // more than there are places
    saw_ = false;
    std::stop_source stop;
    std::string answer;
    std::thread client([&] { EXPECT_FALSE(ask("/stream", "", &answer, stop.get_token())); });
    EXPECT_TRUE(within(60s, [&] { return saw_.load(); }));
    stop.request_stop();
    client.join();
    EXPECT_TRUE(within(60s, [&] { return gone_ == i; })) << i;
  }
}

TEST_F(TlsServed, what_is_no_tls_and_what_says_nothing_is_let_go) {
  const auto plain = raw();
  const std::string words = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_EQ(send(plain.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
  const auto silent = raw();
  char byte[64];
  ssize_t got = 1;
  while ((got = recv(plain.get(), byte, sizeof byte, 0)) > 0) {
  }
  EXPECT_TRUE(got == 0 || errno == ECONNRESET) << errno;
  EXPECT_EQ(recv(silent.get(), byte, sizeof byte, 0), 0) << "its hand was not given in time";
  std::string answer;
  EXPECT_TRUE(ask("/", "still there", &answer));
  EXPECT_EQ(answer, "still there");
}

class TlsPatient : public TlsServed {
 protected:
  TlsPatient() : TlsServed(600s) {}
};

TEST_F(TlsPatient, the_oldest_connection_that_has_not_begun_to_shake_hands_makes_room_for_another) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(raw());
  std::string answer;
  EXPECT_TRUE(ask("/", "there", &answer));
  EXPECT_EQ(answer, "there");
  char byte;
  EXPECT_EQ(recv(silent[0].get(), &byte, 1, 0), 0) << "it is closed";
  EXPECT_EQ(recv(silent[3].get(), &byte, 1, MSG_DONTWAIT), -1) << "the last is not";
}

// A connection after its handshake.
struct Shaken {
  explicit Shaken(FileDescriptor descriptor) : socket(std::move(descriptor)) {
    SSL_set_fd(client.get(), socket.get());
    EXPECT_EQ(SSL_connect(client.get()), 1);
  }
  void ask() {
    EXPECT_EQ(SSL_write(client.get(), kRequest.data(), static_cast<int>(kRequest.size())),
              static_cast<int>(kRequest.size()));
  }
  // The same as the bytes that go over the line.
  std::string record() {
    BIO* const line = BIO_new(BIO_s_mem());
    SSL_set0_wbio(client.get(), line);
    ask();
    char* bytes = nullptr;
    const auto size = BIO_get_mem_data(line, &bytes);
    return {bytes, static_cast<size_t>(size)};
  }
  std::string answer() {
    char bytes[256];
    const int got = SSL_read(client.get(), bytes, sizeof bytes);
    return {bytes, static_cast<size_t>(std::max(got, 0))};
  }

  static constexpr std::string_view kRequest = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
  FileDescriptor socket;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()), &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> client{SSL_new(context.get()), &SSL_free};
};

TEST_F(TlsPatient, a_connection_whose_request_has_come_makes_no_room_for_another) {
  for (const bool is_idle : {false, true}) {
    std::vector<std::unique_ptr<Shaken>> clients;
    for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<Shaken>(raw()));
    for (auto& client : clients) {
      if (!is_idle) continue;
      client->ask();
      EXPECT_THAT(client->answer(), HasSubstr("200 OK"));
    }
    wait_for_turn();
    hold();
    // The server finds it first, and then the requests.
    const auto another = raw();
    for (auto& client : clients) client->ask();
    go_on();
    for (auto& client : clients) EXPECT_THAT(client->answer(), HasSubstr("200 OK")) << is_idle;
    std::string answer;
    EXPECT_TRUE(ask("/", "there", &answer)) << "in the place of one that was answered";
  }
}

TEST_F(TlsPatient, a_connection_of_which_a_part_of_a_record_has_come_makes_no_room_for_another) {
  for (const size_t size : {size_t{1}, size_t{5}, size_t{9}}) {  // of its header, all of that, and more
    Shaken first(raw());
    wait_for_turn();  // it is the oldest
    const std::string record = first.record();
    EXPECT_EQ(send(first.socket.get(), record.data(), size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    std::vector<FileDescriptor> silent;
    for (int i = 0; i < 3; ++i) silent.push_back(raw());
    wait_for_turn();
    std::string answer;
    EXPECT_TRUE(ask("/", "there", &answer));
    char byte;
    EXPECT_EQ(recv(silent[0].get(), &byte, 1, 0), 0) << "it made room";
    EXPECT_EQ(send(first.socket.get(), record.data() + size, record.size() - size, MSG_NOSIGNAL),
              static_cast<ssize_t>(record.size() - size));
    EXPECT_THAT(first.answer(), HasSubstr("200 OK")) << size;
  }
}

TEST_F(TlsServed, a_client_that_takes_nothing_is_let_go) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const auto before = descriptors();
  const auto socket = raw();
  const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(context.get()), &SSL_free);
  ASSERT_EQ(SSL_set_fd(client.get(), socket.get()), 1);
  ASSERT_EQ(SSL_connect(client.get()), 1);
  const std::string request = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_EQ(SSL_write(client.get(), request.data(), static_cast<int>(request.size())),
            static_cast<int>(request.size()));
  char byte;
  ASSERT_EQ(SSL_read(client.get(), &byte, 1), 1) << "the answer has begun";
  EXPECT_TRUE(within(60s, [&] { return descriptors() == before + 1; })) << descriptors() - before;
  std::string answer;
  EXPECT_TRUE(ask("/", "still there", &answer));
}

TEST_F(TlsServed, another_certificate_holds_for_connections_from_then_on) {
  write_certificate(certificate_, key_, "second");
  std::string answer;
  EXPECT_TRUE(ask("/", "with the first", &answer)) << "before it is read";
  EXPECT_EQ(refresh(), 1);
  EXPECT_FALSE(ask("/", "who trusts the first alone", &answer));
  trust();
  EXPECT_TRUE(ask("/", "with the second", &answer));
  std::ofstream(certificate_) << "broken";
  EXPECT_EQ(refresh(), 2);
  EXPECT_TRUE(ask("/", "the second holds", &answer));
}

TEST(TlsFiles, that_do_not_fit_are_named) {
  envs::Scratch folder;
  const auto one = folder.path / "1.pem", key = folder.path / "1.key", other_key = folder.path / "2.key";
  write_certificate(folder.path / "2.pem", other_key, "two");
  write_certificate(one, key, "one");
  EXPECT_TRUE(Tls::open(one, key));
  EXPECT_THAT(Tls::open(one, other_key).error().to_string(), HasSubstr("2.key"));
  EXPECT_THAT(Tls::open(key, key).error().to_string(), HasSubstr("no chain of certificates"));
  EXPECT_THAT(Tls::open(folder.path / "none.pem", key).error().to_string(), HasSubstr("none.pem"));
}

TEST(TlsFiles, a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it) {
  envs::Scratch folder;
  const auto certificate = folder.path / "1.pem", key = folder.path / "1.key", locked = folder.path / "locked.key";
  write_certificate(certificate, key, "one");
  const std::unique_ptr<FILE, int (*)(FILE*)> in(std::fopen(key.c_str(), "r"), &std::fclose);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pair(
      PEM_read_PrivateKey(in.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  std::unique_ptr<FILE, int (*)(FILE*)> out(std::fopen(locked.c_str(), "w"), &std::fclose);
  const unsigned char phrase[] = "secret";
  ASSERT_EQ(PEM_write_PrivateKey(out.get(), pair.get(), EVP_aes_128_cbc(), phrase, 6, nullptr, nullptr), 1);
  out.reset();
  EXPECT_THAT(Tls::open(certificate, locked).error().to_string(), HasSubstr("locked.key: has a passphrase"));
}

}  // namespace
}  // namespace tandem::wire
