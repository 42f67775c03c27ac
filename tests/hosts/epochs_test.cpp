#include "hosts/epochs.h"

#include <gmock/gmock.h>

#include "tests/envs/scratch.h"

namespace tandem::hosts {
namespace {

TEST(EpochsTest, a_later_epoch_takes_the_place_of_an_earlier_one_for_good) {
  envs::Scratch scratch;
  const fs::path file = scratch.path / "epochs.json";
  {
    auto epochs = Epochs::open(file);
    ASSERT_TRUE(epochs) << epochs.error().to_string();
    EXPECT_FALSE(epochs->admit(7, 1, "").value());
    EXPECT_FALSE(fs::exists(file)) << "runs that were never taken over are not written down";
    EXPECT_FALSE(epochs->admit(7, 2, "there").value());
    const auto fenced = epochs->admit(7, 1, "").value();
    ASSERT_TRUE(fenced);
    EXPECT_EQ(fenced->epoch, 2u);
    EXPECT_EQ(fenced->holder, "there");
    EXPECT_FALSE(epochs->admit(7, 2, "there").value());
    EXPECT_FALSE(epochs->admit(8, 1, "").value()) << "another run";
  }
  auto again = Epochs::open(file);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->admit(7, 1, "").value());
  EXPECT_FALSE(again->admit(7, 5, "elsewhere").value());
  EXPECT_EQ(again->admit(7, 4, "").value()->holder, "elsewhere");
}

TEST(EpochsTest, a_damaged_list_is_named) {
  envs::Scratch scratch;
  for (const char* text : {"", "[]", "{\"format\":1}", "{\"format\":1,\"runs\":[{\"run\":\"zz\"}]}"}) {
    scratch.put("epochs.json", text);
    const auto epochs = Epochs::open(scratch.path / "epochs.json");
    ASSERT_FALSE(epochs) << text;
    EXPECT_THAT(epochs.error().to_string(), testing::HasSubstr("epochs.json"));
  }
}

}  // namespace
}  // namespace tandem::hosts
