// `tandem index`, and codebase_search as `tandem tools call` and `tandem mcp` serve it: the real binary, on a small
// random encoder (make_encoders.py).
#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

const std::string kIndexEncoder = (fs::path(TANDEM_SOURCE_DIR) / "tests/golden/encoders/sentences").string();

class Index : public RunTest {
 protected:
  void SetUp() override {
    fs::remove_all(root() / "project");
    fs::remove_all(root() / "cache");
    ::setenv("XDG_CACHE_HOME", (root() / "cache").c_str(), 1);
    put("src/session.py", "def refresh_session(token):\n    return token\n");
    put("src/other.py", "def other():\n    return 1\n");
    put(".env", "KEY=topsecretvalue\n");
    fs::permissions(project(), fs::perms(0777));
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }
  static fs::path project() { return root() / "project"; }
  static void put(const std::string& name, const std::string& content) {
    fs::create_directories((project() / name).parent_path());
    std::ofstream(project() / name) << content;
  }
  static int index(Arguments options) {
    Arguments arguments = {"index", project().string(), "--model", kIndexEncoder};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return tandem(arguments);
  }
  static Json answer(Arguments options = {}) {
    options.emplace_back("--json");
    EXPECT_EQ(index(options), 0) << text(output());
    const auto all = text(output());
    return parse_json(trim(all)).value_or(Json());
  }
};

TEST_F(Index, embeds_what_is_new_and_nothing_the_second_time) {
  const auto first = answer();
  EXPECT_EQ(first["files"], 2);
  EXPECT_EQ(first["embedded"], first["chunks"]);
  EXPECT_EQ(first["left_out"]["secret"], 1);
  EXPECT_EQ(first["new"], 2);
  EXPECT_TRUE(first["index"].get<std::string>().starts_with((root() / "cache/tandem/index/project-").string()));
  const auto second = answer();
  EXPECT_EQ(second["embedded"], 0);
  EXPECT_EQ(second["tree"], first["tree"]);
  put("src/other.py", "def other():\n    return 2\n");
  const auto third = answer();
  EXPECT_EQ(third["embedded"], 1);
  EXPECT_EQ(third["changed"], 1);
  EXPECT_NE(third["tree"], first["tree"]);
  const auto found = answer({"--query", "refresh the session", "--in", "src"})["search"]["results"];
  EXPECT_EQ(found[0]["path"], "src/session.py");
  EXPECT_EQ(found[0]["text"], "def refresh_session(token):\n    return token\n");
}

TEST_F(Index, says_for_people_what_was_embedded_kept_and_left_out) {
  ASSERT_EQ(index({}), 0);
  const auto said = text(output());
  EXPECT_NE(said.find("2 files, 2 pieces"), std::string::npos) << said;
  EXPECT_NE(said.find("1 secret (.env)"), std::string::npos) << said;
  ASSERT_EQ(index({"--query", "session"}), 0);
  EXPECT_NE(text(output()).find("src/session.py:1-2 (score "), std::string::npos);
}

TEST_F(Index, of_another_model_is_refused_until_it_is_rebuilt) {
  const auto out = (root() / "an.index").string();
  fs::remove(out);
  ASSERT_EQ(index({"--out", out}), 0);
  const auto other = (fs::path(TANDEM_SOURCE_DIR) / "tests/golden/encoders/masked-lm").string();
  Arguments with_other = {"index", project().string(), "--model", other, "--out", out};
  EXPECT_EQ(tandem(with_other), 2);
  EXPECT_NE(text(output()).find("an.index: is an index of another model"), std::string::npos) << text(output());
  with_other.emplace_back("--rebuild");
  EXPECT_EQ(tandem(with_other), 0) << text(output());
  std::ofstream(out) << "no index at all";
  EXPECT_EQ(index({"--out", out}), 2);
  EXPECT_EQ(tandem({"index", "/nowhere", "--model", kIndexEncoder}), 2);
  EXPECT_NE(tandem({"index", project().string(), "--model", "/nowhere"}), 0);
}

TEST_F(Index, shared_vectors_spare_another_machine_the_work_and_hold_no_text) {
  const auto shared = (root() / "shared").string(), key = (root() / "key").string();
  fs::remove(key);
  ASSERT_EQ(index({"--share", shared, "--key", key}), 0) << text(output());
  const auto bytes = text(shared);
  ASSERT_FALSE(bytes.empty());
  for (const char* word : {"session", "src", "other", ".py", "return", "topsecret"})
    EXPECT_EQ(bytes.find(word), std::string::npos) << word;
  const auto elsewhere =
      answer({"--out", (root() / "elsewhere").string(), "--rebuild", "--reuse", shared, "--key", key});
  EXPECT_EQ(elsewhere["embedded"], 0);
  EXPECT_EQ(elsewhere["shared"], elsewhere["chunks"]);
}

TEST_F(Index, tools_call_serves_the_search_with_an_encoder_alone) {
  const Arguments call = {
      "tools", "call", "codebase_search", R"({"query": "refresh session"})", "--workspace", project().string(),
      "--raw"};
  EXPECT_EQ(tandem(call), 1);
  EXPECT_NE(text(output()).find("there is no tool \"codebase_search\""), std::string::npos);
  auto with = call;
  with.insert(with.end(), {"--encoder", kIndexEncoder});
  EXPECT_EQ(tandem(with), 0);
  EXPECT_NE(text(output()).find("has no index yet; `tandem index "), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find("src/session.py:1-2 (score "), std::string::npos) << text(output());
  EXPECT_EQ(text(output()).find("topsecret"), std::string::npos);
  ASSERT_EQ(index({}), 0);
  EXPECT_EQ(tandem(with), 0);
  EXPECT_TRUE(text(output()).starts_with("src/session.py:1-2 (score ")) << text(output());

  EXPECT_EQ(tandem({"tools", "list"}), 0);
  EXPECT_EQ(text(output()).find("codebase_search"), std::string::npos);
  EXPECT_EQ(tandem({"tools", "list", "codebase_search", "--encoder", kIndexEncoder}), 0);
  EXPECT_TRUE(text(output()).starts_with("codebase_search{query, explanation?, target_directories?}"));
}

}  // namespace
}  // namespace tandem
