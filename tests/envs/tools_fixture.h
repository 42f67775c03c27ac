// Calls of tools on a folder of a test's own, without a sandbox.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "envs/tools/tool.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {

class Tools : public testing::Test {
 protected:
  ToolOutcome call(const char* name, const Json& arguments) {
    context_.root = scratch_.path;
    return run_tool(context_, name, arguments);
  }
  Scratch scratch_;
  ToolContext context_{.output_limit = 4000, .time_limit_s = 20};
};

}  // namespace tandem::envs
