// codebase_search in sandboxes: answered beside them, from what they say of their files.
#include "envs/search/searching_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/turn.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/host_backend.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const fs::path kEncoder = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/encoders/sentences";

class SearchingBackendTest : public SandboxTest {
 protected:
  void SetUp() override {
    SandboxTest::SetUp();
    auto searcher = CodeSearcher::load(kEncoder, 1);
    ASSERT_TRUE(searcher.has_value()) << searcher.error().to_string();
    searcher_ = std::move(*searcher);
    searching_ = std::make_unique<SearchingBackend>(*backend_, *searcher_);
    make_searching();
  }
  void make_searching() {
    auto sandbox = searching_->create(spec_);
    ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    sandbox_ = std::move(*sandbox);
  }
  ToolOutcome search(const std::string& query, const Json& folders = Json::array()) {
    return call("codebase_search", {{"query", query}, {"explanation", "x"}, {"target_directories", folders}});
  }

  std::unique_ptr<CodeSearcher> searcher_;
  std::unique_ptr<SearchingBackend> searching_;
};

TEST_F(SearchingBackendTest, prints_the_pieces_with_their_lines_as_read_file_does) {
  ASSERT_TRUE(sandbox_->put({{"src/session.py", "import time\n\ndef refresh_session(token):\n    return token\n"},
                             {"src/other.py", "x = 1\n"}}));
  const auto outcome = search("Where is refresh_session?");
  EXPECT_TRUE(outcome.ok);
  EXPECT_THAT(outcome.output, StartsWith("src/session.py:1-4 (score 0.0"));
  EXPECT_THAT(outcome.output, HasSubstr("     3|def refresh_session(token):\n     4|    return token\n"));
  EXPECT_THAT(outcome.output, HasSubstr("\n\nsrc/other.py:1-1 (score "));
}

TEST_F(SearchingBackendTest, sees_what_other_tools_and_commands_have_changed) {
  ASSERT_TRUE(sandbox_->put({{"a.py", "alpha = 1\n"}, {"b.py", "beta = 2\n"}}));
  EXPECT_THAT(search("alpha").output, HasSubstr("     1|alpha = 1"));
  call("search_replace", {{"file_path", "a.py"}, {"old_string", "alpha"}, {"new_string", "gamma"}});
  EXPECT_THAT(search("gamma").output, StartsWith("a.py:1-1"));
  shell("rm a.py; echo 'delta = 3' > c.py");
  const auto output = search("delta").output;
  EXPECT_THAT(output, StartsWith("c.py:1-1"));
  EXPECT_THAT(output, Not(HasSubstr("a.py")));
}

TEST_F(SearchingBackendTest, refusals_say_what_would_be_right) {
  ASSERT_TRUE(sandbox_->put({{"src/a.py", "alpha\n"}, {"lib/b.py", "beta\n"}}));
  EXPECT_EQ(search(" ").output, "Error: the query is empty; ask in words what you are looking for");
  EXPECT_EQ(search("alpha", {"scr"}).output, "Error: there is nothing to search in \"scr\"; did you mean \"src\"?");
  EXPECT_EQ(search("alpha", {"../etc"}).output,
            "Error: \"../etc\" is outside of the workspace; name a folder in it, such as src");
  EXPECT_EQ(search("alpha", {"/etc"}).output,
            "Error: \"/etc\" is outside of the workspace; name a folder in it, such as src");
  EXPECT_THAT(search("alpha", {"/workspace/lib/"}).output, StartsWith("lib/b.py:1-1"));
  EXPECT_THAT(search("alpha", {"."}).output, StartsWith("src/a.py:1-1"));
  EXPECT_THAT(call("codebase_search", {{"qeury", "alpha"}}).output, HasSubstr("did you mean \"query\""));
  EXPECT_THAT(call("codebase_serch", {{"query", "alpha"}}).output, HasSubstr("did you mean \"codebase_search\"?"));
}

TEST_F(SearchingBackendTest, no_link_leads_the_search_out_and_nothing_of_the_host_is_opened) {
  ASSERT_TRUE(sandbox_->put({{"a.py", "alpha\n"}}));
  shell("ln -s /etc etc; ln -s /etc/passwd users.txt; ln -s / root");
  EXPECT_THAT(search("root daemon passwd").output, Not(HasSubstr("etc/")));
  EXPECT_THAT(search("alpha", {"users.txt"}).output, HasSubstr("nothing to search in \"users.txt\""));
}

TEST_F(SearchingBackendTest, runs_beside_other_calls_that_read) {
  ASSERT_TRUE(sandbox_->put({{"a.py", "alpha\n"}}));
  std::vector<ParsedCall> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back({{"codebase_search", {{"query", "alpha"}}}, ""});
    calls.push_back({{"read_file", {{"target_file", "a.py"}}}, ""});
  }
  const auto outcomes = run_turn(*sandbox_, calls);
  ASSERT_TRUE(outcomes.has_value());
  for (size_t i = 0; i < outcomes->size(); i += 2) EXPECT_THAT((*outcomes)[i].output, StartsWith("a.py:1-1"));
}

TEST_F(SearchingBackendTest, what_one_sandbox_has_embedded_others_need_not) {
  const SourceAccess access{[&](auto known) { return (*sources_of(*sandbox_))->source_changes(known); }, nullptr};
  ASSERT_TRUE(sandbox_->put({{"a.py", "alpha\n"}, {"b.py", "beta\n"}}));
  auto first = searcher_->view();
  EXPECT_EQ(*searcher_->update(first, access), 2u);
  make_searching();
  ASSERT_TRUE(sandbox_->put({{"a.py", "alpha\n"}, {"b.py", "other\n"}}));
  auto second = searcher_->view();
  EXPECT_EQ(*searcher_->update(second, access), 2u);  // what others did does not show in what a call may take
  EXPECT_EQ(searcher_->computed(), 3u);
  // And an index that was there before spares what it has.
  searcher_->begin_from(first);
  auto third = searcher_->view();
  EXPECT_EQ(*searcher_->update(third, access), 1u);
  EXPECT_EQ(searcher_->computed(), 3u);
}

TEST_F(SearchingBackendTest, a_list_of_tools_that_does_not_name_it_has_no_codebase_search) {
  spec_.tools = {"read_file", "grep"};
  make_searching();
  EXPECT_EQ(search("alpha").output, "Error: there is no tool \"codebase_search\"; the tools are read_file, grep");
  spec_.tools = {"grep", "codebase_search"};
  sandbox_->set_call_limits(spec_);
  EXPECT_EQ(search("alpha").output, "Nothing was found for \"alpha\".");
}

TEST_F(SearchingBackendTest, without_an_encoder_it_is_in_no_list) {
  for (const auto& tool : tools()) EXPECT_NE(tool.name, kSearchTool);
  EXPECT_EQ(tool_schemas().size() + 1, tool_schemas(WithSearch::kYes).size());
  make();
  EXPECT_THAT(search("alpha").output, StartsWith("Error: there is no tool \"codebase_search\""));
}

TEST_F(SearchingBackendTest, says_the_same_without_a_sandbox) {
  Scratch scratch;
  scratch.put("src/a.py", "alpha = 1\n");
  SandboxSpec spec;
  spec.workspace = scratch.path;
  HostBackend host;
  SearchingBackend searching(host, *searcher_);
  ASSERT_TRUE(sandbox_->put({{"src/a.py", "alpha = 1\n"}}));
  const auto outcome = (*searching.create(spec))->call("codebase_search", {{"query", "alpha"}});
  EXPECT_EQ(outcome->output, search("alpha").output);
}

TEST_F(SearchingBackendTest, long_results_are_shown_by_their_first_lines_within_the_limit) {
  Files files;
  for (int i = 0; i < 9; ++i) {
    std::string text = "def alpha_" + std::to_string(i) + "():\n";
    for (int k = 0; k < 25; ++k) text += "    alpha(" + std::to_string(k) + ", beta)\n";
    files["f" + std::to_string(i) + ".py"] = text;
  }
  ASSERT_TRUE(sandbox_->put(files));
  spec_.tools = {"codebase_search"};
  spec_.output_limit = 2000;
  sandbox_->set_call_limits(spec_);
  const auto outcome = search("alpha");
  EXPECT_FALSE(outcome.truncated);
  EXPECT_LE(outcome.output.size(), 2000u);
  for (int i = 0; i < 9; ++i) EXPECT_THAT(outcome.output, HasSubstr("f" + std::to_string(i) + ".py:1-"));
}

}  // namespace
}  // namespace tandem::envs
