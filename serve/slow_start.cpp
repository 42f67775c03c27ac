#include "serve/slow_start.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "serve/api_error.h"

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

// Times the usual: above the first it does not grow, above the second it shrinks.
constexpr double kSlower = 2, kMuchSlower = 4;
constexpr uint64_t kPlaces = 0x736c6f77;  // a seed of its own: no other hash of names follows from it

}  // namespace

SlowStart::SlowStart(const SlowStartSettings& settings)
    : settings_(settings), limit_(settings.first), over_(settings.first == 0 || settings.first >= settings.whole) {}

void SlowStart::begin(Time now) { began_ = stepped_ = now; }

double SlowStart::place_of(std::string_view user) { return uniform_at(derive_seed(kPlaces, user), 0); }

double SlowStart::share() const { return over_ ? 1 : static_cast<double>(limit_) / settings_.whole; }

std::optional<SlowStart::Refusal> SlowStart::ask(std::string_view user, size_t under_way, Time now) {
  if (over_) return std::nullopt;
  const bool is_of_share = place_of(user) < share();
  if (is_of_share && under_way < static_cast<size_t>(limit_)) return std::nullopt;
  ++refused_;
  const Duration left = settings_.step - (now - stepped_);
  return Refusal{.retry_after = std::max<Duration>(1s, left),
                 .says = is_of_share ? "the server has just come up and takes on few requests at once"
                                     : "the server has just come up and takes on some users first"};
}

void SlowStart::tick(uint64_t begun, double begun_seconds, size_t under_way, Time now) {
  if (over_) return;
  if (now - began_ >= kLongest) {
    over_ = true;
    return;
  }
  if (now - stepped_ < settings_.step) return;
  // Those of a version that was let go count no more.
  if (begun < begun_ || begun_seconds < begun_seconds_) {
    begun_ = begun;
    begun_seconds_ = begun_seconds;
  }
  const uint64_t answers = begun - begun_;
  // Nothing is known while what is under way has yet to begin.
  if (answers == 0 && under_way > 0) return;
  if (answers > 0) {
    const double seconds = (begun_seconds - begun_seconds_) / static_cast<double>(answers);
    if (usual_ && seconds > kMuchSlower * *usual_) {
      limit_ = std::max(settings_.first, limit_ / 2);
    } else if (!usual_ || seconds <= kSlower * *usual_) {
      limit_ *= 2;
    }
    usual_ = std::min(seconds, usual_.value_or(seconds));
  } else {
    limit_ *= 2;
  }
  begun_ = begun;
  begun_seconds_ = begun_seconds;
  stepped_ = now;
  over_ = limit_ >= settings_.whole;
}

wire::HttpResponse refusal_of(const SlowStart::Refusal& refusal) {
  auto response = error_response(503, refusal.says + "; try again later");
  response.headers.emplace_back(
      "Retry-After", fmt::format("{}", std::chrono::ceil<std::chrono::seconds>(refusal.retry_after).count()));
  return response;
}

std::string prometheus_text(const SlowStart& start) {
  return fmt::format(
      "# HELP tandem_admission_share Users whose requests are taken on: 1 but for a slow start.\n"
      "# TYPE tandem_admission_share gauge\ntandem_admission_share {}\n"
      "# HELP tandem_slow_start_refused_total Requests that the slow start has refused.\n"
      "# TYPE tandem_slow_start_refused_total counter\ntandem_slow_start_refused_total {}\n",
      start.share(), start.refused());
}

}  // namespace tandem::serve
