#include "weights_sync/upstream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::weights_sync {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstLeft = 15s, kAway = 1s;
constexpr int kMostTimesDoubled = 5;  // 8 minutes
constexpr int kMostRefused = 4;       // chunks in a row

}  // namespace

Upstream::Source Upstream::step(const Event& event, Time now) {
  std::visit([&](const auto& which) { on(which, now); }, event);
  return source();
}

void Upstream::on(const Asked&, Time now) {
  if (!unanswered_since_) unanswered_since_ = now;
}

void Upstream::on(const Heard& heard, Time now) {
  unanswered_since_.reset();
  if (!heard.is_receiving) return;
  unanswered_since_ = now;
  if (behind_since_) behind_since_ = now;  // it is on its way
}

void Upstream::on(const Known& known, Time now) {
  known_ = std::max(known_, known.version);
  if (known_ > held_ && !behind_since_) behind_since_ = now;
}

void Upstream::on(const Turn& turn, Time now) {
  const bool was_away = !last_turn_ || now - *last_turn_ > kAway;
  last_turn_ = now;
  if (turn.held > held_) {
    held_ = turn.held;
    if (source() == Source::kRelay) failures_ = 0;
    if (behind_since_) behind_since_ = now;
  }
  if (known_ <= held_) behind_since_.reset();
  if (was_away || turn.is_busy) {
    if (unanswered_since_) unanswered_since_ = now;
    if (behind_since_) behind_since_ = now;
  }
  const bool has_refused = std::exchange(refused_versions_, turn.refused_versions) < turn.refused_versions;
  if (left_until_) {
    if (now < *left_until_ || turn.is_receiving || turn.is_busy) return;
    left_until_.reset();
    unanswered_since_.reset();
    if (behind_since_) behind_since_ = now;
    return;
  }
  if (has_refused) return leave("a version of it was refused", now);
  if (turn.refused_in_a_row >= kMostRefused)
    return leave(fmt::format("{} chunks in a row were damaged", turn.refused_in_a_row), now);
  if (unanswered_since_ && now - *unanswered_since_ > patience_)
    return leave(fmt::format("it has not answered for {:.1f} s", to_seconds(now - *unanswered_since_)), now);
  if (behind_since_ && now - *behind_since_ > patience_)
    return leave(fmt::format("it has not had version {} for {:.1f} s", known_, to_seconds(now - *behind_since_)), now);
}

void Upstream::leave(std::string why, Time now) {
  why_ = std::move(why);
  ++given_up_;
  left_until_ = now + kFirstLeft * (1 << std::min(failures_++, kMostTimesDoubled));
  unanswered_since_.reset();
}

}  // namespace tandem::weights_sync
