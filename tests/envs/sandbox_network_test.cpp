// Sandboxes that may speak to some hosts: a server of this machine in place of the internet.
#include "envs/episodes/episode.h"
#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/pool.h"
#include "envs/tasks/task_set.h"
#include "envs/tools/process.h"
#include "tests/envs/local_server.h"
#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class SandboxNetwork : public EitherSandbox {
 protected:
  SandboxNetwork() : server_(served()) {}
  void open(const std::vector<std::string>& hosts) {
    auto list = AllowList::parse(hosts);
    ASSERT_TRUE(list.has_value()) << list.error().to_string();
    spec_.network = *list;
    make();
  }
  std::string get(const std::string& url) {
    return python(
        "import urllib.request, urllib.error\n"
        "try: print(urllib.request.urlopen('" +
        url +
        "', timeout=5).read().decode())\n"
        "except urllib.error.HTTPError as error: print(error.code, error.reason)\n"
        "except Exception as error: print('failed:', error)");
  }

 private:
  const std::filesystem::path& served() {
    scratch_.put("a.txt", "the text\n");
    return scratch_.path;
  }
  Scratch scratch_;

 protected:
  const LocalServer server_;
};

FOR_BOTH_KINDS_OF_SANDBOXES(SandboxNetwork);

TEST_P(SandboxNetwork, a_host_of_the_list_is_reached_by_plain_requests_and_by_tunnels) {
  open({server_.host()});
  EXPECT_EQ(get("http://" + server_.host() + "/a.txt"), "the text\n\n");
  EXPECT_EQ(python("import http.client\n"
                   "c = http.client.HTTPConnection('127.0.0.1', 3128, timeout=5)\n"
                   "c.set_tunnel('127.0.0.2', " +
                   server_.port() +
                   ")\n"
                   "c.request('GET', '/a.txt')\n"
                   "print(c.getresponse().read())"),
            "b'the text\\n'\n");
  if (!find_program("curl").empty()) {
    EXPECT_EQ(shell("curl -sS http://" + server_.host() + "/a.txt"), "the text\n");
    EXPECT_EQ(shell("curl -sSp http://" + server_.host() + "/a.txt"), "the text\n");
  }
}

TEST_P(SandboxNetwork, everything_else_is_refused_with_a_line_that_the_model_can_read) {
  open({server_.host(), "localhost:" + server_.port()});
  const std::string hosts = server_.host() + ", localhost:" + server_.port();
  EXPECT_EQ(get("http://example.org/"),
            "403 refused by the sandbox's proxy: example.org:80 is not among the hosts that are open here: " + hosts +
                "\n[network: GET example.org:80 refused: example.org:80 is not among the hosts that are open here: " +
                hosts + "]\n");
  for (const char* address : {"169.254.169.254", "2852039166", "[::ffff:169.254.169.254]", "127.0.0.2", "10.0.0.1"}) {
    EXPECT_THAT(get("http://" + std::string(address) + "/"), StartsWith("403 ")) << address;
  }
  EXPECT_THAT(get("https://169.254.169.254/latest"), HasSubstr("Tunnel connection failed: 403 refused by"));
  // The name is on the list; where it leads to is not.
  EXPECT_THAT(shell("http_proxy= no_proxy= python3 -c \"\n"
                    "import http.client\n"
                    "c = http.client.HTTPConnection('127.0.0.1', 3128, timeout=5)\n"
                    "c.request('GET', 'http://localhost:" +
                    server_.port() +
                    "/a.txt')\n"
                    "print(c.getresponse().read().decode())\""),
              HasSubstr("the address of localhost: "));
  EXPECT_EQ(shell("echo well"), "well\n");
}

class NetworkOfASandbox : public EitherSandbox {
 protected:
  std::string network() { return shell("readlink /proc/self/ns/net"); }
  // No more of sockstat than is counted for each network.
  std::string counts() {
    return shell(
        "cat /proc/self/net/dev /proc/self/net/snmp; "
        "sed -n 's/^TCP: inuse \\([0-9]*\\) .* tw \\([0-9]*\\) .*/TCP: \\1 \\2/p' /proc/self/net/sockstat");
  }
  // A port that is left in TIME_WAIT, so that it cannot be bound without SO_REUSEADDR.
  std::string use() {
    return python(
        "import socket\n"
        "server = socket.socket(); server.bind(('127.0.0.1', 8080)); server.listen()\n"
        "client = socket.create_connection(('127.0.0.1', 8080))\n"
        "taken, _ = server.accept(); taken.close(); print(client.recv(1)); client.close()\n");
  }
};

FOR_BOTH_KINDS_OF_SANDBOXES(NetworkOfASandbox);

TEST_P(NetworkOfASandbox, is_as_new_whatever_the_one_before_has_done) {
  const auto unused = counts();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(use(), "b''\n") << "the port is still taken";
    const auto used = network();
    EXPECT_NE(counts(), unused);
    sandbox_.reset();
    make();
    EXPECT_EQ(counts(), unused);
    EXPECT_NE(network(), used);
  }
}

TEST_P(NetworkOfASandbox, is_of_no_other_that_is_there_at_the_same_time) {
  std::set<std::string> networks;
  std::vector<std::unique_ptr<Sandbox>> others;
  for (int i = 0; i < 8; ++i) {
    networks.insert(network());
    others.push_back(std::move(sandbox_));
    make();
  }
  EXPECT_EQ(networks.size(), 8u);
  EXPECT_FALSE(networks.contains(fs::read_symlink("/proc/self/ns/net").string() + "\n"));
}

TEST_P(NetworkOfASandbox, is_nobodys_to_configure) {
  EXPECT_EQ(python("import fcntl, socket, struct\n"
                   "try: fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0))\n"  // SIOCSIFFLAGS
                   "except OSError as error: print(error.strerror)"),
            "Operation not permitted\n");
}

// Which it would be, if both were in one network: what listens for the first lives as long as whoever holds that.
TEST_P(SandboxNetwork, the_way_out_of_one_that_has_ended_is_nobodys) {
  std::vector<std::unique_ptr<Sandbox>> ended;
  for (int i = 0; i < 6; ++i) {
    open({server_.host()});
    sandbox_->end("this one is over");
    ASSERT_TRUE(within(30s, [&] { return sandbox_->has_ended(); }));
    ended.push_back(std::move(sandbox_));
    spec_.network = {};
    make();
    EXPECT_EQ(python("import socket\n"
                     "try: socket.create_connection(('127.0.0.1', 3128), timeout=5)\n"
                     "except OSError as error: print(error.strerror)"),
              "Connection refused\n");
    sandbox_.reset();
  }
}

TEST_P(SandboxNetwork, there_is_still_no_device_but_loopback_and_no_name_service) {
  open({server_.host()});
  EXPECT_EQ(python("import socket\n"
                   "for address in [('127.0.0.2', " +
                   server_.port() +
                   "), ('10.0.0.1', 80)]:\n"
                   "    try: socket.create_connection(address, 2); print('connected')\n"
                   "    except OSError as error: print(error.errno)\n"
                   "try: socket.getaddrinfo('example.org', 80); print('resolved')\n"
                   "except OSError: print('no name')"),
            "111\n101\nno name\n");
  EXPECT_EQ(shell("ls /etc/resolv.conf 2>&1 | grep -c 'No such'"), "1\n");
  // What listens at the proxy's port is held outside.
  EXPECT_THAT(python("import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 3128))"), HasSubstr("Address already"));
}

TEST_P(SandboxNetwork, the_proxy_is_all_that_the_environment_tells) {
  EXPECT_THAT(shell("env"), Not(HasSubstr("proxy")));
  open({server_.host()});
  EXPECT_EQ(shell("env | grep -i proxy | sort"),
            "HTTPS_PROXY=http://127.0.0.1:3128\nHTTP_PROXY=http://127.0.0.1:3128\nNO_PROXY=localhost,127.0.0.1,::1\n"
            "http_proxy=http://127.0.0.1:3128\nhttps_proxy=http://127.0.0.1:3128\nno_proxy=localhost,127.0.0.1,::1\n");
  const auto looked = exec_in(*sandbox_, {.argv = {"env"}}, {});
  ASSERT_TRUE(looked.has_value());
  EXPECT_THAT(looked->output, HasSubstr("http_proxy=http://127.0.0.1:3128\n"));
}

TEST_P(SandboxNetwork, a_sandbox_that_ends_takes_its_connections_and_its_network_with_it) {
  const size_t before = count_entries("/proc/self/fd");
  for (int i = 0; i < 20; ++i) {
    open({server_.host()});
    call("run_terminal_cmd", {{"command", "exec 3<>/dev/tcp/127.0.0.1/3128; sleep 60"}, {"is_background", true}});
    sandbox_.reset();
  }
  EXPECT_TRUE(within(30s, [&] { return count_entries("/proc/self/fd") <= before + 1; }))  // the proxy's own
      << count_entries("/proc/self/fd") << " after " << before;
  EXPECT_TRUE(within(30s, [&] { return count_entries("/proc/self/task") <= 3; }));
}

TEST_P(SandboxNetwork, each_request_is_an_event_of_its_sandbox) {
  const SystemClock clock;
  WatchedBackend watched(*backend_, clock, 1);
  spec_.network = *AllowList::parse(std::vector{server_.host()});
  sandbox_ = *watched.create(spec_);
  get("http://" + server_.host() + "/a.txt");
  get("http://example.org/");
  std::vector<std::string> lines;
  EXPECT_TRUE(within(30s, [&] {
    lines.clear();
    const auto page = watched.events(0, "", 100);
    for (const auto& event : page->events) {
      if (event.kind == FleetEventKind::kNetwork) lines.push_back(event.what);
    }
    return lines.size() == 2;
  }));
  std::sort(lines.begin(), lines.end());
  EXPECT_THAT(lines[0], StartsWith("GET 127.0.0.2:" + server_.port() + ", "));
  EXPECT_THAT(lines[1], StartsWith("GET example.org:80 refused: example.org:80 is not among"));
  sandbox_.reset();
}

TEST_P(SandboxNetwork, a_pool_gives_open_hosts_to_who_asked_for_them_alone) {
  const SystemClock clock;
  SandboxPool pool(*backend_, clock, {}, {.least = 1, .most = 4});
  ASSERT_TRUE(within(30s, [&] { return pool.counters().ready >= 1; }));
  spec_.network = *AllowList::parse(std::vector{server_.host()});
  for (int i = 0; i < 3; ++i) {
    sandbox_ = *pool.create(spec_);
    EXPECT_EQ(get("http://" + server_.host() + "/a.txt"), "the text\n\n");
    sandbox_ = *pool.create({});
    EXPECT_EQ(shell("env | grep -c proxy"), "0\n[exit code 1]\n");
  }
  sandbox_.reset();
}

TEST_P(SandboxNetwork, a_task_names_hosts_that_its_model_is_told_and_its_tests_do_not_have) {
  Scratch set;
  set.put("t.yaml",
          "instruction: Fetch it.\nnetwork: [a.example, '*.b.example:8080']\ncheck:\n  commands:\n"
          "    - run: env | grep -c proxy\n      exit: 1\n      output: '0'\n");
  const auto task = only_task(set.path);
  ASSERT_TRUE(task.has_value()) << task.error().to_string();
  EpisodeOptions options;
  options.network = *AllowList::parse(std::vector{server_.host()});
  const auto episode = *Episode::open(*task, *backend_, options);
  EXPECT_THAT(episode->opening(ToolListing::kByTemplate).messages.back().content,
              HasSubstr("Programs reach these hosts through the proxy that http_proxy and https_proxy name, and no "
                        "others: a.example, *.b.example:8080, " +
                        server_.host() + "\n\nFetch it."));
  const auto fetch = "python3 -c \"import urllib.request as r; print(r.urlopen('http://" + server_.host() +
                     "/a.txt').read().decode(), end='')\"";
  EXPECT_EQ(episode->call("run_terminal_cmd", {{"command", fetch}})->output, "the text\n");
  EXPECT_EQ(episode->score("")->reward, 1);
}

TEST_P(SandboxNetwork, a_task_cannot_open_what_is_not_of_the_internet) {
  Scratch set;
  set.put("t.yaml", "instruction: Fetch it.\nnetwork: [a.example, 10.0.0.1]\ncheck: {answer: x}\n");
  const auto task = only_task(set.path);
  ASSERT_FALSE(task.has_value());
  EXPECT_THAT(task.error().message(), HasSubstr("t.yaml:2: network: \"10.0.0.1\" is a private address, which a task "
                                                "cannot open; who runs it can, by env.network"));
}

}  // namespace
}  // namespace tandem::envs
