#include "envs/sandbox/caching_backend.h"

#include "base/random.h"
#include "envs/sandbox/capabilities.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

class Caching : public SandboxTest {
 protected:
  Caching() : files_{{"a.txt", "one\ntwo\n"}, {"sub/b.py", "x = 1\n"}} {}
  void SetUp() override {
    SandboxTest::SetUp();
    caching_ = std::make_unique<CachingBackend>(*backend_, cache_);
  }
  std::unique_ptr<Sandbox> fresh() {
    auto sandbox = caching_->create(spec_);
    EXPECT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    EXPECT_TRUE((*sandbox)->put(files_));
    return std::move(*sandbox);
  }
  static std::string ask(Sandbox& sandbox, const char* name, const Json& arguments) {
    const auto outcome = sandbox.call(name, arguments);
    return outcome ? std::to_string(outcome->ok) + std::to_string(outcome->truncated) +
                         std::to_string(outcome->changed_files) + outcome->output
                   : outcome.error().message();
  }
  std::string read(Sandbox& sandbox, const char* file = "a.txt") {
    return ask(sandbox, "read_file", {{"target_file", file}});
  }
  uint64_t hits() const { return cache_.counters().hits; }

  ReadCache cache_;
  Files files_;
  std::unique_ptr<CachingBackend> caching_;
};

TEST_F(Caching, what_was_read_of_the_same_content_is_answered_with_the_same_bytes) {
  const auto first = fresh(), second = fresh();
  for (const auto& [name, arguments] :
       std::vector<std::pair<const char*, Json>>{{"read_file", {{"target_file", "a.txt"}}},
                                                 {"grep", {{"pattern", "o"}}},
                                                 {"list_dir", {{"target_directory", "."}}}}) {
    const auto before = hits();
    const auto from_files = ask(*first, name, arguments);
    EXPECT_EQ(hits(), before);
    EXPECT_EQ(ask(*second, name, arguments), from_files);
    EXPECT_EQ(hits(), before + 1);
    EXPECT_EQ(ask(*sandbox_, name, arguments) == from_files, false) << "an empty sandbox reads something else";
  }
  // What is refused is asked again: it may have been for want of memory or time.
  for (int i = 0; i < 2; ++i) EXPECT_THAT(read(*first, "none.txt"), HasSubstr("Error: "));
  EXPECT_EQ(hits(), 3u);
}

TEST_F(Caching, other_content_limits_or_tools_are_other_keys) {
  read(*fresh());
  files_["c.txt"] = "";
  read(*fresh());
  spec_.output_limit = 1000;
  read(*fresh());
  spec_.links = {{"/app", "/workspace"}};
  read(*fresh());
  EXPECT_EQ(hits(), 0u);
  EXPECT_EQ(cache_.counters().lookups, 4u);
}

TEST_F(Caching, the_same_writes_lead_to_the_same_content_and_others_do_not) {
  const Json change = {{"file_path", "a.txt"}, {"old_string", "one"}, {"new_string", "1"}};
  const auto first = fresh(), second = fresh(), third = fresh();
  for (auto* sandbox : {first.get(), second.get()}) ask(*sandbox, "search_replace", change);
  ask(*third, "search_replace", {{"file_path", "a.txt"}, {"old_string", "none"}, {"new_string", "1"}});
  EXPECT_THAT(read(*first), HasSubstr("1|1"));
  EXPECT_THAT(read(*second), HasSubstr("1|1"));
  EXPECT_EQ(hits(), 1u);
  EXPECT_THAT(read(*third), HasSubstr("1|one"));
  EXPECT_EQ(hits(), 1u);
}

TEST_F(Caching, whatever_else_happens_ends_it) {
  read(*fresh());
  const auto command = fresh();
  ask(*command, "run_terminal_cmd", {{"command", "echo other > a.txt"}});
  EXPECT_THAT(read(*command), HasSubstr("1|other"));
  const auto looked = fresh();
  ASSERT_TRUE(look_into(*looked, {.argv = {"bash", "-c", "echo looked > a.txt"}}, {}));
  EXPECT_THAT(read(*looked), HasSubstr("1|looked"));
  const auto restored = fresh();
  ASSERT_TRUE(restore(*restored, *snapshot_of(*command)));
  EXPECT_THAT(read(*restored), HasSubstr("1|other"));
  const auto running = fresh();
  ask(*running, "run_terminal_cmd", {{"command", "true"}, {"is_background", true}});
  read(*running);
  EXPECT_EQ(hits(), 0u);
  const auto ended = fresh();
  ended->end("somebody ended it");
  EXPECT_EQ(ended->call("read_file", {{"target_file", "a.txt"}}).has_value(), false);
}

TEST_F(Caching, any_order_of_calls_gives_what_it_gives_without_a_cache) {
  Random random(1);
  const auto draw = [&]() -> std::pair<const char*, Json> {
    const std::string file = random.below(2) == 0 ? "a.txt" : "sub/b.py";
    switch (random.below(9)) {
      case 0:
      case 1:
        return {"read_file", {{"target_file", file}}};
      case 2:
        return {"grep", {{"pattern", random.below(2) == 0 ? "x|one" : "[0-9]"}}};
      case 3:
        return {"list_dir", {{"target_directory", random.below(2) == 0 ? "." : "sub"}}};
      case 4:
        return {"write", {{"file_path", file}, {"contents", std::to_string(random.below(2)) + "\n"}}};
      case 5:
        return {"search_replace", {{"file_path", file}, {"old_string", "one"}, {"new_string", "1"}}};
      case 6:
        return {"delete_file", {{"target_file", file}}};
      case 7:
        return {"glob_file_search", {{"glob_pattern", "*.py"}}};
      default:
        return {"run_terminal_cmd", {{"command", random.below(2) == 0 ? "echo y >> " + file : "true"}}};
    }
  };
  for (int episode = 0; episode < 40; ++episode) {
    make();
    ASSERT_TRUE(sandbox_->put(files_));
    const auto cached = fresh();
    for (int i = 0; i < 8; ++i) {
      const auto [name, arguments] = draw();
      EXPECT_EQ(ask(*cached, name, arguments), ask(*sandbox_, name, arguments)) << name << dump_json(arguments);
    }
  }
  EXPECT_GT(hits(), 20u);
}

TEST(ReadCache, memory_is_bounded_and_the_least_used_goes_first) {
  ReadCache cache(16 * 4096);
  const auto key = [](int i) { return content_digest({std::to_string(i)}); };
  for (int i = 0; i < 100; ++i) {
    cache.keep(key(i), ToolOutcome::done(std::string(3000, 'x')));
    EXPECT_TRUE(cache.find(key(0)).has_value());  // used again and again
    EXPECT_LE(cache.counters().bytes, 16u * 4096);
  }
  EXPECT_TRUE(cache.find(key(99)).has_value());
  EXPECT_FALSE(cache.find(key(50)).has_value());
  cache.keep(key(1000), ToolOutcome::done(std::string(5000, 'x')));
  EXPECT_FALSE(cache.find(key(1000)).has_value());
  EXPECT_NE(content_digest({"a", "bc"}), content_digest({"ab", "c"}));
}

}  // namespace
}  // namespace tandem::envs
