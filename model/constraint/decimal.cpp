#include "model/constraint/decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "model/constraint/pattern.h"

namespace tandem::model::constraint {

namespace {

constexpr int kMaxDecimalDigits = 15;

// A bound on a magnitude: the sign is gone.
struct Limit {
  std::string digits, fraction;
  bool exclusive = false;
};

struct Magnitudes {
  std::optional<Limit> least, most;
  bool none = false;
};

Limit limit_of(const Bound& bound) { return {bound.digits, bound.fraction, bound.exclusive}; }

bool is_zero(const Bound& bound) { return bound.digits == "0" && bound.fraction.empty(); }

// What the bounds leave of the numbers with this sign.
Magnitudes magnitudes(const NumberRules& rules, bool negative) {
  const auto& far = negative ? rules.least : rules.most;
  const auto& near = negative ? rules.most : rules.least;
  Magnitudes out;
  if (far) {
    if (far->negative != negative && !is_zero(*far)) return {.none = true};
    out.most = limit_of(*far);
  }
  if (near && (near->negative == negative || is_zero(*near))) out.least = limit_of(*near);
  return out;
}

// Where a magnitude stands beside a limit after the digits so far: as a prefix of the same length below, equal or
// above. Once the integer part has ended, it is a comparison of values.
enum class Side : uint8_t { kBelow, kEqual, kAbove };

Side compare_digit(Side so_far, const std::string& digits, size_t at, char digit) {
  if (so_far != Side::kEqual) return so_far;
  const char other = at < digits.size() ? digits[at] : '0';
  return digit < other ? Side::kBelow : digit > other ? Side::kAbove : Side::kEqual;
}

Side side_of_integer(Side prefix, size_t length, const std::string& digits) {
  return length < digits.size() ? Side::kBelow : length > digits.size() ? Side::kAbove : prefix;
}

class Builder {
 public:
  explicit Builder(const NumberRules& rules) : rules_(rules) {
    for (const bool negative : {false, true}) sides_[negative] = magnitudes(rules, negative);
  }

  Result<Dfa> run() {
    // Classes: '-', '.', '0' .. '9', and what lies between and around.
    const std::vector<char32_t> starts = {0, '-', '.', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':'};
    number_of({});
    std::vector<int32_t> next;
    std::vector<bool> accepting;
    for (size_t at = 0; at < open_.size(); ++at) {
      if (open_.size() * starts.size() > Dfa::kMaxEntries)
        return fail(Status::exhausted("the bounds of a number and multipleOf take too large an automaton"));
      const State state = open_[at];
      accepting.push_back(accepts(state));
      for (const char32_t c : starts) {
        const auto to = follow(state, c);
        next.push_back(to ? number_of(*to) : Dfa::kDead);
      }
    }
    return Dfa(starts, std::move(next), std::move(accepting));
  }

 private:
  enum Phase : uint8_t { kStart, kSign, kZero, kDigits, kPoint, kFraction };
  using StateKey = std::tuple<Phase, bool, uint16_t, uint16_t, Side, Side, uint32_t>;
  struct State {
    Phase phase = kStart;
    bool negative = false;
    uint16_t digits = 0;    // before the point
    uint16_t fraction = 0;  // behind it
    Side least = Side::kEqual, most = Side::kEqual;
    uint32_t remainder = 0;
    StateKey key() const { return {phase, negative, digits, fraction, least, most, remainder}; }
  };

  int32_t number_of(const State& state) {
    const auto [found, fresh] = numbers_.try_emplace(state.key(), static_cast<int32_t>(open_.size()));
    if (fresh) open_.push_back(state);
    return found->second;
  }

  std::optional<State> follow(State state, char32_t c) const {
    if (c == '-' && state.phase == kStart) {
      state.phase = kSign;
      state.negative = true;
      return state;
    }
    if (c == '.') {
      if (rules_.integer || (state.phase != kZero && state.phase != kDigits)) return std::nullopt;
      const Magnitudes& side = sides_[state.negative];
      if (side.least) state.least = side_of_integer(state.least, state.digits, side.least->digits);
      if (side.most) state.most = side_of_integer(state.most, state.digits, side.most->digits);
      state.phase = kPoint;
      return state;
    }
    if (c < '0' || c > '9' || state.phase == kZero) return std::nullopt;
    const Magnitudes& side = sides_[state.negative];
    if (side.none) return std::nullopt;
    const char digit = static_cast<char>(c);
    if (state.phase == kPoint || state.phase == kFraction) {
      if (state.digits + state.fraction >= kMaxDecimalDigits) return std::nullopt;
      if (side.least) state.least = compare_digit(state.least, side.least->fraction, state.fraction, digit);
      if (side.most) state.most = compare_digit(state.most, side.most->fraction, state.fraction, digit);
      ++state.fraction;
      state.phase = kFraction;
      return state;
    }
    if (side.least) state.least = compare_digit(state.least, side.least->digits, state.digits, digit);
    if (side.most) state.most = compare_digit(state.most, side.most->digits, state.digits, digit);
    state.phase = digit == '0' && state.phase != kDigits ? kZero : kDigits;
    // Multiples only while every whole number is a double of its own.
    if (state.digits >= (rules_.multiple_of > 1 ? kMaxDecimalDigits : kMaxDigits)) return std::nullopt;
    ++state.digits;
    if (rules_.multiple_of > 1)
      state.remainder = static_cast<uint32_t>((uint64_t{state.remainder} * 10 + (digit - '0')) % rules_.multiple_of);
    return state;
  }

  bool accepts(State state) const {
    if (state.phase != kZero && state.phase != kDigits && state.phase != kFraction) return false;
    if (state.remainder != 0) return false;
    const Magnitudes& side = sides_[state.negative];
    const auto within = [&](Side at, const std::optional<Limit>& limit, Side inside) {
      if (!limit) return true;
      if (state.phase != kFraction) at = side_of_integer(at, state.digits, limit->digits);
      // What is left of the limit's fraction is above 0.
      if (at == Side::kEqual && state.fraction < limit->fraction.size()) at = Side::kBelow;
      return at == inside || (at == Side::kEqual && !limit->exclusive);
    };
    return within(state.least, side.least, Side::kAbove) && within(state.most, side.most, Side::kBelow);
  }

  const NumberRules& rules_;
  std::array<Magnitudes, 2> sides_;
  std::map<StateKey, int32_t> numbers_;
  std::vector<State> open_;
};

}  // namespace

Result<Bound> Bound::of(const Json& number, bool exclusive) {
  std::string text = number.dump();
  Bound bound{.exclusive = exclusive};
  if (text.starts_with('-')) {
    bound.negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const size_t at = text.find_first_of("eE"); at != std::string::npos) {
    exponent = std::stoi(text.substr(at + 1));
    text.resize(at);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  int before = static_cast<int>(point) + exponent;  // digits before the point
  if (before < -kMaxDigits || before > kMaxDigits)
    return fail(Status::invalid(
        fmt::format("{} has more digits than numbers here have, which is {}", number.dump(), kMaxDigits)));
  if (before < 0) {
    digits.insert(0, -before, '0');
    before = 0;
  }
  if (digits.size() < static_cast<size_t>(before)) digits.append(before - digits.size(), '0');
  bound.digits = digits.substr(0, before);
  bound.fraction = digits.substr(before);
  bound.digits.erase(0, std::min(bound.digits.find_first_not_of('0'), bound.digits.size()));
  if (bound.digits.empty()) bound.digits = "0";
  while (bound.fraction.ends_with('0')) bound.fraction.pop_back();
  if (is_zero(bound)) bound.negative = false;
  return bound;
}

int Bound::compare(const Bound& other) const {
  if (negative != other.negative) return negative ? -1 : 1;
  int magnitude = 0;
  if (digits.size() != other.digits.size())
    magnitude = digits.size() < other.digits.size() ? -1 : 1;
  else if (const int c = digits.compare(other.digits); c != 0)
    magnitude = c;
  else
    magnitude = fraction.compare(other.fraction);  // no trailing zeros
  return negative ? -magnitude : magnitude;
}

void NumberRules::at_least(const Bound& bound) {
  const int c = least ? bound.compare(*least) : 1;
  if (c > 0 || (c == 0 && bound.exclusive)) least = bound;
}

void NumberRules::at_most(const Bound& bound) {
  const int c = most ? bound.compare(*most) : -1;
  if (c < 0 || (c == 0 && bound.exclusive)) most = bound;
}

Result<Dfa> compile_number(const NumberRules& rules) {
  if (!rules.integer && !rules.least && !rules.most)
    return compile_pattern(R"(^-?(0|[1-9][0-9]{0,199})(\.[0-9]+)?([eE](\+?[0-9]{1,2}|-[0-9]{1,3}))?$)");
  return Builder(rules).run();
}

}  // namespace tandem::model::constraint
