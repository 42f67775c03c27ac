// Searches in sandboxes that begin from a prepared snapshot, and the vectors that spare the encoder.
#include "envs/search/snapshot_indexes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "envs/episodes/episode.h"
#include "envs/sandbox/capabilities.h"
#include "envs/search/searching_backend.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const fs::path kSentences = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/encoders/sentences";

class SnapshotIndexesTest : public SandboxTest {
 protected:
  static constexpr int kFiles = 120;
  void SetUp() override {
    spec_.sealable = true;
    SandboxTest::SetUp();
    if (!sandbox_) return;
    if (const auto sealed = seal(*sandbox_); !sealed) GTEST_SKIP() << sealed.error().to_string();
    auto searcher = CodeSearcher::load(kSentences, 1);
    ASSERT_TRUE(searcher.has_value()) << searcher.error().to_string();
    searcher_ = std::move(*searcher);
    snapshots_ = std::make_unique<SnapshotIndexes>(*searcher_, std::chrono::seconds(120));
    searching_ = std::make_unique<SearchingBackend>(*backend_, *searcher_, *snapshots_);
    task_.name = "a task";
    for (int i = 0; i < kFiles; ++i)
      task_.files["src/f" + std::to_string(i) + ".py"] = "def work_" + std::to_string(i) + "():\n    return 1\n";
    task_.setup = {"echo 'def made_by_setup(): pass' > src/setup.py"};
    options_.prepared = &prepared_;
    options_.tools = prompted_tools(WithSearch::kYes);
  }
  std::unique_ptr<Episode> open() {
    auto episode = Episode::open(task_, *searching_, options_);
    EXPECT_TRUE(episode.has_value()) << episode.error().to_string();
    return episode ? std::move(*episode) : nullptr;
  }
  static std::string search(Episode& episode, const std::string& query) {
    const auto outcome = episode.call("codebase_search", {{"query", query}});
    return outcome ? outcome->output : outcome.error().to_string();
  }
  static void shell(Episode& episode, const std::string& command) {
    const auto outcome = episode.call("run_terminal_cmd", {{"command", command}});
    ASSERT_TRUE(outcome && outcome->exit_code == 0);
  }

  std::unique_ptr<CodeSearcher> searcher_;
  std::unique_ptr<SnapshotIndexes> snapshots_;
  std::unique_ptr<SearchingBackend> searching_;
  PreparedSnapshots prepared_{64 << 20};
  Task task_;
  EpisodeOptions options_;
};

TEST_F(SnapshotIndexesTest, one_index_serves_all_episodes_of_a_snapshot) {
  const auto first = open(), second = open();
  const auto answer = search(*first, "work_17");
  EXPECT_THAT(answer, HasSubstr("src/f17.py:1-2"));
  EXPECT_THAT(search(*first, "made_by_setup"), StartsWith("src/setup.py:1-1"));
  EXPECT_EQ(searcher_->computed(), kFiles + 1u);
  EXPECT_EQ(search(*second, "work_17"), answer);
  EXPECT_EQ(search(*open(), "work_17"), answer);
  EXPECT_EQ(searcher_->computed(), kFiles + 1u);
  EXPECT_EQ(snapshots_->kept(), 1u);
}

TEST_F(SnapshotIndexesTest, an_episode_sees_its_own_changes_and_no_other_one_does) {
  const auto first = open(), second = open();
  shell(*first, "echo 'def altogether_new(): pass' > src/f3.py; rm src/f4.py; echo 'x = 5' > added.py");
  EXPECT_THAT(search(*first, "altogether_new"), StartsWith("src/f3.py:1-1"));
  EXPECT_THAT(search(*first, "x 5"), HasSubstr("added.py"));
  EXPECT_THAT(search(*first, "work_4"), Not(HasSubstr("src/f4.py")));
  EXPECT_THAT(search(*second, "altogether_new"), Not(HasSubstr("altogether")));
  EXPECT_THAT(search(*second, "work_3"), HasSubstr("src/f3.py:1-2"));
  EXPECT_THAT(search(*second, "work_4"), HasSubstr("src/f4.py:1-2"));
  EXPECT_EQ(searcher_->computed(), kFiles + 3u);
}

// Else every sandbox would read all files again, and keep a list of them of its own.
TEST_F(SnapshotIndexesTest, files_of_a_snapshot_have_the_same_stamp_in_every_sandbox) {
  SandboxSpec spec;
  spec.sealable = true;
  auto made = backend_->create(spec);
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE((*made)->put(task_.files));
  const auto snapshot = seal(**made);
  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().to_string();
  spec.begins_on = snapshot->layers;
  const auto index = snapshots_->of(*backend_, spec);
  ASSERT_TRUE(index.has_value()) << index.error().to_string();
  for (int i = 0; i < 2; ++i) {
    const auto sandbox = backend_->create(spec);
    ASSERT_TRUE(sandbox.has_value());
    const auto changes = (*sources_of(**sandbox))->source_changes((*index)->known());
    ASSERT_TRUE(changes.has_value());
    EXPECT_THAT(changes->changed, testing::IsEmpty());
    EXPECT_EQ(changes->files, static_cast<uint64_t>(kFiles));
  }
}

TEST_F(SnapshotIndexesTest, many_that_search_at_once_wait_for_one_index) {
  std::vector<std::unique_ptr<Episode>> episodes;
  for (int i = 0; i < 6; ++i) episodes.push_back(open());
  std::vector<std::string> answers(episodes.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < episodes.size(); ++i)
      threads.emplace_back([&, i] { answers[i] = search(*episodes[i], "work_17"); });
  }
  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
  EXPECT_EQ(searcher_->computed(), kFiles + 1u);
}

TEST_F(SnapshotIndexesTest, who_has_no_time_left_leaves_what_was_done_to_the_next) {
  snapshots_ = std::make_unique<SnapshotIndexes>(*searcher_, Duration::zero());
  searching_ = std::make_unique<SearchingBackend>(*backend_, *searcher_, *snapshots_);
  const auto episode = open();
  std::string answer;
  int late = 0;
  while (late < 20 && (answer = search(*episode, "work_17")).find("is being made") != std::string::npos) ++late;
  EXPECT_GE(late, 2);  // 32 pieces each time
  EXPECT_THAT(answer, HasSubstr("src/f17.py:1-2"));
  EXPECT_EQ(searcher_->computed(), kFiles + 1u);
}

TEST_F(SnapshotIndexesTest, known_vectors_spare_the_encoder_whatever_a_call_may_embed) {
  Scratch scratch;
  const auto& model = searcher_->model();
  {
    auto vectors = PieceVectors::open(scratch.path / "vectors", model);
    ASSERT_TRUE(vectors.has_value()) << vectors.error().to_string();
    for (const auto& [path, content] : task_.files) {
      for (const auto& piece : pieces_of(path, content)) {
        const auto vector = searcher_->embed(std::span(&piece.text, 1));
        ASSERT_TRUE(vectors->add(piece.digest, vector->data()));
      }
    }
    EXPECT_EQ(PieceVectors::open(scratch.path / "vectors", model).error().code(), Code::kUnavailable);
  }
  const auto before = search(*open(), "work_17");
  EXPECT_EQ(searcher_->computed(), kFiles + 1u);

  auto fresh = CodeSearcher::load(kSentences, 1);
  ASSERT_TRUE(fresh.has_value());
  auto read = PieceVectors::read(scratch.path / "vectors", model);
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->size(), static_cast<size_t>(kFiles));
  (*fresh)->use(std::move(*read));
  SnapshotIndexes snapshots(**fresh);
  SearchingBackend searching(*backend_, **fresh, snapshots);
  auto episode = Episode::open(task_, searching, options_);
  ASSERT_TRUE(episode.has_value());
  EXPECT_EQ(search(**episode, "work_17"), before);
  EXPECT_EQ((*fresh)->computed(), 1u);  // of what the setup wrote
}

TEST(PieceVectors, of_another_encoder_or_damaged_are_refused_to_read_and_begun_anew_to_write) {
  Scratch scratch;
  const auto path = scratch.path / "v";
  const IndexModel model{.id = digest_of("a"), .width = 4}, other{.id = digest_of("b"), .width = 4};
  const float vector[] = {1, 2, 3, 4};
  {
    auto vectors = PieceVectors::open(path, model);
    ASSERT_TRUE(vectors && vectors->add(digest_of("x"), vector) && vectors->add(digest_of("y"), vector));
    ASSERT_TRUE(vectors->sync());
  }
  EXPECT_EQ(PieceVectors::read(scratch.path / "none", model).error().code(), Code::kNotFound);
  EXPECT_EQ(PieceVectors::read(path, other).error().code(), Code::kInvalid);
  const auto read = PieceVectors::read(path, model);
  ASSERT_TRUE(read.has_value());
  ASSERT_NE(read->find(digest_of("y")), nullptr);
  EXPECT_EQ(read->find(digest_of("y"))[3], 4);
  EXPECT_EQ(read->find(digest_of("z")), nullptr);
  // A torn end is a crash while it was written: what came before it stands.
  auto bytes = *read_file(path);
  ASSERT_TRUE(write_file(path, bytes.substr(0, bytes.size() - 3)));
  EXPECT_EQ(PieceVectors::open(path, model)->size(), 1u);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(write_file(path, bytes));
  EXPECT_EQ(PieceVectors::read(path, model).error().code(), Code::kInvalid);
  EXPECT_EQ(PieceVectors::open(path, model)->size(), 0u);
}

}  // namespace
}  // namespace tandem::envs
