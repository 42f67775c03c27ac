// Registries of packages as sandboxes see them: a registry of the test upstream, asked without a sandbox.
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/text.h"
#include "envs/packages/cache.h"
#include "tests/envs/package_registry.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kJsonPage = "application/vnd.pypi.simple.v1+json";

std::string body_of(const PackageAnswer& answer) {
  if (!answer.file) return answer.body;
  std::string text(answer.file_bytes, '\0');
  EXPECT_EQ(pread(answer.file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

class Packages : public testing::Test {
 protected:
  Packages() {
    settings_.pypi = registry_.url("/simple/");
    settings_.npm = registry_.url("/npm/");
  }
  // As a run has it whose directory is `run`; empty: of no run.
  std::shared_ptr<PackageCache> open(const std::string& run = "", const std::string& store = "store") {
    if (!run.empty()) fs::create_directories(scratch_.path / run);
    auto cache = PackageCache::open({.settings = settings_,
                                     .call_seconds = 30,
                                     .record = run.empty() ? fs::path() : scratch_.path / run / kLockName,
                                     .folder = scratch_.path / store});
    EXPECT_TRUE(cache.has_value()) << cache.error().to_string();
    return cache ? *cache : nullptr;
  }
  static PackageAnswer ask(PackageCache& cache, const std::string& path) {
    return cache.answer({.method = "GET", .path = path, .accept = kJsonPage}, {});
  }
  size_t kept() {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(scratch_.path / "store" / "files"), fs::directory_iterator()));
  }

  PackageRegistry registry_;
  Scratch scratch_;
  PackageSettings settings_;
  const std::string wheel_ = PackageRegistry::wheel("hello", "1.0");
  const std::string place_ = "/pypi/files/hello/hello-1.0-py3-none-any.whl",
                    upstream_ = "/files/hello-1.0-py3-none-any.whl";
};

TEST_F(Packages, are_served_from_addresses_of_ours_and_fetched_once_on_a_machine) {
  registry_.put_project("hello", {{"1.0", "2024-01-01T00:00:00Z", wheel_}});
  const auto cache = open("run-a");
  const auto page = ask(*cache, "/pypi/simple/Hello/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.type, kJsonPage);
  const auto json = parse_json(page.body);
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->at("files").at(0).at("url"), Json("../../files/hello/hello-1.0-py3-none-any.whl"));
  EXPECT_THAT(page.body, Not(HasSubstr(registry_.host())));
  EXPECT_EQ(body_of(ask(*cache, place_)), wheel_);
  EXPECT_EQ(body_of(ask(*open("run-b"), place_)), wheel_);
  EXPECT_EQ(registry_.asked(upstream_), 1);
  EXPECT_EQ(registry_.asked("/simple/hello/"), 2) << "once in each run";
  EXPECT_THAT(cache->answer({.method = "GET", .path = "/pypi/simple/hello/", .accept = "text/html"}, {}).body,
              HasSubstr("<a href=\"../../files/hello/hello-1.0-py3-none-any.whl#sha256=" + sha256_of(wheel_) + "\""));
}

TEST_F(Packages, are_fetched_once_for_many_who_ask_at_once) {
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  const std::shared_ptr<PackageCache> servers[] = {open("run"), open("run")};  // two servers of one run
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      if (ask(*servers[i % 2], "/pypi/simple/hello/").status == 200 && body_of(ask(*servers[i % 2], place_)) == wheel_)
        ++right;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 16);
  EXPECT_EQ(registry_.asked("/simple/hello/"), 1);
  EXPECT_EQ(registry_.asked(upstream_), 1);
}

TEST_F(Packages, that_are_not_what_the_index_says_are_never_kept) {
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  registry_.put(upstream_, wheel_ + "!");
  const auto cache = open();
  const auto wrong = ask(*cache, place_);
  EXPECT_EQ(wrong.status, 502);
  EXPECT_THAT(wrong.broken, HasSubstr("it is not what its index says"));
  EXPECT_THAT(wrong.refused, IsEmpty());
  EXPECT_EQ(kept(), 1u) << "the page alone";
  EXPECT_THAT(ask(*cache, place_).broken, HasSubstr("it is not what its index says"));
  EXPECT_EQ(registry_.asked(upstream_), 1) << "who waits is told at once";
  registry_.put(upstream_, wheel_);
  EXPECT_EQ(body_of(ask(*open(), place_)), wheel_);
}

TEST_F(Packages, of_a_registry_that_does_not_answer_are_a_failure_of_the_infrastructure) {
  settings_.seconds = 0.5;
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  registry_.hold(upstream_);
  registry_.fail_with("/simple/busy/", 503);
  registry_.fail_with("/simple/closed/", 403);
  const auto cache = open();
  const SystemClock clock;
  const Time start = clock.now();
  EXPECT_THAT(ask(*cache, place_).broken, Not(IsEmpty()));
  EXPECT_THAT(ask(*cache, "/pypi/simple/busy/").broken, HasSubstr("answered 503"));
  EXPECT_GT(registry_.asked("/simple/busy/"), 0);
  EXPECT_THAT(ask(*cache, "/pypi/simple/closed/").broken, HasSubstr("answered 403"));
  EXPECT_EQ(registry_.asked("/simple/closed/"), 1);
  EXPECT_LT(to_seconds(clock.now() - start), 20);
  // One that is not there is an answer.
  const auto unknown = ask(*cache, "/pypi/simple/unknown/");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.refused, HasSubstr("the index has no project unknown"));
  EXPECT_THAT(unknown.broken, IsEmpty());
  registry_.stop();
  EXPECT_THAT(ask(*cache, "/pypi/simple/other/").broken, Not(IsEmpty()));
}

TEST_F(Packages, that_are_too_large_are_refused) {
  settings_.file_mb = 1;
  registry_.put_project("hello", {{"1.0", "", PackageRegistry::wheel("hello", "1.0", 2 << 20)}});
  const auto answer = ask(*open(), place_);
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.refused, HasSubstr("is larger than 1 MiB"));
  EXPECT_THAT(answer.broken, IsEmpty());
}

TEST_F(Packages, that_are_not_there_leave_nothing_on_the_machine) {
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  const auto cache = open("run");
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(ask(*cache, "/pypi/simple/no-such-project-" + std::to_string(i) + "/").status, 404);
  EXPECT_EQ(body_of(ask(*cache, place_)), wheel_);
  EXPECT_TRUE(fs::is_empty(scratch_.path / "store" / "locks")) << "a sandbox could fill the disk with names";
  EXPECT_TRUE(fs::is_empty(scratch_.path / "store" / "incoming"));
}

TEST_F(Packages, have_a_lock_for_each_key_that_one_holds_at_a_time) {
  const auto store = PackageStore::open(scratch_.path / "store", 1 << 20);
  ASSERT_TRUE(store.has_value());
  std::atomic<int> inside = 0, together = 0, held = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20; ++turn) {
        const auto lock = store->lock("key", std::chrono::seconds(60), {});
        if (!lock) continue;
        together += ++inside > 1;
        ++held;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(held, 6 * 20);
  EXPECT_EQ(together, 0);
}

TEST_F(Packages, that_were_damaged_on_disk_are_fetched_again_by_the_next_run) {
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  EXPECT_EQ(body_of(ask(*open("one"), place_)), wheel_);
  for (const auto& entry : fs::directory_iterator(scratch_.path / "store" / "files")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(20);
    file.put('\x55');
    file.put('\xaa');
  }
  EXPECT_EQ(body_of(ask(*open("two"), place_)), wheel_);
  EXPECT_EQ(registry_.asked(upstream_), 2);
}

TEST_F(Packages, go_by_their_last_use_when_too_many_are_kept) {
  settings_.cache_mb = 1;
  const auto wheel_of = [](const char* version) { return PackageRegistry::wheel("hello", version, 600 << 10); };
  registry_.put_project("hello", {{"1.0", "", wheel_of("1.0")}, {"2.0", "", wheel_of("2.0")}});
  const auto cache = open("run");
  EXPECT_EQ(ask(*cache, place_).status, 200);
  const auto second = ask(*cache, "/pypi/files/hello/hello-2.0-py3-none-any.whl");
  EXPECT_EQ(body_of(second), wheel_of("2.0"));
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(scratch_.path / "store" / "files")) bytes += entry.file_size();
  EXPECT_LE(bytes, uint64_t{1} << 20);
  EXPECT_EQ(body_of(ask(*cache, place_)), wheel_of("1.0")) << "fetched again";
  EXPECT_EQ(registry_.asked(upstream_), 2);
}

TEST_F(Packages, that_came_just_now_do_not_go_though_the_others_look_newer) {
  settings_.cache_mb = 1;
  const auto wheel_of = [](const char* version) { return PackageRegistry::wheel("hello", version, 600 << 10); };
  registry_.put_project("hello", {{"1.0", "", wheel_of("1.0")}, {"2.0", "", wheel_of("2.0")}});
  const auto cache = open("run");
  EXPECT_EQ(ask(*cache, place_).status, 200);
  for (const auto& entry : fs::directory_iterator(scratch_.path / "store" / "files"))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(body_of(ask(*cache, "/pypi/files/hello/hello-2.0-py3-none-any.whl")), wheel_of("2.0"));
  EXPECT_EQ(body_of(ask(*cache, place_)), wheel_of("1.0"));
  EXPECT_EQ(registry_.asked(upstream_), 2);
}

TEST_F(Packages, that_are_larger_than_all_that_may_be_kept_are_told_and_cost_no_other) {
  settings_.cache_mb = 1;
  registry_.put_project("hello", {{"1.0", "", wheel_}, {"2.0", "", PackageRegistry::wheel("hello", "2.0", 2 << 20)}});
  const auto cache = open("run");
  EXPECT_EQ(body_of(ask(*cache, place_)), wheel_);
  const size_t before = kept();
  EXPECT_THAT(ask(*cache, "/pypi/files/hello/hello-2.0-py3-none-any.whl").refused,
              HasSubstr("a file is larger than all that may be kept"));
  EXPECT_EQ(kept(), before);
}

TEST_F(Packages, have_no_other_addresses) {
  registry_.put("/secret", "secret");
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  const auto cache = open();
  for (const char* path : {"/",
                           "//",
                           "/pypi",
                           "/pypi/",
                           "/pypi/simple/",
                           "/pypi/simple/../secret/",
                           "/pypi/simple/%2e%2e/",
                           "/pypi/simple/..%2f..%2fsecret/",
                           "/pypi/simple/he%00llo/",
                           "/pypi/simple/hello%/",
                           "/pypi/simple/-hello/",
                           "/pypi/files/hello/..%2f..%2fsecret",
                           "/pypi/files/hello/.hidden",
                           "/pypi/simple/http://127.0.0.1/",
                           "/npm/..",
                           "/npm/@a",
                           "/npm/@a/b/c",
                           "/npm/-/v1/search",
                           "/debian/dists/bookworm/InRelease",
                           "/secret",
                           "/pypi/simple/hello/?a=b",
                           "/pypi/simple/a\\b/"}) {
    const auto answer = ask(*cache, path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_THAT(answer.broken, IsEmpty()) << path;
  }
  EXPECT_EQ(registry_.asked(), 0);
}

TEST_F(Packages, follow_redirects_to_named_hosts_alone) {
  PackageRegistry other;
  other.put("/stolen.whl", wheel_);
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  registry_.redirect(upstream_, other.url("/stolen.whl"));
  const auto cache = open();
  EXPECT_THAT(ask(*cache, place_).broken, HasSubstr("leads to " + other.host()));
  EXPECT_EQ(other.asked(), 0);
  registry_.put("/moved.whl", wheel_);
  registry_.redirect(upstream_, "/moved.whl");
  EXPECT_EQ(body_of(ask(*open(), place_)), wheel_);
  registry_.redirect("/simple/round/", "/simple/round/");
  EXPECT_THAT(ask(*cache, "/pypi/simple/round/").broken, HasSubstr("answered 302"));
}

TEST_F(Packages, of_hostile_pages_lead_nowhere) {
  PackageRegistry other;
  other.put("/x.whl", wheel_);
  registry_.put_project("hello", {{"1.0", "", wheel_, other.url("/x.whl")}});
  registry_.put("/simple/html/",
                "<!-- <a href='/a-1.whl#sha256=00'> --><a href=\"../../files/hello-1.0-py3-none-any.whl#sha256=" +
                    sha256_of(wheel_) +
                    "\" data-requires-python=\"&gt;=3.6\" data-yanked>hello</a><a href='file:///etc/passwd'>p</a>"
                    "<a href='//" +
                    other.host() + "/x.whl#sha256=" + sha256_of(wheel_) +
                    "'>x</a><a href='/files/%2e%2e'>y</a><a href=\"unclosed",
                "text/html");
  registry_.put("/simple/nonsense/", "nonsense", "text/html");
  registry_.put("/simple/lies/", "{\"files\": 7}", kJsonPage);
  const auto cache = open();
  EXPECT_THAT(ask(*cache, place_).broken, HasSubstr("leads to " + other.host()));
  const auto html = ask(*cache, "/pypi/simple/html/").body;
  EXPECT_THAT(html, HasSubstr("\"requires-python\":\">=3.6\""));
  EXPECT_THAT(html, Not(HasSubstr("passwd")));
  EXPECT_THAT(ask(*cache, "/pypi/files/html/x.whl").broken, HasSubstr("leads to " + other.host()));
  EXPECT_EQ(body_of(ask(*cache, "/pypi/files/html/hello-1.0-py3-none-any.whl")), wheel_);
  for (const char* name : {"nonsense", "lies"})
    EXPECT_THAT(ask(*cache, std::string("/pypi/simple/") + name + "/").broken, HasSubstr("it is no page")) << name;
  EXPECT_EQ(other.asked(), 0);
}

TEST_F(Packages, are_those_of_a_date) {
  registry_.put_project("hello", {{"1.0", "2024-01-01T00:00:00.000000Z", wheel_},
                                  {"2.0", "2025-06-01T00:00:00Z", PackageRegistry::wheel("hello", "2.0")}});
  registry_.put_project("late", {{"1.0", "2025-06-01T00:00:00Z", wheel_}});
  registry_.put_project("timeless", {{"1.0", "", wheel_}});
  settings_.before = "2025-01-01";
  const auto cache = open();
  const auto page = ask(*cache, "/pypi/simple/hello/").body;
  EXPECT_THAT(page, HasSubstr("hello-1.0"));
  EXPECT_THAT(page, Not(HasSubstr("hello-2.0")));
  EXPECT_THAT(ask(*cache, "/pypi/files/hello/hello-2.0-py3-none-any.whl").refused, HasSubstr("from before 2025-01-01"));
  EXPECT_THAT(ask(*cache, "/pypi/simple/late/").refused, HasSubstr("late has no file from before 2025-01-01"));
  EXPECT_THAT(ask(*cache, "/pypi/simple/timeless/").broken, HasSubstr("env.packages.before cannot hold"));
}

TEST_F(Packages, of_a_lock_are_replayed_without_a_network_and_nothing_else_is_there) {
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  registry_.put_project("other", {{"1.0", "", PackageRegistry::wheel("other", "1.0")}});
  const auto before = open("run");
  const auto page = ask(*before, "/pypi/simple/hello/").body;
  EXPECT_EQ(ask(*before, place_).status, 200);
  // Meanwhile there is a newer version; the run that recorded it, the one that goes on, and others see none of it.
  registry_.put_project("hello", {{"2.0", "", PackageRegistry::wheel("hello", "2.0")}});
  EXPECT_EQ(ask(*open("run"), "/pypi/simple/hello/").body, page);
  registry_.put(upstream_, wheel_);
  settings_.lock = (scratch_.path / "run" / kLockName).string();
  const auto elsewhere = open("run-2", "store-2");  // another machine: pages lie beside the lock, files are fetched
  EXPECT_EQ(ask(*elsewhere, "/pypi/simple/hello/").body, page);
  EXPECT_EQ(body_of(ask(*elsewhere, place_)), wheel_);
  EXPECT_EQ(registry_.asked("/simple/hello/"), 1);
  const auto outside = ask(*elsewhere, "/pypi/simple/other/");
  EXPECT_EQ(outside.status, 404);
  EXPECT_THAT(outside.refused, HasSubstr("pypi/simple/other is not in the lock packages.lock"));
  EXPECT_THAT(outside.broken, IsEmpty());
  registry_.stop();
  settings_.offline = true;
  const auto offline = open("run-3");
  EXPECT_EQ(ask(*offline, "/pypi/simple/hello/").body, page);
  EXPECT_EQ(body_of(ask(*offline, place_)), wheel_);
  EXPECT_EQ(read_package_lock(scratch_.path / "run-3" / kLockName),
            read_package_lock(scratch_.path / "run" / kLockName));
  // What is not kept is a failure, and says why.
  EXPECT_THAT(ask(*open("run-4", "store-4"), place_).broken, HasSubstr("nothing is fetched offline"));
}

TEST_F(Packages, have_a_lock_that_is_read_strictly) {
  scratch_.put("packages.lock",
               R"({"format": 1, "entries": {"pypi/simple/../x": {"sha256": "ab", "url": "file:///x"}}})");
  settings_.lock = (scratch_.path / "packages.lock").string();
  const auto cache = PackageCache::open({.settings = settings_, .folder = scratch_.path / "store"});
  ASSERT_FALSE(cache.has_value());
  EXPECT_THAT(cache.error().to_string(),
              testing::AllOf(HasSubstr("packages.lock"), HasSubstr("has no digest or no URL")));
}

// A line an entry, so that an entry costs a line and not the file.
class PackageLockFile : public testing::Test {
 protected:
  fs::path file() const { return scratch_.path / kLockName; }
  PackageLock open(const LockLimits& limits = {}) {
    auto lock = PackageLock::open(file(), limits);
    EXPECT_TRUE(lock.has_value()) << lock.error().to_string();
    return std::move(*lock);
  }
  static LockedFile page(const std::string& content) {
    return {
        .sha256 = sha256_of(content), .url = "https://registry.example/x", .bytes = content.size(), .is_page = true};
  }
  Scratch scratch_;
};

TEST_F(PackageLockFile, grows_by_a_line_and_is_read_again) {
  auto lock = open();
  ASSERT_TRUE(lock.record("pypi/simple/a", page("a"), "a").has_value());
  const auto before = scratch_.get(kLockName);
  ASSERT_TRUE(lock.record("pypi/simple/b", page("b"), "b").has_value());
  const auto after = scratch_.get(kLockName);
  EXPECT_TRUE(after.starts_with(before)) << after;
  EXPECT_EQ(std::ranges::count(after, '\n'), 3);
  const auto read = read_package_lock(file());
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->size(), 2u);
  EXPECT_EQ(read->at("pypi/simple/b"), page("b"));
  EXPECT_EQ(scratch_.get("packages/" + sha256_of("b")), "b");
}

TEST_F(PackageLockFile, of_two_processes_holds_what_was_recorded_first) {
  auto one = open(), other = open();
  ASSERT_TRUE(one.record("pypi/simple/a", page("a"), "a").has_value());
  EXPECT_EQ(other.find("pypi/simple/a"), std::nullopt);
  EXPECT_EQ(other.find_written("pypi/simple/a"), page("a"));
  EXPECT_EQ(*other.record("pypi/simple/b", page("b"), "b"), page("b"));
  EXPECT_EQ(*one.record("pypi/simple/b", page("another"), "another"), page("b"));
  EXPECT_EQ(read_package_lock(file())->size(), 2u);
}

TEST_F(PackageLockFile, that_was_cut_short_anywhere_goes_on) {
  {
    auto lock = open();
    for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(lock.record(name, page(name), name).has_value());
  }
  const auto whole = scratch_.get(kLockName);
  const size_t head = whole.find('\n') + 1;
  for (size_t cut = head; cut <= whole.size(); ++cut) {
    const auto kept = whole.substr(0, cut);
    scratch_.put(kLockName, kept);
    auto lock = open();
    ASSERT_TRUE(lock.record("d", page("d"), "d").has_value()) << cut;
    const auto read = read_package_lock(file());
    ASSERT_TRUE(read.has_value()) << cut << ": " << read.error().to_string();
    EXPECT_EQ(read->size(), static_cast<size_t>(std::ranges::count(kept, '\n')));  // of the head, and of d
    EXPECT_TRUE(read->contains("d"));
  }
}

TEST_F(PackageLockFile, of_format_1_is_read_and_written_anew_with_its_next_entry) {
  const auto old =
      dump_json({{"format", 1},
                 {"entries", Json::object({{"pypi/simple/a", Json::object({{"sha256", sha256_of("a")},
                                                                           {"bytes", 1},
                                                                           {"url", "https://registry.example/x"},
                                                                           {"page", true}})}})}});
  scratch_.put(kLockName, old + "\n");
  auto lock = open();
  EXPECT_EQ(lock.find("pypi/simple/a"), page("a"));
  EXPECT_EQ(scratch_.get(kLockName), old + "\n");
  ASSERT_TRUE(lock.record("pypi/simple/b", page("b"), "b").has_value());
  EXPECT_TRUE(scratch_.get(kLockName).starts_with("{\"format\":2}\n"));
  EXPECT_EQ(read_package_lock(file())->size(), 2u);
  EXPECT_EQ(open().find("pypi/simple/a"), page("a"));
}

TEST_F(PackageLockFile, has_bounds_that_are_named_and_are_no_word_about_a_package) {
  auto lock = open({.entries = 2, .page_bytes = 6});
  ASSERT_TRUE(lock.record("a", page("four"), "four").has_value());
  const auto too_large = lock.record("b", page("three"), "three");
  ASSERT_FALSE(too_large.has_value());
  EXPECT_EQ(too_large.error().code(), Code::kUnavailable);
  EXPECT_THAT(too_large.error().message(), HasSubstr("is the most"));
  ASSERT_TRUE(lock.record("c", page("c"), "c").has_value());
  const auto too_many = lock.record("d", page("d"), "d");
  ASSERT_FALSE(too_many.has_value());
  EXPECT_THAT(too_many.error().message(), HasSubstr("packages.lock has 2 entries, the most of a lock"));
  EXPECT_EQ(read_package_lock(file())->size(), 2u);
}

TEST_F(PackageLockFile, with_a_line_that_is_none_is_refused_by_its_number) {
  scratch_.put(kLockName, "{\"format\":2}\n{\"key\":\"a\",\"sha256\":\"ab\"}\n");
  EXPECT_THAT(read_package_lock(file()).error().to_string(),
              testing::AllOf(HasSubstr("packages.lock"), HasSubstr("line 2: the entry \"a\" has no digest or no URL")));
}

TEST_F(Packages, of_npm_have_their_archives_here) {
  const auto archive = PackageRegistry::archive_of_npm("@us/pad", "1.2.3");
  registry_.put_npm("@us/pad", "1.2.3", archive);
  const auto cache = open("run");
  const auto page = ask(*cache, "/npm/@us%2fpad");
  EXPECT_EQ(page.status, 200) << page.body;
  EXPECT_THAT(page.body, HasSubstr("http://127.0.0.1:3128/npm/@us/pad/-/pad-1.2.3.tgz"));
  EXPECT_EQ(body_of(ask(*cache, "/npm/@us/pad/-/pad-1.2.3.tgz")), archive);
  EXPECT_EQ(body_of(ask(*open("run-2"), "/npm/@us/pad/-/pad-1.2.3.tgz")), archive);
  EXPECT_EQ(registry_.asked("/npm/@us/pad/-/pad-1.2.3.tgz"), 1);
  EXPECT_THAT(ask(*cache, "/npm/@us/pad/-/pad-9.tgz").refused, HasSubstr("is not among the archives"));
  settings_.before = "2023-01-01";
  EXPECT_THAT(ask(*open("run-3"), "/npm/@us%2fpad").refused, HasSubstr("no version from before 2023-01-01"));
}

TEST_F(Packages, of_debian_are_those_of_its_lists) {
  const std::string file = "what a package is",
                    lists =
                        "Package: jq\nFilename: pool/j/jq_1_amd64.deb\nSize: 17\nSHA256: " + sha256_of(file) + "\n\n";
#if defined(__aarch64__)
  const std::string place = "main/binary-arm64/Packages";
#else
  const std::string place = "main/binary-amd64/Packages";
#endif
  registry_.put("/debian/dists/bookworm/Release", "Suite: bookworm\nSHA256:\n " + sha256_of(lists) + " " +
                                                      std::to_string(lists.size()) + " " + place + "\n");
  registry_.put("/debian/dists/bookworm/" + place, lists);
  registry_.put("/debian/pool/j/jq_1_amd64.deb", file);
  registry_.put("/debian/pool/j/other_1_amd64.deb", file);
  settings_ = {.debian = registry_.url("/debian"), .debian_suites = {"bookworm main"}};
  const auto cache = open("run");
  EXPECT_EQ(body_of(ask(*cache, "/debian/dists/bookworm/" + place)), lists);
  EXPECT_EQ(body_of(ask(*cache, "/debian/pool/j/jq_1_amd64.deb")), file);
  EXPECT_THAT(ask(*cache, "/debian/pool/j/other_1_amd64.deb").refused, HasSubstr("is in no list of bookworm main"));
  EXPECT_EQ(ask(*cache, "/debian/dists/sid/Release").status, 404);
  EXPECT_EQ(registry_.asked("/debian/pool/j/other_1_amd64.deb") + registry_.asked("/debian/dists/sid/Release"), 0);
}

TEST_F(Packages, have_credentials_that_stay_with_the_registry) {
  registry_.put_project("hello", {{"1.0", "", wheel_}});
  const char* const before = std::getenv("PIP_INDEX_URL");
  const std::optional<std::string> kept = before ? std::optional<std::string>(before) : std::nullopt;
  setenv("PIP_INDEX_URL", ("http://user:pa%20ss@" + registry_.host() + "/simple").c_str(), 1);
  settings_ = {.pypi = "auto"};
  const auto cache = PackageCache::open(
      {.settings = settings_, .record = scratch_.path / kLockName, .folder = scratch_.path / "store"});
  kept ? setenv("PIP_INDEX_URL", kept->c_str(), 1) : unsetenv("PIP_INDEX_URL");
  if (!cache) {
    ASSERT_EQ(cache.error().code(), Code::kUnfit) << cache.error().to_string();
    GTEST_SKIP() << cache.error().to_string();
  }
  const auto page = ask(**cache, "/pypi/simple/hello/");
  EXPECT_EQ(body_of(ask(**cache, place_)), wheel_);
  EXPECT_EQ(registry_.authorizations(), std::set<std::string>{"Basic dXNlcjpwYSBzcw=="});
  for (const auto& text : {page.body, scratch_.get(kLockName), (*cache)->registries().pypi->url.to_string()}) {
    EXPECT_THAT(text, Not(HasSubstr("pa ss")));
    EXPECT_THAT(text, Not(HasSubstr("user")));
  }
}

TEST(PackageSettings, say_what_is_wrong_with_them) {
  PackageSettings settings{
      .pypi = "https://name:word@registry.example/", .npm = "auot", .debian = "auto", .before = "soon"};
  settings.install = {"pipy six", "npm left-pad"};
  settings.offline = true;
  const auto mistakes = package_mistakes(settings, 10);
  const auto text = join(mistakes, "\n");
  EXPECT_THAT(text, HasSubstr("env.packages.pypi: a URL with a name or password in it"));
  EXPECT_THAT(text, HasSubstr("env.packages.npm: \"auot\" is not a URL"));
  EXPECT_THAT(text, HasSubstr("did you mean \"auto\"?"));
  EXPECT_THAT(text, HasSubstr("env.packages.before is \"soon\", not a date like 2026-01-31"));
  EXPECT_THAT(text, HasSubstr("env.packages.offline needs env.packages.lock"));
  EXPECT_THAT(text, HasSubstr("env.packages.before cannot hold for debian"));
  EXPECT_THAT(text, HasSubstr("\"pipy six\" is not pypi NAME, npm NAME or debian NAME; did you mean \"pypi\"?"));
  EXPECT_THAT(package_mistakes({.install = {"pypi six"}}, 10), Not(IsEmpty()));
  EXPECT_THAT(package_mistakes({.pypi = "auto", .seconds = 10}, 10),
              testing::ElementsAre(HasSubstr("env.packages.seconds is 10")));
  EXPECT_THAT(package_mistakes({.pypi = "auto", .install = {"pypi six==1.16.0"}}, 10), IsEmpty());
  EXPECT_THAT(package_mistakes({}, 10), IsEmpty());
}

}  // namespace
}  // namespace tandem::envs
