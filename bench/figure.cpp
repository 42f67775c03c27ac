#include "bench/figure.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::bench {

Json to_json(const Figure& figure) {
  Json json = {{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}};
  if (figure.limit > 0) {
    json["limit"] = figure.limit;
    json["bound"] = figure.bound;
    json["share_of_limit"] = figure.value / figure.limit;
  }
  return json;
}

namespace {
std::string number(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0); }
}  // namespace

std::string to_table(const std::vector<Figure>& figures) {
  size_t width = 0;
  for (const Figure& figure : figures) width = std::max(width, figure.name.size());
  std::string table;
  for (const Figure& figure : figures) {
    table += fmt::format("{:<{}}  {:>9} {:<8}", figure.name, width, number(figure.value), figure.unit);
    if (figure.limit > 0) {
      table +=
          fmt::format(" {:>3.0f} % of {} ({})", 100 * figure.value / figure.limit, number(figure.limit), figure.bound);
    }
    table += '\n';
  }
  return table;
}

}  // namespace tandem::bench
