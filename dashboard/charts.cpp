// SVG by hand: curves, intervals and bars. Colours are classes, so the page's style decides them for light and dark.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "dashboard/html.h"

namespace tandem::dashboard {

namespace {

constexpr double kWidth = 440, kHeight = 210, kLeft = 46, kRight = 10, kTop = 10, kBottom = 24;
constexpr size_t kMostPoints = 240;
constexpr int kColours = 10;

using Points = std::vector<std::pair<double, double>>;

Points thinned(const Points& points) {
  if (points.size() <= kMostPoints) return points;
  Points thin;
  const size_t bucket = (points.size() + kMostPoints - 1) / kMostPoints;
  for (size_t start = 0; start < points.size(); start += bucket) {
    const size_t end = std::min(points.size(), start + bucket);
    double x = 0, y = 0;
    for (size_t i = start; i < end; ++i) {
      x += points[i].first;
      y += points[i].second;
    }
    thin.emplace_back(x / static_cast<double>(end - start), y / static_cast<double>(end - start));
  }
  return thin;
}

// Steps of 1, 2 or 5 times a power of ten, about `wanted` of them between low and high.
double tick_step(double low, double high, int wanted) {
  const double raw = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string number_text(double value, bool percent) {
  if (percent) return fmt::format("{:.0f} %", value * 100);
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
  if (size >= 1e3) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

struct Range {
  double low = 0, high = 1;
};

Range range_of(const Chart& chart) {
  Range range{INFINITY, -INFINITY};
  const auto include = [&](double value) {
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  };
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) include(y);
  }
  for (const Level& level : chart.levels) include(level.value);
  if (range.low >= 0) include(0);  // a curve of amounts stands on zero
  if (range.high - range.low < 1e-12) range.high = range.low + 1;
  const double step = tick_step(range.low, range.high, 4);
  range = {std::floor(range.low / step) * step, std::ceil(range.high / step) * step};
  return {chart.low.value_or(range.low), chart.high.value_or(range.high)};
}

std::string legend_item(int colour, std::string_view name, const char* shape) {
  return fmt::format("<li><i class=\"k{} {}\"></i>{}</li>", colour % kColours, shape, escape(name));
}

}  // namespace

Points smoothed(const Points& points, size_t window) {
  Points smooth;
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    sum += points[i].second;
    if (i >= window) sum -= points[i - window].second;
    smooth.emplace_back(points[i].first, sum / static_cast<double>(std::min(i + 1, window)));
  }
  return smooth;
}

std::string line_chart(const Chart& input) {
  Chart chart = input;
  bool any = false;
  Range across{INFINITY, -INFINITY};
  for (Series& series : chart.series) {
    std::erase_if(series.points, [](const auto& p) { return !std::isfinite(p.first) || !std::isfinite(p.second); });
    series.points = thinned(series.points);
    for (const auto& [x, y] : series.points) {
      any = true;
      across.low = std::min(across.low, x);
      across.high = std::max(across.high, x);
    }
  }
  std::string out = fmt::format("<figure class=\"chart\"><figcaption>{}</figcaption>", escape(chart.title));
  if (!any) return out + fmt::format("<p class=\"none\">{}</p></figure>\n", escape(chart.empty));
  if (across.high - across.low < 1) across.high = across.low + 1;
  const Range up = range_of(chart);
  const auto x_of = [&](double x) {
    return kLeft + (x - across.low) / (across.high - across.low) * (kWidth - kLeft - kRight);
  };
  const auto y_of = [&](double y) {
    return kHeight - kBottom -
           (std::clamp(y, up.low, up.high) - up.low) / (up.high - up.low) * (kHeight - kTop - kBottom);
  };
  Json data = {
      {"x", {across.low, across.high}}, {"left", kLeft}, {"right", kWidth - kRight}, {"percent", chart.percent}};
  data["series"] = Json::array();
  for (const Series& series : chart.series) {
    if (!series.faint) data["series"].push_back({{"name", series.name}, {"points", series.points}});
  }
  out += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" data-chart=\"{}\">", kWidth, kHeight,
                     escape(chart.title), escape(dump_json(data)));
  const double y_step = tick_step(up.low, up.high, 4);
  for (double y = std::ceil(up.low / y_step) * y_step; y <= up.high + y_step * 1e-6; y += y_step) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "class=\"end\">{}</text>",
        kLeft, kWidth - kRight, y_of(y), y_of(y), kLeft - 6, y_of(y) + 4,
        number_text(std::abs(y) < y_step / 1e6 ? 0 : y, chart.percent));
  }
  const double x_step = std::max(1.0, tick_step(across.low, across.high, 5));
  for (double x = std::ceil(across.low / x_step) * x_step; x <= across.high + x_step * 1e-6; x += x_step) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" class=\"mid\">{:.0f}</text>", x_of(x), kHeight - 6, x);
  }
  std::sort(chart.levels.begin(), chart.levels.end(), [](const Level& a, const Level& b) { return a.value < b.value; });
  double label_y = kHeight;  // labels rise from the lowest, so that none covers another
  for (const Level& level : chart.levels) {
    const double y = y_of(level.value);
    label_y = std::min(y - 3, label_y - 11);
    out += fmt::format(
        "<line class=\"level\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "class=\"end level\">{}</text>",
        kLeft, kWidth - kRight, y, y, kWidth - kRight, label_y, escape(level.name));
  }
  for (const Series& series : chart.series) {
    if (series.points.empty()) continue;
    std::string path;
    for (const auto& [x, y] : series.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x_of(x), y_of(y));
    if (series.points.size() == 1) path += "h.1";
    out += fmt::format("<path class=\"curve k{}{}\" d=\"{}\"/>", series.colour % kColours, series.faint ? " faint" : "",
                       path);
  }
  out += "</svg>";
  const auto shown = std::count_if(chart.series.begin(), chart.series.end(), [](const Series& s) { return !s.faint; });
  if (shown > 1) {
    out += "<ul class=\"legend\">";
    for (const Series& series : chart.series) {
      if (!series.faint) out += legend_item(series.colour, series.name, "");
    }
    out += "</ul>";
  }
  return out + "<p class=\"readout\" aria-hidden=\"true\">&nbsp;</p></figure>\n";
}

std::string interval_chart(const std::vector<IntervalRow>& rows, const std::vector<Level>& levels) {
  constexpr double kRow = 30, kName = 118;
  constexpr double kHead = 20;
  const double foot = 6 + 14.0 * static_cast<double>(levels.size());
  const double height = kHead + kRow * static_cast<double>(rows.size()) + foot;
  const auto x_of = [&](double share) { return kName + std::clamp(share, 0.0, 1.0) * (kWidth - kName - 66); };
  const double floor_y = height - foot;
  std::string out =
      fmt::format("<svg class=\"intervals\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"success with intervals\">",
                  kWidth, height);
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text x=\"{0:.1f}\" y=\"{3}\" "
        "class=\"mid\">{4:.0f}</text>",
        x_of(share), kHead - 4, floor_y, kHead - 8, share * 100);
  }
  for (size_t i = 0; i < levels.size(); ++i) {
    const double x = x_of(levels[i].value), y = floor_y + 14 + 14.0 * static_cast<double>(i);
    out += fmt::format(
        "<line class=\"level\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\"/><text x=\"{3:.1f}\" "
        "y=\"{2:.1f}\" class=\"level\">{4} {5:.1f} %</text>",
        x, kHead - 4, y, x + 4, escape(levels[i].name), levels[i].value * 100);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const IntervalRow& row = rows[i];
    const double y = kHead + kRow * (static_cast<double>(i) + 0.5);
    out += fmt::format("<text x=\"0\" y=\"{:.1f}\" class=\"name\">{}</text>", y + 4, escape(row.name));
    out += fmt::format(
        "<line class=\"whisker k{0}\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{3:.1f}\" y2=\"{3:.1f}\"/>"
        "<circle class=\"dot k{0}\" cx=\"{4:.1f}\" cy=\"{3:.1f}\" r=\"5\"/>",
        row.colour % kColours, x_of(row.low), x_of(row.high), y, x_of(row.value));
    out +=
        fmt::format("<text x=\"{}\" y=\"{:.1f}\" class=\"end value\">{:.1f} %</text>", kWidth, y + 4, row.value * 100);
  }
  return out + "</svg>\n";
}

std::string bar_chart(const std::vector<BarRow>& rows) {
  double most = 0;
  std::map<std::string, int> colours;
  std::vector<std::string> order;
  for (const BarRow& row : rows) {
    double sum = 0;
    for (const auto& [phase, seconds] : row.parts) {
      sum += seconds;
      if (colours.emplace(phase, static_cast<int>(colours.size())).second) order.push_back(phase);
    }
    most = std::max(most, sum);
  }
  if (most <= 0) return "<p class=\"none\">no process has reported its time yet</p>\n";
  std::string out = "<div class=\"bars\">";
  for (const BarRow& row : rows) {
    double sum = 0;
    for (const auto& [phase, seconds] : row.parts) sum += seconds;
    out += fmt::format("<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\">", escape(row.name));
    for (const auto& [phase, seconds] : row.parts) {
      out += fmt::format(
          "<i class=\"{}\" style=\"width:{:.2f}%\" title=\"{} {} ({:.0f} %)\"></i>",
          phase == "idle" || phase == "other" ? "rest-" + phase : fmt::format("k{}", colours[phase] % kColours),
          seconds / most * 100, escape(phase), format_seconds(seconds), sum > 0 ? seconds / sum * 100 : 0);
    }
    out += fmt::format("</span><span class=\"value\">{}</span></div>", format_seconds(sum));
  }
  out += "</div><ul class=\"legend\">";
  for (const std::string& phase : order) {
    if (phase == "idle" || phase == "other")
      out += fmt::format("<li><i class=\"rest-{0} block\"></i>{0}</li>", phase);
    else
      out += legend_item(colours[phase], phase, "block");
  }
  return out + "</ul>\n";
}

}  // namespace tandem::dashboard
