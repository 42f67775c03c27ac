#include "model/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"

namespace tandem::model {

Status check_pages(std::span<const int> wanted, int pages) {
  for (const int page : wanted) {
    if (page < 0 || page >= pages) return Status::invalid(fmt::format("there is no page {} of {}", page, pages));
  }
  return {};
}

Status check_host_pages(std::span<const int> wanted, int pages, size_t bytes, size_t page_bytes) {
  TRY(check_pages(wanted, pages));
  if (bytes == wanted.size() * page_bytes) return {};
  return Status::invalid(
      fmt::format("{} bytes of host memory for {} pages of {} bytes", bytes, wanted.size(), page_bytes));
}

Status check_plan(const Plan& plan, int vocabulary, int pages, int max_positions, const AdapterTable& adapters) {
  const Batch& batch = plan.batch;
  const auto token_exists = [&](int32_t token) { return token >= 0 && token < vocabulary; };
  if (!std::ranges::all_of(batch.tokens, token_exists) ||
      !std::ranges::all_of(plan.picks, token_exists, &kernels::TokenPick::token))
    return Status::invalid(fmt::format("a plan has tokens outside the vocabulary of {}", vocabulary));
  if (batch.positions.size() != batch.tokens.size()) return Status::invalid("a plan lacks positions of its rows");
  const bool keeps = std::ranges::any_of(plan.draws, &Draw::keeps);
  for (const Draw& d : plan.draws) {
    TRY(kernels::check(d.sampling));
    if (keeps && !d.keeps && d.sampling.cuts())
      return Status::invalid("a draw cuts something off beside one whose kept tokens are asked for");
    if (d.keeps && (d.mask || !d.bias.empty() || d.sampling.temperature != 1))
      return Status::invalid("a draw whose kept tokens are asked for has a mask, a bias or another temperature than 1");
    for (const TokenBias& bias : d.bias) {
      if (!token_exists(bias.token) || !std::isfinite(bias.add))
        return Status::invalid(fmt::format("a draw adds {} to token {}", bias.add, bias.token));
    }
  }
  const int rows = static_cast<int>(batch.tokens.size());
  const auto has = [&](int row) { return row >= 0 && row < rows; };
  int next = 0;
  for (const Batch::Run& run : batch.runs) {
    if (run.row != next || run.rows < 1 || run.position < 0 || run.position + run.rows > max_positions ||
        run.first_page < 0 || run.pages < 0 || static_cast<size_t>(run.first_page + run.pages) > batch.pages.size() ||
        int64_t{run.pages} * kernels::kPageTokens < run.position + run.rows)
      return Status::invalid("the runs of a plan do not cover its rows, or lack pages");
    if (run.adapter != 0 && !adapters.contains(run.adapter))
      return Status::invalid(fmt::format("a plan names adapter {}, which is not attached", run.adapter));
    next += run.rows;
  }
  if (next != rows || rows == 0) return Status::invalid("the runs of a plan do not cover its rows");
  TRY(check_pages(batch.pages, pages));
  const bool sorted = std::ranges::is_sorted(plan.picks, {}, &kernels::TokenPick::row);
  const bool fits = std::ranges::all_of(plan.draws, has, &Draw::row) && std::ranges::all_of(plan.likeliest, has) &&
                    std::ranges::all_of(plan.picks, has, &kernels::TokenPick::row) &&
                    std::ranges::all_of(plan.tops, has, &Plan::Tops::row) &&
                    std::ranges::all_of(plan.later, has, &Plan::Later::row);
  return fits && sorted ? Status() : Status::invalid("a plan asks for rows that it has not, or not in their order");
}

}  // namespace tandem::model
