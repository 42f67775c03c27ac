// Which experts of a mixture the tokens went to: from the answers of passes beside the pages, and with the tokens out.
#include <fmt/format.h>

#include "kernels/attention.h"
#include "rollout/engine/engine.h"

namespace tandem::rollout {

using kernels::kPageTokens;

// What is found may be of a pass that is not collected yet: all is moved when the pass after it is.
void Engine::find_routes(SequenceId id, const Sequence& sequence, int count, int copied) {
  if (copied >= 0) route_moves_.push_back({.from = copied, .to = sequence.pages.back()});
  if (count > 0) route_moves_.push_back({.of = {id, sequence.turn_number}, .pages = sequence.pages, .count = count});
}

Status Engine::take_routes(const Pass& pass, const model::Answer& answer) {
  const size_t width = route_pages_->shape().row_bytes();
  if (answer.routes.size() != static_cast<size_t>(pass.rows) * width)
    return Status::internal(fmt::format("a pass of {} rows has {} bytes of routes, expected {}", pass.rows,
                                        answer.routes.size(), static_cast<size_t>(pass.rows) * width));
  for (const Pass::RouteMove& move : pass.route_moves) {
    if (move.from >= 0) route_pages_->copy(move.from, move.to);
    for (int at = 0; at < move.count; ++at)
      keep_route(move.of, at, route_pages_->row(move.pages[static_cast<size_t>(at / kPageTokens)], at % kPageTokens));
  }
  size_t row = 0;
  for (const Pass::Part& part : pass.parts) {
    for (int at = part.first; at < part.first + part.rows; ++at, ++row) {
      const auto route = std::span(answer.routes).subspan(row * width, width);
      const auto page = static_cast<size_t>(at / kPageTokens - part.first / kPageTokens);
      route_pages_->write(part.pages[page], at % kPageTokens, route);
      keep_route(part.of, at, route);
    }
  }
  return {};
}

// A place may be computed for a turn that is over by now: the next one goes on from it.
void Engine::keep_route(const Pass::Of& of, int place, std::span<const uint8_t> row) {
  const auto found = sequences_.find(of.sequence);
  if (found == sequences_.end() || of.turn_number < found->second.first_turn) return;
  Sequence& s = found->second;
  if (place < s.routes_told) return;
  const size_t at = static_cast<size_t>(place - s.routes_told) * row.size();
  if (s.routes.size() < at + row.size()) s.routes.resize(at + row.size());
  std::ranges::copy(row, s.routes.begin() + static_cast<ptrdiff_t>(at));
}

Status Engine::tell_routes(Sequence& s, SampledToken& token) const {
  const int places = static_cast<int>(s.tokens.size());
  const auto bytes =
      static_cast<ptrdiff_t>(static_cast<size_t>(places - s.routes_told) * route_pages_->shape().row_bytes());
  if (static_cast<ptrdiff_t>(s.routes.size()) < bytes)
    return Status::internal(fmt::format("places {} to {} of sequence {} were sampled from and have no routes",
                                        s.routes_told, places, token.sequence));
  token.routes_from = s.routes_told;
  token.routes.assign(s.routes.begin(), s.routes.begin() + bytes);
  s.routes.erase(s.routes.begin(), s.routes.begin() + bytes);
  s.routes_told = places;
  return {};
}

}  // namespace tandem::rollout
