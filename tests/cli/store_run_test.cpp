// Runs whose rollouts read new weights from a folder or a bucket: the same bits, nothing is left there, and where the
// store fails the trainer sends them.
#include <algorithm>

#include "tests/cli/run_fixture.h"
#include "tests/weights_sync/bucket_server.h"

namespace tandem {
namespace {

class StoreRun : public RunTest {
 protected:
  static Arguments with(const Arguments& more) {
    Arguments all = {"run.deterministic=true", "run.steps=4", "tasks.heldout=0", "trainer.max_lag=0", kWithSignal};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The number behind `words` in a role's log, which says it when it ends.
  static uint64_t said(const fs::path& run_dir, const std::string& role, const std::string& words) {
    const std::string log = text(run_dir / "logs/attempt_1" / (role + ".log"));
    const size_t at = log.find(words);
    EXPECT_NE(at, std::string::npos) << role << " does not say " << words << "\n" << log;
    return at == std::string::npos ? 0 : std::strtoull(log.c_str() + at + words.size(), nullptr, 10);
  }
  static size_t files_in(const fs::path& folder) {
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) files += entry.is_regular_file();
    return files;
  }
  static const Digest& plain() {
    static const Digest digest = [] {
      EXPECT_EQ(run(with({}), root() / "store-none"), 0) << text(output());
      return export_digest(root() / "store-none");
    }();
    return digest;
  }
};

TEST_F(StoreRun, reads_weights_from_a_folder_with_the_same_bits_and_leaves_nothing_there) {
  const fs::path run_dir = root() / "store-folder", shared = root() / "shared-weights";
  ASSERT_TRUE(make_folder(shared));
  ASSERT_EQ(run(with({"trainer.weight_store=" + shared.string()}), run_dir), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), plain());
  EXPECT_GT(said(run_dir, "rollout-0", "info read ") + said(run_dir, "rollout-1", "info read "), 0u);
  for (const char* rollout : {"rollout-0", "rollout-1"}) EXPECT_EQ(said(run_dir, rollout, "; gave it up "), 0u);
  EXPECT_GT(said(run_dir, "trainer-0", "info stored "), 0u);
  EXPECT_NE(logs(run_dir).find("bytes; 0 could not be stored"), std::string::npos) << logs(run_dir);
  EXPECT_EQ(files_in(shared), 0u);
  EXPECT_FALSE(fs::exists(run_dir / "weight_store.json"));
  expect_same_logprobs(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(StoreRun, reads_weights_from_a_bucket_and_asks_the_trainer_when_it_begins_to_fail) {
  weights_sync::BucketServer bucket;
  const Arguments place = {"trainer.weight_store=s3://bucket/weights", "trainer.weight_store_endpoint=" + bucket.url(),
                           "trainer.weight_store_seconds=0.2"};
  const fs::path run_dir = root() / "store-bucket";
  Process process(command(with(place), run_dir), output());
  const auto has_weights = [&] {
    const auto objects = bucket.objects();
    return std::ranges::any_of(objects, [](const auto& o) { return o.first.find("probe-") == std::string::npos; });
  };
  ASSERT_TRUE(within(240s, [&] { return has_weights() || !process.running(); })) << text(output());
  bucket.status = 503;
  ASSERT_EQ(process.wait(), 0) << text(output());
  EXPECT_EQ(export_digest(run_dir), plain());
  expect_same_logprobs(run_dir);
  expect_nothing_left(run_dir);
  // The next run cannot even begin.
  EXPECT_EQ(run(with(place), root() / "store-away"), 3) << text(output());
  EXPECT_NE(text(output()).find("trainer.weight_store: s3://bucket/weights cannot be used"), std::string::npos)
      << text(output());
}

TEST_F(StoreRun, a_place_that_is_none_is_refused_before_anything_begins) {
  const fs::path run_dir = root() / "store-wrong";
  EXPECT_EQ(run(with({"trainer.weight_store=weights"}), run_dir), 2);
  EXPECT_NE(text(output()).find("a path from the root is needed"), std::string::npos) << text(output());
  EXPECT_EQ(run(with({"trainer.weight_store=/proc/weights"}), run_dir), 3);
  EXPECT_NE(text(output()).find("/proc/weights is no folder"), std::string::npos) << text(output());
  EXPECT_FALSE(fs::exists(run_dir / "metrics.jsonl"));
}

}  // namespace
}  // namespace tandem
