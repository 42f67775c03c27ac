// The arguments of a plan in one packet for a device.
//
// Pure, but for the packet that it fills. Thread safety: none.
#pragma once

#include <cstdint>
#include <vector>

#include "model/device/packet.h"
#include "model/executor.h"

namespace tandem::model {

// Rows of which the head computes logprobs at once, without logits.
constexpr int kScoredRows = 1024;

// With how many rows and draws a plan is put on a device.
struct PlanSize {
  int rows = 0, draws = 0;
  // Plans of this size come again and again: all but large ones. They are filled up with rows of nobody, so that there
  // are few sizes: a sequence of its own, in a page that no other has.
  bool repeats = false;
};
PlanSize size_of(const Plan& plan, int max_positions);

// Rows of picks and of likeliest tokens, each once, ascending.
std::vector<int> scored_rows(const Plan& plan);
int32_t place_of(const std::vector<int>& scored, int row);

// Where the arrays of a plan lie in its packet. What stands before `pages`, and `pages` itself, has a place that
// follows from the size alone, so that work with these addresses can be repeated for the next plan of that size.
struct PlanPlaces {
  size_t tokens = 0, positions = 0, first_page = 0;
  size_t draw_rows = 0, temperatures = 0, top_k = 0, top_p = 0, min_p = 0, seeds = 0, draw_positions = 0, mask_of = 0;
  size_t logit_scales = 0;
  size_t pages = 0;
  size_t scored_rows = 0, picks = 0, top_rows = 0;  // picks by their rows within kScoredRows
  struct Later {
    Ticket ticket = 0;
    size_t places = 0, rows = 0;
    int count = 0;
  };
  std::vector<Later> later;
};
// `spare_page`: that of the rows of nobody.
PlanPlaces pack_plan(const Plan& plan, const PlanSize& size, const std::vector<int>& scored, int spare_page,
                     Packet& packet);

}  // namespace tandem::model
