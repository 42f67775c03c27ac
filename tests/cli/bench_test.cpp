// `tandem bench`: what it prints, not how fast anything is.
#include <set>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class BenchTest : public RunTest {
 protected:
  static std::vector<Json> figures(Arguments arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--json", "--seconds", "0"});
    EXPECT_EQ(tandem(arguments), 0) << text(output());
    std::vector<Json> lines;
    const std::string all = text(output());
    for (const auto line : split(trim(all), '\n')) lines.push_back(parse_json(line).value());
    return lines;
  }
};

TEST_F(BenchTest, figures_stand_beside_the_limits_of_the_same_run) {
  const auto lines = figures({"kernels", "--op", "gemm", "--shape", "3x64x64"});
  ASSERT_EQ(lines.size(), 4u);
  for (const Json& line : lines) {
    EXPECT_EQ(line["bench"], "kernels");
    EXPECT_GT(line["value"].get<double>(), 0) << line;
  }
  EXPECT_EQ(lines[2]["name"], "gemm 3x64x64");
  EXPECT_EQ(lines[2]["limit"], lines[0]["value"]) << "of what a cache holds, arithmetic is the limit";
  EXPECT_EQ(lines[3]["name"], "gemm 3x64x64, weights in fp8");
}

TEST_F(BenchTest, the_ledger_is_timed_at_every_turn_of_its_work) {
  std::set<std::string> units;
  for (const Json& line : figures({"ledger"})) {
    EXPECT_GT(line["value"].get<double>(), 0) << line;
    units.insert(line["unit"].get<std::string>());
  }
  EXPECT_EQ(units, (std::set<std::string>{"us", "/s", "GB/s", "B"}));
}

TEST_F(BenchTest, a_model_is_asked_for_only_where_one_is_measured) {
  for (const char* name : {"kernels", "cuda", "envs", "ledger", "wire"}) {
    EXPECT_EQ(tandem({"bench", name, "--model", "models/tiny"}), 2) << name;
    EXPECT_NE(text(output()).find("--model"), std::string::npos) << text(output());
  }
}

TEST_F(BenchTest, an_instruction_set_can_be_named) {
  const auto lines = figures({"kernels", "--op", "gemm", "--shape", "3x64x64", "--isa", "avx2"});
  EXPECT_EQ(lines.size(), 4u);
  EXPECT_EQ(tandem({"bench", "kernels", "--isa", "sse9"}), 2);
  EXPECT_NE(text(output()).find("avx2"), std::string::npos) << text(output());
}

TEST_F(BenchTest, wrong_operations_and_shapes_are_named) {
  EXPECT_EQ(tandem({"bench", "kernels", "--op", "gem"}), 2);
  EXPECT_NE(text(output()).find("experts"), std::string::npos) << text(output());
  EXPECT_EQ(tandem({"bench", "kernels", "--shape", "1x2x2"}), 2);
  EXPECT_NE(text(output()).find("--op gemm --shape 1x2x2"), std::string::npos) << text(output());
  for (const char* shape : {"1x2", "1x2x3", "0x2x2", "1x2x2x", "999999x999999x2", "axbxc"}) {
    EXPECT_EQ(tandem({"bench", "kernels", "--op", "gemm", "--shape", shape}), 2) << shape;
    EXPECT_NE(text(output()).find("is no shape of a product"), std::string::npos) << text(output());
  }
}

}  // namespace
}  // namespace tandem
