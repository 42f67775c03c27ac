#include "hosts/placement.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::hosts {
namespace {

using wire::Role;

TEST(Placement, a_role_starts_on_its_own_host_and_elsewhere_where_that_is_gone) {
  std::vector<Machine> machines(3, Machine{.takes_roles = true});
  EXPECT_EQ(place(Role::kRollout, 1, machines, {}), 1u);
  machines[1].takes_roles = false;
  machines[0].roles = {{Role::kRollout, 2}};
  machines[2].roles = {{Role::kRollout, 1}, {Role::kEnv, 5}};
  EXPECT_EQ(place(Role::kRollout, 1, machines, {}), 2u) << "the one with the fewest of its kind";
  EXPECT_EQ(place(Role::kEnv, 1, machines, {}), 0u);
}

TEST(Placement, nothing_is_placed_where_memory_is_short_or_nobody_is_there) {
  std::vector<Machine> machines = {{.takes_roles = true, .memory_bytes = 100}};
  const Needs needs = {{Role::kRollout, 60}, {Role::kEnv, 40}};
  EXPECT_EQ(place(Role::kRollout, 0, machines, needs), 0u);
  machines[0].roles = {{Role::kRollout, 1}};
  EXPECT_FALSE(place(Role::kRollout, 0, machines, needs));
  EXPECT_EQ(place(Role::kEnv, 0, machines, needs), 0u) << "40 are left";
  machines[0].memory_bytes = 0;
  EXPECT_EQ(place(Role::kRollout, 0, machines, needs), 0u) << "nobody knows of a limit";
  machines[0].takes_roles = false;
  EXPECT_FALSE(place(Role::kRollout, 0, machines, needs));
  EXPECT_FALSE(place(Role::kRollout, 0, {}, needs));
}

}  // namespace
}  // namespace tandem::hosts
