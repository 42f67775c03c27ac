// A folder of a test's own, gone when the test ends.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/file.h"

namespace tandem::standby {

class ScratchFolder : public testing::Test {
 protected:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "tandem-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) ::abort();
    folder_ = name;
  }
  ~ScratchFolder() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

}  // namespace tandem::standby
