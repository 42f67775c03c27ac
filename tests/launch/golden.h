// Rendered files beside those of tests/golden/launch. With TANDEM_WRITE_GOLDEN in the environment they are written
// anew, to be read before they are committed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/file.h"
#include "launch/job.h"

namespace tandem::launch {

inline void expect_golden(const std::string& name, const std::string& text) {
  const fs::path path = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/launch" / name;
  if (std::getenv("TANDEM_WRITE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, text));
  }
  const auto golden = read_file(path, 1 << 20);
  ASSERT_TRUE(golden) << golden.error().to_string();
  EXPECT_EQ(text, *golden);
}

// One run of the quickstart, with a blank in a path and a quote in a value.
inline Job quickstart_job() {
  return {.name = "quickstart-1",
          .program = "/opt/tandem/bin/tandem",
          .config = "/home/ada/my work/quickstart.yaml",
          .working_dir = "/home/ada/my work",
          .run_dir = "/data/runs/quickstart-1",
          .overrides = {"run.steps=20", "model.now=it's noon", "trainer.threads=8", "rollout.threads=4"},
          .variants = {Variant{}},
          .resources = {.cores = 8, .memory_bytes = uint64_t{6} << 30},
          .most_restarts = 100};
}

inline Job sweep_job() {
  Job job = quickstart_job();
  job.variants = *variants_of("1-2", std::vector<std::string>{"trainer.learning_rate=1e-5,3e-5"});
  return job;
}

}  // namespace tandem::launch
