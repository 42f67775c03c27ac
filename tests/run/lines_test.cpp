#include "run/lines.h"

#include <gmock/gmock.h>

#include "tests/run/temporary_run.h"

namespace tandem::run {
namespace {

using wire::Role;

class LinesTest : public TemporaryRun {
 protected:
  ~LinesTest() override {
    std::error_code ignored;
    if (const auto layout = RunLayout::open(dir())) fs::remove_all(layout->socket_folder(), ignored);
  }
};

TEST_F(LinesTest, a_run_on_one_machine_speaks_over_the_sockets_of_its_layout_without_a_key) {
  const auto layout = RunLayout::establish(dir());
  const auto lines = Lines::of(*layout);
  ASSERT_TRUE(lines) << lines.error().to_string();
  EXPECT_FALSE(lines->is_between_machines());
  EXPECT_EQ(lines->secret(), nullptr);
  EXPECT_EQ(lines->host(), "local");
  EXPECT_EQ(lines->listening({Role::kRollout, 1}), layout->address({Role::kRollout, 1}).text());
  EXPECT_EQ(lines->known({Role::kEnv, 0}), layout->address({Role::kEnv, 0}));
}

TEST_F(LinesTest, a_run_with_hosts_has_fixed_addresses_for_coordinator_and_trainer_alone) {
  const auto layout = RunLayout::establish(dir());
  ASSERT_TRUE(make_private_folder(layout->socket_folder()));
  const Wiring wiring{
      .host = "10.0.0.5:7", .ip = "10.0.0.5", .coordinator = "tcp://10.0.0.1:1", .trainer = "tcp://10.0.0.1:2"};
  ASSERT_TRUE(write_file(layout->socket_folder() / kWiringFile, wiring_text(wiring)));
  EXPECT_FALSE(Lines::of(*layout)) << "there is no key";
  ASSERT_TRUE(wire::Secret::create(layout->socket_folder() / kRunKeyFile));
  const auto lines = Lines::of(*layout);
  ASSERT_TRUE(lines) << lines.error().to_string();
  EXPECT_NE(lines->secret(), nullptr);
  EXPECT_EQ(lines->host(), "10.0.0.5:7");
  EXPECT_EQ(lines->coordinator().text(), "tcp://10.0.0.1:1");
  EXPECT_EQ(lines->known({Role::kTrainer, 0})->text(), "tcp://10.0.0.1:2");
  EXPECT_FALSE(lines->known({Role::kTrainer, 1}));
  EXPECT_FALSE(lines->known({Role::kRollout, 0}));
  EXPECT_EQ(lines->listening({Role::kRollout, 0}), "tcp://10.0.0.5:*");

  ASSERT_TRUE(write_file(layout->socket_folder() / kWiringFile, wiring_text({.host = "x"})));
  EXPECT_EQ(Lines::of(*layout).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace tandem::run
