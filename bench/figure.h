// One measured figure beside what the machine could do at most.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tandem::bench {

struct Figure {
  std::string name;   // what ran, and at which size
  double value = 0;   // of `unit`; more is better but for times
  std::string unit;   // "tok/s", "GFLOP/s", "GB/s", "ms", "/s"
  double limit = 0;   // the most, in the same unit, by the machine's measured arithmetic and bandwidth; 0: none applies
  std::string bound;  // what sets the limit: "arithmetic", "memory"
};

Json to_json(const Figure& figure);
// Aligned columns, for people.
std::string to_table(const std::vector<Figure>& figures);

}  // namespace tandem::bench
