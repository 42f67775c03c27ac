#include "trainer/learn/routed_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/segments.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

namespace {

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A hash of the symbols before a token. Two that are equal by chance do no harm: what is looked up by them is a symbol
// of the same token, and where it is put decides what comes before it.
uint64_t extended(uint64_t hash, int32_t symbol) {
  hash = (hash ^ static_cast<uint64_t>(static_cast<uint32_t>(symbol))) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

struct Key {
  uint64_t before = 0;
  int32_t token = 0;
  friend bool operator==(const Key&, const Key&) = default;
};
struct HashOfKey {
  size_t operator()(const Key& key) const { return extended(key.before, key.token); }
};

}  // namespace

Result<RoutedViews> RoutedViews::create(std::span<const Sample* const> samples, const RouteShape& shape) {
  RoutedViews views;
  views.samples_ = samples;
  views.shape_ = shape;
  bool any = false;
  for (const Sample* const sample : samples) {
    const ExpertRoutes& routes = sample->routes;
    if (routes.empty()) continue;
    any = true;
    if (routes.shape != shape || routes.recorded.size() != sample->tokens.size())
      return fail(Status::invalid(fmt::format(
          "routes of {} layers and {} of {} experts were recorded, and the model has {} layers with {} of {}",
          routes.shape.layers, routes.shape.top_k, routes.shape.experts, shape.layers, shape.top_k, shape.experts)));
  }
  if (!any) return views;
  // Numbers in the order in which they are met, then in the order of tokens.
  std::unordered_map<int32_t, std::unordered_map<std::string_view, int32_t>> met;
  std::vector<Symbol> symbols;
  for (const Sample* const sample : samples) {
    auto& own = views.of_samples_.emplace_back();
    for (size_t i = 0; i < sample->tokens.size(); ++i) {
      const bool recorded = !sample->routes.empty() && sample->routes.recorded[i] != 0;
      const auto route = recorded ? sample->routes.row(i) : std::span<const uint8_t>();
      const auto [found, is_new] =
          met[sample->tokens[i]].try_emplace(text_of(route), static_cast<int32_t>(symbols.size()));
      if (is_new) symbols.push_back({sample->tokens[i], route});
      own.push_back(found->second);
    }
  }
  std::vector<int32_t> order(symbols.size()), rank(symbols.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    if (symbols[a].token != symbols[b].token) return symbols[a].token < symbols[b].token;
    return text_of(symbols[a].route) < text_of(symbols[b].route);
  });
  for (size_t i = 0; i < order.size(); ++i) {
    rank[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    views.symbols_.push_back(symbols[static_cast<size_t>(order[i])]);
  }
  for (auto& own : views.of_samples_) {
    for (int32_t& symbol : own) symbol = rank[static_cast<size_t>(symbol)];
  }
  // Tokens without a route that another sample has with one, behind the same symbols.
  std::unordered_map<Key, int32_t, HashOfKey> known;
  const auto each = [&](const auto& visit) {
    for (size_t s = 0; s < samples.size(); ++s) {
      std::vector<bool> begins(samples[s]->tokens.size() + 1);
      for (const uint32_t begin : samples[s]->later_segments) begins[begin] = true;
      uint64_t before = 0;
      for (size_t i = 0; i < views.of_samples_[s].size(); ++i) {
        if (begins[i]) before = 0;
        int32_t& symbol = views.of_samples_[s][i];
        visit(before, symbol);
        before = extended(before, symbol);
      }
    }
  };
  each([&](uint64_t before, int32_t& symbol) {
    const Symbol& of = views.symbols_[static_cast<size_t>(symbol)];
    if (of.route.empty()) return;
    const auto [found, is_new] = known.try_emplace({before, of.token}, symbol);
    if (!is_new) found->second = std::min(found->second, symbol);
  });
  each([&](uint64_t before, int32_t& symbol) {
    const Symbol& of = views.symbols_[static_cast<size_t>(symbol)];
    if (!of.route.empty()) return;
    if (const auto found = known.find({before, of.token}); found != known.end()) symbol = found->second;
  });
  return views;
}

std::vector<std::span<const int32_t>> RoutedViews::segments(size_t sample) const {
  const Sample& of = *samples_[sample];
  return split_at(std::span<const int32_t>(any() ? of_samples_[sample] : of.tokens), of.later_segments);
}

TreeRoutes RoutedViews::translate(TokenTree& tree) const {
  if (!any()) return {};
  TreeRoutes routes{.shape = shape_, .ids = {}};
  const size_t rows = tree.tokens.size(), top_k = shape_.top_k;
  routes.ids.assign(rows * shape_.choices(), -1);
  for (size_t row = 0; row < rows; ++row) {
    const Symbol& symbol = symbols_[static_cast<size_t>(tree.tokens[row])];
    tree.tokens[row] = symbol.token;
    for (size_t at = 0; at < shape_.choices() && !symbol.route.empty(); ++at)
      routes.ids[(at / top_k * rows + row) * top_k + at % top_k] = static_cast<int32_t>(shape_.id(symbol.route, at));
  }
  return routes;
}

}  // namespace tandem::trainer
