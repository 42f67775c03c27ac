// What tests of a run have in common: a directory, and a clock that nothing may rely on.
#pragma once

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/file.h"

namespace tandem::run {

// A wall clock that loses a day whenever somebody looks at it, beside a monotonic one.
class BackwardClock final : public Clock {
 public:
  Time now() const override { return monotonic_.now(); }
  double unix_seconds() const override { return seconds_ -= 86400; }

 private:
  const SystemClock monotonic_;
  mutable double seconds_ = 2e9;
};

// A run directory that is empty at first and goes with the test.
class TemporaryRun : public testing::Test {
 protected:
  TemporaryRun() {
    std::string name = (fs::temp_directory_path() / "tandem-run-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) root_ = name;
    fs::create_directory(dir());
  }
  ~TemporaryRun() override {
    std::error_code ignored;
    if (!root_.empty()) fs::remove_all(root_, ignored);
  }
  const fs::path& root() const { return root_; }
  fs::path dir() const { return root_ / "run"; }

 private:
  fs::path root_;
};

}  // namespace tandem::run
