// Manifests for Kubernetes.
#include "launch/kubernetes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/golden.h"

namespace tandem::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kConfig = "{\n  \"model\": {\n    \"path\": \"models/warm-start\"\n  }\n}\n";

Job on_volume(Job job) {
  job.run_dir = "/data/runs/quickstart-1";
  job.overrides = {"trainer.threads=8", "model.now=it's \"noon\""};
  return job;
}

TEST(KubernetesManifest, of_one_run_is_that_of_the_golden_file) {
  const auto text = render_kubernetes(on_volume(quickstart_job()), kConfig, {.image = "registry.example/tandem:1"});
  ASSERT_TRUE(text) << text.error().to_string();
  expect_golden("quickstart.yaml", *text);
}

TEST(KubernetesManifest, of_a_sweep_in_a_queue_is_that_of_the_golden_file) {
  const auto text = render_kubernetes(
      on_volume(sweep_job()), kConfig,
      {.image = "registry.example/tandem:1", .name_space = "rl", .queue = "lab", .claim = "models-and-runs"});
  ASSERT_TRUE(text) << text.error().to_string();
  expect_golden("sweep.yaml", *text);
}

TEST(KubernetesManifest, of_a_nightly_evaluation_is_that_of_the_golden_file) {
  const auto text = render_kubernetes_nightly({.name = "suite",
                                               .schedule = "30 2 * * *",
                                               .nights = "/data/nights",
                                               .resources = {.cores = 4, .memory_bytes = uint64_t{8} << 30}},
                                              "{\n  \"model\": \"/data/models/warm-start\"\n}\n",
                                              {.image = "registry.example/tandem:1", .queue = "lab"});
  ASSERT_TRUE(text) << text.error().to_string();
  expect_golden("nightly.yaml", *text);
}

TEST(KubernetesManifest, what_kubernetes_would_not_take_is_told_with_the_option) {
  const auto error = [](const Job& job, const KubernetesOptions& options) {
    const auto text = render_kubernetes(job, kConfig, options);
    EXPECT_FALSE(text);
    return text ? "" : text.error().to_string();
  };
  const Job job = on_volume(quickstart_job());
  EXPECT_THAT(error(job, {}), HasSubstr("--image"));
  EXPECT_THAT(error(job, {.image = "a", .name_space = "R L"}), HasSubstr("--namespace \"R L\""));
  EXPECT_THAT(error(job, {.image = "a", .queue = "x:\n"}), HasSubstr("--queue"));
  EXPECT_THAT(error(job, {.image = "a", .claim = "-a"}), HasSubstr("--claim"));
  Job elsewhere = job;
  elsewhere.run_dir = "/data/../etc";
  EXPECT_THAT(error(elsewhere, {.image = "a"}), HasSubstr("/etc is not on the volume"));
}

TEST(KubernetesManifest, a_schedule_has_five_fields) {
  for (const char* schedule : {"", "30 2 * *", "30 2 * * * *", "30  2 * *", "@daily"}) {
    const auto text = render_kubernetes_nightly({.name = "a", .schedule = schedule, .nights = "/data/nights"}, "{}\n",
                                                {.image = "a"});
    ASSERT_FALSE(text) << schedule;
    EXPECT_THAT(text.error().to_string(), HasSubstr("--schedule"));
  }
}

TEST(NameForKubernetes, has_small_letters_digits_and_hyphens) {
  EXPECT_EQ(name_for_kubernetes("Tiny_Run.20261126-130000"), "tiny-run-20261126-130000");
  EXPECT_EQ(name_for_kubernetes("--a--"), "a");
  EXPECT_EQ(name_for_kubernetes("..."), "tandem");
  EXPECT_EQ(name_for_kubernetes(std::string(100, 'x')), std::string(48, 'x'));
  EXPECT_EQ(name_for_kubernetes(std::string(47, 'x') + "-yy"), std::string(47, 'x'));
}

}  // namespace
}  // namespace tandem::launch
