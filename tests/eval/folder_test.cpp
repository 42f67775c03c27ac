#include "eval/folder.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "eval/evaluation.h"
#include "eval/history.h"
#include "tests/eval/night_fixture.h"

namespace tandem::eval {
namespace {

using testing::HasSubstr;

class EvalFolderTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root()); }
  void TearDown() override { fs::remove_all(root()); }
  static fs::path root() { return fs::temp_directory_path() / ("tandem-eval-test-" + std::to_string(::getpid())); }
  static Identity identity() {
    Identity identity{.suite = "suite", .model = "m", .model_digest = "0123456789abcdef", .samples = 2, .tasks = {}};
    identity.settings = {{"turns", 3}};
    for (const char* task : {"a", "b", "c"}) identity.tasks.push_back({task, "kind", "digest"});
    identity.version = "1";
    return identity;
  }
};

TEST_F(EvalFolderTest, samples_are_there_when_it_is_opened_again_and_a_torn_line_is_run_again) {
  {
    auto folder = EvaluationFolder::open(root(), identity(), {});
    ASSERT_TRUE(folder) << folder.error().to_string();
    ASSERT_TRUE(folder->add(sample_of("a", 0, true), {{"said", "hello"}}).ok());
    ASSERT_TRUE(folder->add(sample_of("a", 1, false), {}).ok());
  }
  std::ofstream(root() / "episodes.jsonl", std::ios::app) << R"({"task":"b","sample":0,"outc)";
  auto folder = EvaluationFolder::open(root(), identity(), {});
  ASSERT_TRUE(folder) << folder.error().to_string();
  EXPECT_EQ(folder->samples().size(), 2u);
  EXPECT_EQ(folder->samples().at({"a", 0}).transcript, "transcripts/a/0.json");
  ASSERT_TRUE(folder->add(sample_of("b", 0, true), {}).ok());
  const auto read = read_samples(root() / "episodes.jsonl");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->size(), 3u);
  EXPECT_EQ(parse_json(*read_file(root() / "transcripts/a/0.json"))->at("said"), "hello");
}

TEST_F(EvalFolderTest, another_evaluation_is_refused_with_the_first_difference) {
  ASSERT_TRUE(EvaluationFolder::open(root(), identity(), {}));
  const auto refusal = [&](const auto& change) {
    auto other = identity();
    change(other);
    const auto folder = EvaluationFolder::open(root(), other, {});
    EXPECT_FALSE(folder);
    if (folder) return std::string();
    EXPECT_EQ(folder.error().code(), Code::kInvalid);
    return folder.error().message();
  };
  EXPECT_THAT(refusal([](Identity& i) { i.suite = "other"; }), HasSubstr("suite suite, this is other"));
  EXPECT_THAT(refusal([](Identity& i) { i.model_digest = "ff"; }), HasSubstr("model m (0123456789ab)"));
  EXPECT_THAT(refusal([](Identity& i) { i.tasks[1].digest = "x"; }), HasSubstr("task b is another one"));
  EXPECT_THAT(refusal([](Identity& i) { i.tasks.pop_back(); }), HasSubstr("3 tasks, this suite 2"));
  EXPECT_THAT(refusal([](Identity& i) { i.samples = 3; }), HasSubstr("samples 2, this is 3"));
  EXPECT_THAT(refusal([](Identity& i) { i.settings["turns"] = 4; }), HasSubstr("turns 3, this is 4"));
  EXPECT_THAT(refusal([](Identity& i) { i.shard = {1, 2}; }), HasSubstr("shard 1/1, this is 1/2"));
  auto unknown = identity();
  unknown.model = kUnknownModel;
  unknown.model_digest = "ff";
  EXPECT_EQ(first_difference(unknown, identity()), "") << "of a server that never said its name";
  EXPECT_TRUE(EvaluationFolder::open(root(), identity(), {.gates = {.min_pass_rate = 0.9}, .prices = {}}));
}

TEST_F(EvalFolderTest, a_folder_in_use_and_one_of_something_else_are_refused) {
  const auto first = EvaluationFolder::open(root(), identity(), {});
  ASSERT_TRUE(first);
  const auto second = EvaluationFolder::open(root(), identity(), {});
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message(), HasSubstr("in use"));
  fs::create_directories(root() / "else");
  std::ofstream(root() / "else/file") << "x";
  const auto other = EvaluationFolder::open(root() / "else", identity(), {});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message(), HasSubstr("holds no evaluation"));
}

TEST_F(EvalFolderTest, a_damaged_line_is_named) {
  {
    auto folder = EvaluationFolder::open(root(), identity(), {});
    ASSERT_TRUE(folder->add(sample_of("a", 0, true), {}).ok());
  }
  std::ofstream(root() / "episodes.jsonl", std::ios::app) << "{}\n";
  const auto again = EvaluationFolder::open(root(), identity(), {});
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message(), HasSubstr("episodes.jsonl:2"));
}

TEST_F(EvalFolderTest, a_disk_that_is_full_is_told_with_the_file_and_the_folder_goes_on_once_there_is_room) {
  // A limit on the size of files stands for the disk.
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  {
    auto folder = EvaluationFolder::open(root(), identity(), {});
    ASSERT_TRUE(folder);
    ASSERT_TRUE(folder->add(sample_of("a", 0, true), {}).ok());
    rlimit small = before;
    small.rlim_cur = fs::file_size(root() / "episodes.jsonl") + 100;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status full = folder->add(sample_of("a", 1, true), {});
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(full.ok());
    EXPECT_THAT(full.message(), HasSubstr("episodes.jsonl"));
  }
  std::signal(SIGXFSZ, ignored);
  auto folder = EvaluationFolder::open(root(), identity(), {});
  ASSERT_TRUE(folder) << folder.error().to_string();
  EXPECT_EQ(folder->samples().size(), 1u);
  EXPECT_TRUE(folder->add(sample_of("a", 1, true), {}).ok());
  EXPECT_EQ(read_samples(root() / "episodes.jsonl")->size(), 2u);
}

TEST_F(EvalFolderTest, nights_stand_by_time_and_after_those_they_were_compared_with_though_the_clock_was_set_back) {
  const auto line = [](const std::string& name, double started) {
    auto night = night_with({4});
    night.started = started;
    return history_line(name, night, summarize(night, {}), {}, 0);
  };
  const auto write = [](const std::string& name, const std::vector<HistoryLine>& lines) {
    fs::create_directories(root() / name);
    ASSERT_TRUE(write_file(root() / name / "history.jsonl", history_text(lines)));
  };
  // In the chain a, b, c the clock of b was a day behind; d is of no chain.
  const auto a = line("a", 200'000), b = line("b", 100'000), c = line("c", 300'000);
  write("a", {a});
  write("b", {a, b});
  write("c", {a, b, c});
  write("d", {line("d", 250'000)});
  const auto lines = gather_history(root());
  ASSERT_TRUE(lines) << lines.error().to_string();
  std::string order;
  for (const auto& one : *lines) order += one.night;
  EXPECT_EQ(order, "abdc");
  // Files that contradict each other lose no night.
  write("e", {c, a});
  EXPECT_EQ(gather_history(root())->size(), 4u);
}

TEST_F(EvalFolderTest, what_is_open_is_what_lacks_and_all_without_a_verdict_where_they_are_too_many) {
  std::map<SampleKey, SampleResult> known;
  const auto open = [&](double share) { return open_samples(identity(), {.max_error_share = share}, known); };
  EXPECT_EQ(open(0).size(), 6u);
  EXPECT_EQ(open(0)[0], SampleKey("a", 0));
  EXPECT_EQ(open(0)[1], SampleKey("b", 0)) << "every task once before one comes again";
  for (const char* task : {"a", "b", "c"}) {
    for (int sample = 0; sample < 2; ++sample) known[{task, sample}] = sample_of(task, sample, true);
  }
  EXPECT_TRUE(open(0).empty());
  known[{"b", 1}].outcome = rollout::Outcome::kInfraError;
  EXPECT_TRUE(open(0.5).empty()) << "it is finished";
  EXPECT_EQ(open(0.1), std::vector<SampleKey>({{"b", 1}}));
  known.erase({"c", 0});
  EXPECT_EQ(open(0.5).size(), 2u) << "cut short: what failed is tried again with what lacks";
}

TEST_F(EvalFolderTest, parts_are_every_nth_task) {
  auto whole = identity();
  whole.shard = *Shard::parse("2/2");
  ASSERT_EQ(whole.own_tasks().size(), 1u);
  EXPECT_EQ(whole.own_tasks()[0].task, "b");
  for (const char* wrong : {"", "1", "0/2", "3/2", "a/b", "1/2/3", "-1/2"}) EXPECT_FALSE(Shard::parse(wrong)) << wrong;
}

}  // namespace
}  // namespace tandem::eval
