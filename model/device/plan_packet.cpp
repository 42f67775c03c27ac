#include "model/device/plan_packet.h"

#include <algorithm>
#include <bit>
#include <map>

#include "kernels/attention.h"
#include "kernels/sampling.h"

namespace tandem::model {

namespace {

// Larger plans take so long that nothing is won by repeating them.
constexpr int kMostRepeated = 512;

// Four sizes between a power of two and the next. None is beyond a multiple of 64 that the number itself is not beyond:
// products take tiles of 64 rows, so what is filled up costs them nothing.
int rounded(int count) {
  if (count < 2) return count;
  const int step = std::max(1, static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1))) / 4);
  return (count + step - 1) / step * step;
}

void add_draws(const Plan& plan, const PlanSize& size, PlanPlaces& at, Packet& packet) {
  std::vector<int32_t> rows, top_k, mask_of;
  std::vector<float> temperatures, top_p, min_p, logit_scales;
  std::vector<uint64_t> seeds, positions;
  const auto add = [&](const Draw& d, int32_t mask) {
    rows.push_back(d.row);
    temperatures.push_back(d.sampling.temperature);
    // As kernels::sample_kept has it.
    const int most = d.sampling.top_k > 0 ? std::min(d.sampling.top_k, kernels::kMostKept) : kernels::kMostKept;
    top_k.push_back(d.keeps && d.sampling.cuts() ? most : d.sampling.top_k);
    top_p.push_back(d.sampling.top_p);
    min_p.push_back(d.sampling.min_p);
    seeds.push_back(d.seed);
    positions.push_back(d.position);
    mask_of.push_back(mask);
    logit_scales.push_back(d.logit_scale);
  };
  int32_t masks = 0;
  for (const Draw& d : plan.draws) add(d, d.mask && d.bias.empty() ? masks++ : -1);
  const Draw of_nobody{.row = size.rows - 1, .sampling = {.temperature = 0}};
  for (size_t i = plan.draws.size(); i < static_cast<size_t>(size.draws); ++i) add(of_nobody, -1);
  at.draw_rows = packet.add(rows);
  at.temperatures = packet.add(temperatures);
  at.top_k = packet.add(top_k);
  at.top_p = packet.add(top_p);
  at.min_p = packet.add(min_p);
  at.seeds = packet.add(seeds);
  at.draw_positions = packet.add(positions);
  at.mask_of = packet.add(mask_of);
  at.logit_scales = packet.add(logit_scales);
}

}  // namespace

PlanSize size_of(const Plan& plan, int max_positions) {
  const int rows = static_cast<int>(plan.batch.tokens.size()), draws = static_cast<int>(plan.draws.size());
  if (rows > kMostRepeated || draws > kMostRepeated) return {rows, draws, false};
  // They are one sequence in one page.
  const bool fits = rounded(rows) - rows <= std::min(kernels::kPageTokens, max_positions);
  return {fits ? rounded(rows) : rows, rounded(draws), true};
}

std::vector<int> scored_rows(const Plan& plan) {
  std::vector<int> scored = plan.likeliest;
  for (const auto& pick : plan.picks) scored.push_back(pick.row);
  std::ranges::sort(scored);
  scored.erase(std::unique(scored.begin(), scored.end()), scored.end());
  return scored;
}

int32_t place_of(const std::vector<int>& scored, int row) {
  return static_cast<int32_t>(std::ranges::lower_bound(scored, row) - scored.begin());
}

PlanPlaces pack_plan(const Plan& plan, const PlanSize& size, const std::vector<int>& scored, int spare_page,
                     Packet& packet) {
  const int rows = static_cast<int>(plan.batch.tokens.size());
  std::vector<int32_t> tokens = plan.batch.tokens, positions = plan.batch.positions, pages = plan.batch.pages;
  std::vector<int32_t> first_page;
  for (const auto& run : plan.batch.runs) first_page.insert(first_page.end(), run.rows, run.first_page);
  for (int row = rows; row < size.rows; ++row) {
    tokens.push_back(0);
    positions.push_back(row - rows);
    first_page.push_back(static_cast<int32_t>(plan.batch.pages.size()));
  }
  pages.push_back(spare_page);
  PlanPlaces at;
  at.tokens = packet.add(tokens);
  at.positions = packet.add(positions);
  at.first_page = packet.add(first_page);
  add_draws(plan, size, at, packet);
  at.pages = packet.add(pages);
  std::map<Ticket, std::pair<std::vector<int32_t>, std::vector<int32_t>>> later;
  for (const auto& [row, token] : plan.later) {
    later[token.ticket].first.push_back(token.draw);
    later[token.ticket].second.push_back(row);
  }
  for (const auto& [ticket, taken] : later)
    at.later.push_back(
        {ticket, packet.add(taken.first), packet.add(taken.second), static_cast<int>(taken.first.size())});
  at.scored_rows = packet.add(scored);
  std::vector<TandemCudaPick> picks;
  for (const auto& pick : plan.picks) picks.push_back({place_of(scored, pick.row) % kScoredRows, pick.token});
  at.picks = packet.add(picks);
  std::vector<int32_t> top_rows;
  for (const auto& top : plan.tops) top_rows.push_back(top.row);
  at.top_rows = packet.add(top_rows);
  return at;
}

}  // namespace tandem::model
