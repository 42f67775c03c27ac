// The experts that each token of a list was routed to, as bytes: recorded while sampling, replayed in training.
//
// A row is a token: `layers` layers with experts, in order, and of each `top_k` experts, that of the largest weight
// first. An id takes one byte up to 256 experts, else two, the low one first.
//
// Thread safety: as any value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tandem {

struct RouteShape {
  uint32_t layers = 0;  // that have experts; 0: there are no routes
  uint32_t top_k = 0, experts = 0;
  friend bool operator==(const RouteShape&, const RouteShape&) = default;

  bool any() const { return layers > 0; }
  size_t choices() const { return static_cast<size_t>(layers) * top_k; }  // of a token
  size_t id_bytes() const { return experts <= 256 ? 1 : 2; }
  size_t row_bytes() const { return choices() * id_bytes(); }

  // Choice `at` of a row.
  uint32_t id(std::span<const uint8_t> row, size_t at) const {
    return id_bytes() == 1 ? row[at] : row[2 * at] + 256u * row[2 * at + 1];
  }
  void set(std::span<uint8_t> row, size_t at, uint32_t id) const {
    if (id_bytes() == 1) {
      row[at] = static_cast<uint8_t>(id);
    } else {
      row[2 * at] = static_cast<uint8_t>(id);
      row[2 * at + 1] = static_cast<uint8_t>(id / 256);
    }
  }
};

// Limits of routes that are read. No known model comes near them.
inline constexpr uint32_t kMostRouteLayers = 1024, kMostRouteTopK = 256, kMostRouteExperts = 65536;

struct ExpertRoutes {
  RouteShape shape;               // not any(): both lists are empty
  std::vector<uint8_t> recorded;  // [tokens]: 1 where the row is known
  std::vector<uint8_t> ids;       // [tokens] rows, zeros where it is not
  friend bool operator==(const ExpertRoutes&, const ExpertRoutes&) = default;

  bool empty() const { return !shape.any(); }
  // Makes one row for each of `tokens` tokens. New rows are unknown.
  void resize(size_t tokens) {
    if (empty()) return;
    recorded.resize(tokens, 0);
    ids.resize(tokens * shape.row_bytes(), 0);
  }
  std::span<const uint8_t> row(size_t token) const {
    return std::span(ids).subspan(token * shape.row_bytes(), shape.row_bytes());
  }
  // Records rows from `token` on. Known rows keep their values.
  void record(size_t token, std::span<const uint8_t> rows) {
    const size_t width = shape.row_bytes();
    for (size_t i = 0; width > 0 && (i + 1) * width <= rows.size() && token + i < recorded.size(); ++i) {
      if (recorded[token + i] != 0) continue;
      recorded[token + i] = 1;
      std::memcpy(ids.data() + (token + i) * width, rows.data() + i * width, width);
    }
  }
  // Whether there is a row for each of `tokens` tokens, and each known row names distinct experts that exist.
  bool fits(size_t tokens) const {
    if (empty()) return recorded.empty() && ids.empty();
    if (shape.layers > kMostRouteLayers || shape.top_k < 1 || shape.top_k > kMostRouteTopK ||
        shape.experts > kMostRouteExperts || shape.top_k > shape.experts || recorded.size() != tokens ||
        ids.size() != tokens * shape.row_bytes())
      return false;
    for (size_t token = 0; token < tokens; ++token) {
      if (recorded[token] > 1 || (recorded[token] == 1 && !is_choice(row(token)))) return false;
    }
    return true;
  }

 private:
  bool is_choice(std::span<const uint8_t> row) const {
    for (size_t at = 0; at < shape.choices(); ++at) {
      const uint32_t id = shape.id(row, at);
      if (id >= shape.experts) return false;
      for (size_t before = at - at % shape.top_k; before < at; ++before) {
        if (shape.id(row, before) == id) return false;
      }
    }
    return true;
  }
};

}  // namespace tandem
