#include "envs/sandbox/caching_backend.h"

#include "base/random.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/repeatable_lints.h"
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
  ASSERT_TRUE(exec_in(*looked, {.argv = {"bash", "-c", "echo looked > a.txt"}}, {}));
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

bool has_linter(const std::string& report) { return report.find("no linter") == std::string::npos; }

TEST_F(Caching, what_linters_of_one_file_said_is_said_again_and_compilers_are_run) {
  files_["sub/b.py"] = "import os\nx = y\n";
  files_["c.c"] = "int main(void) { return x; }\n";
  const Json python = {{"paths", {"sub/b.py"}}}, c = {{"paths", {"c.c"}}};
  const auto first = fresh(), second = fresh();
  const auto said = ask(*first, "read_lints", python);
  if (!has_linter(said)) GTEST_SKIP() << said;
  EXPECT_EQ(ask(*second, "read_lints", python), said);
  EXPECT_EQ(hits(), 1u);
  // Linters leave the files as they are.
  read(*first);
  read(*second);
  EXPECT_EQ(hits(), 2u);
  // A compiler reads the time of day, and the whole machine; what is after it is not known.
  EXPECT_EQ(ask(*first, "read_lints", c), ask(*second, "read_lints", c));
  ask(*second, "read_lints", python);
  read(*second);
  EXPECT_EQ(hits(), 2u);
}

TEST_F(Caching, linters_of_a_project_and_other_homes_are_not_answered_for) {
  const Json python = {{"paths", {"sub/b.py"}}};
  if (!has_linter(ask(*fresh(), "read_lints", python))) GTEST_SKIP() << "no linter of Python";
  const auto with_home = [&] {
    spec_.home = {{".config/ruff/ruff.toml", "line-length = 20\n"}};
    const auto sandbox = fresh();
    spec_.home.clear();
    return ask(*sandbox, "read_lints", python);
  };
  with_home();
  EXPECT_EQ(hits(), 0u);
  const Json linters = {{"file_path", ".tandemlinters.json"},
                        {"contents", R"({"pyflakes": {"files": ["*.py"], "command": ["sh", "-c", "echo x >> log"]}})"}};
  const auto first = fresh(), second = fresh();
  for (auto* sandbox : {first.get(), second.get()}) {
    ask(*sandbox, "write", linters);
    ask(*sandbox, "read_lints", python);
    EXPECT_THAT(read(*sandbox, "log"), HasSubstr("1|x")) << "it was run";
  }
}

TEST(RepeatableLints, are_reports_of_linters_of_one_file_that_came_to_their_end) {
  EXPECT_TRUE(is_repeatable_report("No problems in 1 file (pyflakes).\n"));
  EXPECT_TRUE(
      is_repeatable_report("a.py:1:2: error: undefined name (x) (F821)\n1 problem in 2 files (python3 (syntax only), "
                           "shellcheck).\n"));
  for (const char* other :
       {"", "\n", "No problems in 1 file (g++).\n", "1 problem in 2 files (pyflakes, mypy).\n",
        "No problems in 1 file ().\n",
        "1 file could not be checked: ruff took too long\nNo problems in 1 file (pyflakes).\n",
        "... 12 more\n212 problems in 1 file (pyflakes).\n", "No problems in 1 file (pyflakes). 1 problem was older.\n",
        "a.txt was not checked: no linter is known for files of this type\nNo problems in 1 file (ruff).\n"})
    EXPECT_FALSE(is_repeatable_report(other)) << other;
  EXPECT_FALSE(asks_for_repeatable_lints({{"only_new", true}}));
}

TEST_F(Caching, any_order_of_calls_gives_what_it_gives_without_a_cache) {
  Random random(1);
  const auto draw = [&]() -> std::pair<const char*, Json> {
    const std::string file = random.below(2) == 0 ? "a.txt" : "sub/b.py";
    switch (random.below(11)) {
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
      case 8:
        return {"read_lints", {{"paths", {random.below(4) == 0 ? "." : "sub/b.py"}}}};
      case 9: {
        if (random.below(3) > 0) return {"write", {{"file_path", "sub/b.py"}, {"contents", "import os\nx = y\n"}}};
        const char* linters = R"({"pyflakes": {"files": ["*.py"], "command": ["sh", "-c", "echo x >> sub/log.py"]}})";
        return {"write", {{"file_path", ".tandemlinters.json"}, {"contents", linters}}};
      }
      default: {
        const std::string commands[] = {"echo y >> " + file,           "true",          "mv a.txt sub/a.txt",
                                        "chmod 000 " + file,           "rm -f " + file, "ln -sf a.txt sub/b.py",
                                        "echo 'import re' > sub/b.py", "mkdir -p a.txt"};
        return {"run_terminal_cmd", {{"command", random.pick(commands)}}};
      }
    }
  };
  for (int episode = 0; episode < 30; ++episode) {
    make();
    ASSERT_TRUE(sandbox_->put(files_));
    const auto cached = fresh();
    for (int i = 0; i < 8; ++i) {
      const auto [name, arguments] = draw();
      EXPECT_EQ(ask(*cached, name, arguments), ask(*sandbox_, name, arguments)) << name << dump_json(arguments);
    }
  }
  EXPECT_GT(hits(), 15u);
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
