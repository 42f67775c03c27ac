#include "rollout/agent/endpoint_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace tandem::rollout {
namespace {

Json tools_of(const std::vector<std::string>& names) {
  Json tools = Json::array();
  for (const auto& name : names)
    tools.push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", Json::object()}}}});
  return tools;
}

TEST(EndpointNames, every_tool_has_one_that_fits_and_is_found_by_it) {
  const std::string longest(70, 'x');
  const std::vector<std::string> names = {"read_file",           "s__a.b", "s__a_b", "s__a:b", "s__" + longest,
                                          "s__" + longest + "y", "\u00e9"};
  const auto tools = tools_of(names);
  const EndpointNames endpoint(tools);
  const auto renamed = endpoint.renamed(tools);
  const std::regex fits("^[a-zA-Z0-9_-]{1,64}$");
  std::set<std::string> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto there = renamed[i]["function"]["name"].get<std::string>();
    EXPECT_TRUE(std::regex_match(there, fits)) << there;
    EXPECT_TRUE(seen.insert(there).second) << there;
    EXPECT_EQ(endpoint.there(names[i]), there);
    EXPECT_EQ(endpoint.here(there), names[i]);
  }
  EXPECT_EQ(endpoint.there("read_file"), "read_file");
  EXPECT_EQ(endpoint.here("s__a_b"), "s__a_b") << "a name that fits stays its tool's";
}

TEST(EndpointNames, what_a_model_makes_up_fits_when_it_is_told_again) {
  const EndpointNames endpoint(tools_of({"read_file"}));
  EXPECT_EQ(endpoint.there("functions.read_file"), "functions_read_file");
  EXPECT_EQ(endpoint.there(""), "_");
  EXPECT_EQ(endpoint.here("functions.read_file"), "functions.read_file");
}

}  // namespace
}  // namespace tandem::rollout
