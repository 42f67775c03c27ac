// Tokens to run through a model in one pass. A value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::model {

class LiveAdapter;

// The id of an adapter that was attached to an executor; 0: none.
using AdapterId = uint64_t;

// Rows of a batch, one behind the other, that products are followed by an adapter in.
struct AdaptedRows {
  const LiveAdapter* adapter = nullptr;
  int row = 0, rows = 0;
};

struct Batch {
  // Rows of one sequence, one behind the other.
  struct Run {
    int row = 0;  // of `tokens`
    int rows = 0;
    int position = 0;    // of the first row in its sequence
    int first_page = 0;  // in `pages`
    int pages = 0;       // of the sequence, enough for position + rows
    AdapterId adapter = 0;
  };
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<Run> runs;   // cover all rows
  std::vector<int> pages;  // of all runs

  void add(std::span<const int32_t> run_tokens, int position, std::span<const int> run_pages, AdapterId adapter = 0) {
    runs.push_back({.row = static_cast<int>(tokens.size()),
                    .rows = static_cast<int>(run_tokens.size()),
                    .position = position,
                    .first_page = static_cast<int>(pages.size()),
                    .pages = static_cast<int>(run_pages.size()),
                    .adapter = adapter});
    pages.insert(pages.end(), run_pages.begin(), run_pages.end());
    for (size_t i = 0; i < run_tokens.size(); ++i) {
      tokens.push_back(run_tokens[i]);
      positions.push_back(position + static_cast<int>(i));
    }
  }
  std::span<const int> pages_of(const Run& run) const { return std::span(pages).subspan(run.first_page, run.pages); }
};

}  // namespace tandem::model
