// `tandem chaos`: real runs, real signals.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class ChaosTest : public RunTest {};

TEST_F(ChaosTest, a_run_under_faults_of_every_kind_loses_and_doubles_nothing) {
  const fs::path folder = root() / "chaos", output = root() / "chaos.json";
  Process chaos({TANDEM_BINARY, "chaos", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--faults", "12", "--seed", "3",
                 "--every", "0.8", "--json", "--dir", folder.string(), "model.path=" + (root() / "model").string(),
                 "run.steps=8", "rollout.workers=2"},
                output);
  ASSERT_EQ(chaos.wait(400s), 0) << text(output);
  const std::string printed = text(output);
  const Json said = Json::parse(printed.substr(printed.find('{')));
  int faults = 0;
  for (const auto& [kind, count] : said["faults"].items()) faults += count.get<int>();
  EXPECT_GE(faults, 12);
  EXPECT_EQ(said["lost"], 0);
  EXPECT_EQ(said["duplicated"], 0);
  EXPECT_EQ(said["hung"], 0);
  EXPECT_EQ(said["exit"], 0);
  const Json& books = said["books"];
  EXPECT_EQ(books["admitted"].get<int>(),
            books["trained"].get<int>() + books["dropped"].get<int>() + books["in_flight"].get<int>());
  EXPECT_GT(books["trained"].get<int>(), 0);
  // Each fault has its line, and each that was noticed another.
  std::map<std::string, int> lines;
  std::set<std::pair<int, std::string>> hurt;
  const std::string events = text(folder / "faults.jsonl");
  for (const auto line : split_lines(events)) {
    const Json event = Json::parse(line);
    ++lines[event["event"].get<std::string>()];
    const std::pair whom(event["round"].get<int>(), event["target"].get<std::string>());
    if (event["event"] == "fault") {
      EXPECT_FALSE(event["kind"].get<std::string>().empty()) << line;
      hurt.insert(whom);
    } else {
      EXPECT_TRUE(hurt.contains(whom)) << line;
      EXPECT_GE(event["seconds"].get<double>(), 0);
    }
  }
  EXPECT_GE(lines["fault"], 12);
  EXPECT_EQ(lines["noticed"] > 0, !said["detected_seconds"]["p50"].is_null());
}

}  // namespace
}  // namespace tandem
