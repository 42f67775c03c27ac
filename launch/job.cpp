#include "launch/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/text.h"

namespace tandem::launch {
namespace {

constexpr size_t kMostVariants = 1000;

std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failed != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

// One axis of the product: names and overrides.
Result<std::vector<Variant>> seed_axis(const std::string& seeds) {
  const size_t dash = seeds.find('-');
  const auto first = number_in(std::string_view(seeds).substr(0, dash));
  const auto last = dash == std::string::npos ? first : number_in(std::string_view(seeds).substr(dash + 1));
  if (!first || !last || *last < *first)
    return fail(Status::invalid(fmt::format("--seeds \"{}\" is neither a seed nor A-B with A up to B", seeds)));
  if (static_cast<size_t>(*last - *first) >= kMostVariants)
    return fail(Status::invalid(fmt::format("--seeds {}: at most {} runs a job", seeds, kMostVariants)));
  std::vector<Variant> axis;
  for (int64_t seed = *first; seed <= *last; ++seed)
    axis.push_back({fmt::format("seed-{}", seed), {fmt::format("run.seed={}", seed)}});
  return axis;
}

Result<std::vector<Variant>> sweep_axis(const std::string& sweep) {
  const size_t equals = sweep.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == sweep.size()) {
    return fail(Status::invalid(fmt::format("--sweep \"{}\" is not KEY=VALUE,VALUE..", sweep))
                    .hint("such as --sweep trainer.learning_rate=1e-5,1e-4"));
  }
  const std::string key = sweep.substr(0, equals);
  const std::string last_word = key.substr(key.rfind('.') + 1);
  std::vector<Variant> axis;
  for (const auto value : split(std::string_view(sweep).substr(equals + 1), ',')) {
    if (value.empty()) return fail(Status::invalid(fmt::format("--sweep \"{}\" has an empty value", sweep)));
    axis.push_back({plain_name(fmt::format("{}-{}", last_word, value)), {fmt::format("{}={}", key, value)}});
  }
  return axis;
}

}  // namespace

Result<std::vector<Variant>> variants_of(const std::string& seeds, std::span<const std::string> sweeps) {
  std::vector<std::vector<Variant>> axes;
  for (const std::string& sweep : sweeps) axes.push_back(TRY(sweep_axis(sweep)));
  if (!seeds.empty()) axes.push_back(TRY(seed_axis(seeds)));
  std::vector<Variant> product = {Variant{}};
  for (const auto& axis : axes) {
    if (product.size() * axis.size() > kMostVariants) {
      return fail(Status::invalid(fmt::format("--seeds and --sweep make more than {} runs", kMostVariants))
                      .hint("make several jobs of them"));
    }
    std::vector<Variant> longer;
    for (const Variant& before : product) {
      for (const Variant& value : axis) {
        Variant both = before;
        both.name += (before.name.empty() ? "" : "_") + value.name;
        both.overrides.insert(both.overrides.end(), value.overrides.begin(), value.overrides.end());
        longer.push_back(std::move(both));
      }
    }
    product = std::move(longer);
  }
  std::set<std::string> names;
  for (const Variant& variant : product) {
    if (!names.insert(variant.name).second)
      return fail(Status::invalid(fmt::format("two runs of the sweep would both be called {}", variant.name))
                      .hint("values must differ in letters, digits, '-', '_' or '.'"));
  }
  return product;
}

Result<int64_t> seconds_of_time(std::string_view text) {
  const auto wrong = [&] {
    return fail(Status::invalid(fmt::format("--time \"{}\" is not a time", text))
                    .hint("minutes, or MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES"));
  };
  const size_t dash = text.find('-');
  int64_t days = 0;
  std::string_view rest = text;
  if (dash != std::string_view::npos) {
    const auto number = number_in(text.substr(0, dash));
    if (!number) return wrong();
    days = *number;
    rest = text.substr(dash + 1);
  }
  std::vector<int64_t> parts;
  for (const auto part : split(rest, ':')) {
    const auto number = number_in(part);
    if (!number || *number > 1'000'000) return wrong();
    parts.push_back(*number);
  }
  if (parts.size() > 3 || days > 10'000) return wrong();
  parts.resize(3, -1);
  const auto at = [&](size_t i) { return std::max<int64_t>(0, parts[i]); };
  int64_t seconds = 0;
  if (dash != std::string_view::npos)
    seconds = days * 86400 + at(0) * 3600 + at(1) * 60 + at(2);
  else if (parts[2] >= 0)
    seconds = at(0) * 3600 + at(1) * 60 + at(2);
  else
    seconds = at(0) * 60 + at(1);
  if (seconds == 0) return wrong();
  return seconds;
}

std::string quoted_for_shell(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string joined_for_shell(std::span<const std::string> words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(quoted_for_shell(word));
  return join(quoted, " ");
}

std::string plain_name(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!plain) c = '-';
  }
  return name;
}

}  // namespace tandem::launch
