// Images of the Dockerfiles of tasks: what they are built of, and what they are called.
#include "envs/tasks/built_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "envs/container/tar.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

TEST(Tar, is_what_tar_reads) {
  Scratch scratch;
  const std::string deep = std::string(90, 'd') + "/" + std::string(80, 'f');
  const Files files = {{"Dockerfile", "FROM a\n"},
                       {"run.sh", "#!/bin/sh\n"},
                       {"empty", ""},
                       {deep, "deep"},
                       {"big", std::string(1000, 'x')}};
  const auto archive = tar_of(files, {"run.sh"});
  ASSERT_TRUE(archive.has_value());
  scratch.put("a.tar", *archive);
  const auto folder = (scratch.path / "out").string();
  ASSERT_EQ(system(("mkdir " + folder + " && tar -C " + folder + " -xf " + (scratch.path / "a.tar").string()).c_str()),
            0);
  for (const auto& [path, content] : files) EXPECT_EQ(scratch.get("out/" + path), content) << path;
  struct stat info {};
  ASSERT_EQ(stat((folder + "/run.sh").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
  EXPECT_EQ(tar_of({{std::string(200, 'x'), ""}}, {}).error().code(), Code::kInvalid);
}

class BuiltImage : public testing::Test {
 protected:
  BuiltImage() {
    scratch_.put("h/task.toml", "schema_version = \"1.1\"\n");
    scratch_.put("h/instruction.md", "Do it.\n");
    scratch_.put("h/environment/Dockerfile", "FROM a AS b\nFROM b\nARG A=1\nRUN curl x\n");
    scratch_.put("h/tests/test.sh", "exit 0\n");
    scratch_.put("t/task.yaml", "instruction: Do it.\n");
    scratch_.put("t/Dockerfile", "FROM a\nCOPY . /app\n");
    scratch_.put("t/run-tests.sh", "pytest\n");
    scratch_.put("t/tests/test_x.py", "def test_x(): pass\n");
    scratch_.put("t/solution.sh", "true\n");
  }
  Result<TaskSet> read() const { return TaskSet::read(scratch_.path, {.kinds = {}, .recipes = Recipes::kBuilt}); }
  Scratch scratch_;
};

TEST_F(BuiltImage, a_recipe_that_no_sandbox_can_follow_is_an_image) {
  EXPECT_EQ(TaskSet::read(scratch_.path)->find("h"), nullptr);
  const auto set = read();
  ASSERT_TRUE(set.has_value()) << set.error().to_string();
  const auto* task = set->find("h");
  ASSERT_NE(task, nullptr);
  EXPECT_TRUE(is_built_image(task->image));
  EXPECT_EQ(set->recipes_of_images().at(task->image), scratch_.path / "h/environment");
  EXPECT_EQ(set->recipes_of_images().at(set->find("t")->image), scratch_.path / "t");
}

TEST_F(BuiltImage, its_name_changes_with_what_it_is_built_of_and_with_nothing_else) {
  const auto before = read_build_context(scratch_.path / "h/environment")->image;
  scratch_.put("h/tests/test.sh", "exit 1\n");
  EXPECT_EQ(read_build_context(scratch_.path / "h/environment")->image, before);
  scratch_.put("h/environment/data.txt", "x");
  EXPECT_NE(read_build_context(scratch_.path / "h/environment")->image, before);
}

TEST_F(BuiltImage, tests_and_solution_are_never_in_it) {
  const auto context = read_build_context(scratch_.path / "t");
  ASSERT_TRUE(context.has_value());
  EXPECT_THAT(context->files, testing::ElementsAre(testing::Key("Dockerfile")));
}

TEST_F(BuiltImage, without_a_recipe_there_is_a_mistake_that_names_it) {
  std::filesystem::remove(scratch_.path / "h/environment/Dockerfile");
  const auto set = read();
  ASSERT_TRUE(set.has_value());
  ASSERT_EQ(set->skipped().size(), 1u);
  EXPECT_THAT(set->skipped()[0].why, testing::Contains(HasSubstr("h/environment/Dockerfile is not there")));
}

}  // namespace
}  // namespace tandem::envs
