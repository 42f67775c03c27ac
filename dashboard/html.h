// Pieces of HTML: text made harmless, curves, intervals and bars as SVG, and the page around them.
//
// Everything that comes from a run is hostile until escaped: a model chooses its own words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::dashboard {

// For text and for attribute values in double quotes. Control characters become visible symbols, bytes that are not
// UTF-8 become U+FFFD.
std::string escape(std::string_view text);

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // by rising x
  int colour = 0;                                 // of the palette; drawn as curve number `colour`
  bool faint = false;                             // thin and pale: what another curve smooths
};
struct Level {  // a horizontal line across a chart
  std::string name;
  double value = 0;
};
struct Chart {
  std::string title;
  std::vector<Series> series;
  std::vector<Level> levels;
  std::optional<double> low, high;  // of the vertical axis; by the data where not given
  bool percent = false;
  std::string empty = "nothing yet";
};
// A figure with its legend. Long series are thinned to what a screen can show.
std::string line_chart(const Chart& chart);

// The mean of the last `window` values at every point.
std::vector<std::pair<double, double>> smoothed(const std::vector<std::pair<double, double>>& points, size_t window);

struct IntervalRow {
  std::string name;
  double value = 0, low = 0, high = 0;  // shares of 1
  int colour = 0;
};
// Points with their intervals on a scale from 0 to 100 %, levels as upright lines.
std::string interval_chart(const std::vector<IntervalRow>& rows, const std::vector<Level>& levels);

struct BarRow {
  std::string name;
  std::vector<std::pair<std::string, double>> parts;  // phase, seconds
};
// One bar a row, all on one scale, with a legend.
std::string bar_chart(const std::vector<BarRow>& rows);

enum class PageUpdates : uint8_t { kNever, kWhileServed };
// A whole document around `body`, with style and script inside and nothing loaded from anywhere. Only the page's own
// script may run in it.
std::string page(std::string_view title, std::string_view body, PageUpdates updates);

}  // namespace tandem::dashboard
