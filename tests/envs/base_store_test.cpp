#include "envs/tasks/base_store.h"

#include <gmock/gmock.h>

#include <ctime>

#include "envs/tasks/task_base.h"
#include "envs/tasks/yaml_task.h"
#include "tests/envs/cache_of.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

double seconds_now() { return static_cast<double>(std::time(nullptr)); }

class KeptBases : public testing::Test {
 protected:
  TaskBase base_of(const std::string& name) {
    scratch_.put(name + "/a.txt", "of " + name + "\n");
    return *find_task_base(TaskBase::Kind::kFolder, scratch_.path / name);
  }
  // As if it had been used that long ago.
  void age(const TaskBase& base, std::chrono::hours by) const {
    fs::last_write_time(*bases_folder() / (base.digest + ".lock"), fs::file_time_type::clock::now() - by);
  }
  Scratch scratch_;
  CacheOf cache_{scratch_.path / "cache"};
};

TEST_F(KeptBases, go_where_they_were_not_used_since_and_are_made_again) {
  using namespace std::chrono_literals;
  const TaskBase old = base_of("old"), recent = base_of("recent");
  ASSERT_TRUE(prepare_base(old) && prepare_base(recent));
  age(old, 1000h);
  auto kept = *kept_bases();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept.front().digest, old.digest) << "oldest use first";
  EXPECT_EQ(kept.front().bytes, 7u);
  const double week_ago = seconds_now() - 7 * 86400;
  EXPECT_FALSE(*remove_base(kept.back(), week_ago));
  EXPECT_TRUE(*remove_base(kept.front(), week_ago));
  EXPECT_FALSE(is_prepared(old));
  EXPECT_TRUE(is_prepared(recent));
  ASSERT_TRUE(prepare_base(old));
  EXPECT_EQ(read_base_file(*prepare_base(old), "a.txt").value_or(""), "of old\n");
}

TEST_F(KeptBases, that_are_opened_are_used_and_those_being_made_stay) {
  using namespace std::chrono_literals;
  const TaskBase base = base_of("base");
  ASSERT_TRUE(prepare_base(base));
  age(base, 1000h);
  const auto before = kept_bases()->front();
  ASSERT_TRUE(prepare_base(base)) << "a run begins";
  EXPECT_FALSE(*remove_base(before, seconds_now() - 7 * 86400)) << "what was listed is older than its use";
  age(base, 1000h);
  const auto lock = lock_base(*bases_folder(), base.digest, true);
  ASSERT_TRUE(lock);
  age(base, 1000h);
  EXPECT_FALSE(*remove_base(kept_bases()->front(), seconds_now())) << "another process makes it";
  EXPECT_TRUE(is_prepared(base));
}

TEST_F(KeptBases, of_many_tasks_have_their_source_looked_at_once) {
  scratch_.put("tree/a.txt", "one\n");
  for (const char* name : {"a", "b"}) {
    scratch_.put(std::string("tasks/") + name + ".yaml",
                 "instruction: Do it.\nbase: {folder: ../tree}\ncheck: {commands: [{run: 'true'}]}\n");
  }
  Mistakes mistakes;
  BaseSources sources;
  const auto first = read_yaml_task(scratch_.path / "tasks" / "a.yaml", mistakes, sources);
  ASSERT_TRUE(first && first->base) << mistakes.status().to_string();
  scratch_.put("tree/b.txt", "later\n");
  const auto second = read_yaml_task(scratch_.path / "tasks" / "b.yaml", mistakes, sources);
  ASSERT_TRUE(second && second->base);
  EXPECT_EQ(second->base->digest, first->base->digest) << "the tasks of one reading begin on one base";
  const auto alone = read_yaml_task(scratch_.path / "tasks" / "b.yaml", mistakes);
  EXPECT_NE(alone->base->digest, first->base->digest);
}

TEST_F(KeptBases, left_by_a_process_that_was_ended_are_told_apart_and_go) {
  const TaskBase base = base_of("base");
  ASSERT_TRUE(prepare_base(base));
  const fs::path part = *bases_folder() / (std::string(32, 'a') + ".part");
  fs::create_directories(part / "tree");
  std::ofstream(part / "tree" / "half") << "12345";
  fs::create_directories(*bases_folder() / "of somebody");
  const auto kept = *kept_bases();
  ASSERT_EQ(kept.size(), 2u);
  const auto& torn = kept[0].torn ? kept[0] : kept[1];
  EXPECT_TRUE(torn.torn);
  EXPECT_EQ(torn.bytes, 5u);
  EXPECT_TRUE(*remove_base(torn, seconds_now() + 10));
  EXPECT_FALSE(fs::exists(part));
  EXPECT_EQ(kept_bases()->size(), 1u);
}

}  // namespace
}  // namespace tandem::envs
