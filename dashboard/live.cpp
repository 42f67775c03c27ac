#include "dashboard/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "dashboard/run_files.h"

namespace tandem::dashboard {

namespace {

constexpr size_t kRateWindow = 8;  // steps over which rates are taken

struct Facts {
  std::string phase;
  double step = 0, steps = 0;
  std::optional<double> seconds_left, tokens_per_second, tokens, lag, logprob_difference, entropy;
  std::optional<double> before, after, success;
  std::optional<double> measured;  // held-out success while training, after this step
  double measured_step = 0;
  std::optional<double> engine, env, trainer, steals;
  std::optional<double> calls;  // of tools that run at once, on average
  std::vector<double> successes;
  std::vector<std::pair<std::string, double>> states;
  std::vector<std::string> troubles;  // roles that are lost or silent
};

const Json& at(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

// Sum over the roles of a line or a status; `metrics` of a status lie one deeper.
double role_sum(const Json& roles, const char* key) {
  double sum = 0;
  if (!roles.is_object()) return sum;
  for (const auto& [name, role] : roles.items())
    sum += number_at(role.contains("metrics") ? at(role, "metrics") : role, key);
  return sum;
}

void read_history(const Json& history, Facts& facts) {
  if (!history.is_array() || history.empty()) return;
  for (const Json& line : history) {
    if (const auto success = maybe_number_at(line, "success")) facts.successes.push_back(*success);
  }
  const Json& last = history.back();
  const Json& first = history[history.size() > kRateWindow ? history.size() - 1 - kRateWindow : 0];
  const double seconds = number_at(last, "time") - number_at(first, "time");
  const double steps = number_at(last, "step") - number_at(first, "step");
  if (seconds <= 0) return;
  if (steps > 0 && facts.steps > facts.step) facts.seconds_left = (facts.steps - facts.step) * seconds / steps;
  const double tokens = role_sum(at(last, "roles"), "sampled_tokens") - role_sum(at(first, "roles"), "sampled_tokens");
  if (tokens > 0) facts.tokens_per_second = tokens / seconds;  // negative after a restart: then nothing is said
  const auto busy = [](const Json& line) {
    return role_sum(at(line, "roles"), "forward_seconds") + role_sum(at(line, "roles"), "sample_seconds");
  };
  const double worked = busy(last) - busy(first);
  const double idle = role_sum(at(last, "roles"), "idle_seconds") - role_sum(at(first, "roles"), "idle_seconds");
  if (worked > 0 && idle >= 0) facts.engine = worked / (worked + idle);
  const double calls = role_sum(at(last, "roles"), "busy_seconds") - role_sum(at(first, "roles"), "busy_seconds");
  if (calls > 0) facts.calls = calls / seconds;
  const double rested =
      number_at(at(last, "trainer"), "idle_seconds") - number_at(at(first, "trainer"), "idle_seconds");
  if (last.contains("trainer") && rested >= 0) facts.trainer = std::clamp(1 - rested / seconds, 0.0, 1.0);
}

Facts facts_of(const Json& status, const Json& history) {
  Facts facts;
  facts.phase = at(status, "phase").is_string() ? status["phase"].get<std::string>() : "starting";
  if (at(status, "finishing").is_boolean() && status["finishing"].get<bool>()) facts.phase = "finishing";
  facts.step = number_at(status, "step");
  facts.steps = number_at(status, "steps");
  read_history(history, facts);
  const Json& last = at(status, "last_step");
  facts.success = maybe_number_at(last, "success");
  if (!facts.success && !facts.successes.empty()) facts.success = facts.successes.back();
  facts.logprob_difference = maybe_number_at(last, "max_abs_logprob_diff");
  facts.entropy = maybe_number_at(last, "entropy");
  const Json& heldout = at(status, "heldout");
  facts.before = maybe_number_at(heldout, "before");
  facts.after = maybe_number_at(heldout, "after");
  const Json& measured = at(status, "measured");
  facts.measured = maybe_number_at(measured, "success");
  facts.measured_step = number_at(measured, "step");

  const Json& roles = at(status, "roles");
  double slowest = facts.step;
  bool engines = false;
  if (roles.is_object()) {
    for (const auto& [name, role] : roles.items()) {
      if (at(role, "lost").is_boolean() && role["lost"].get<bool>())
        facts.troubles.push_back(name + " is lost");
      else if (number_at(role, "silent") > 3)
        facts.troubles.push_back(fmt::format("{} silent for {:.0f} s", name, number_at(role, "silent")));
      if (const auto version = maybe_number_at(at(role, "metrics"), "version");
          version && at(role, "role") == "rollout") {
        slowest = engines ? std::min(slowest, *version) : *version;
        engines = true;
      }
    }
    if (const double tokens = role_sum(roles, "sampled_tokens"); tokens > 0) facts.tokens = tokens;
  }
  if (engines) facts.lag = std::max(0.0, facts.step - slowest);
  if (const Json& failures = at(status, "failures"); failures.is_array() && !failures.empty()) {
    const Json& worst = at(failures[0], "reason");
    facts.troubles.push_back(fmt::format("{:.0f} attempts without a reward: {}", number_at(failures[0], "count"),
                                         worst.is_string() ? worst.get<std::string>() : ""));
  }
  if (const Json& alarms = at(last, "alarms"); alarms.is_array()) {
    for (const Json& alarm : alarms) {
      const Json& name = at(alarm, "name");
      if (name.is_string()) facts.troubles.push_back("alarm " + name.get<std::string>());
    }
  }
  const Json& use = at(status, "utilisation");
  if (const auto engine = maybe_number_at(use, "engine")) facts.engine = engine;
  facts.env = maybe_number_at(use, "env");
  if (const auto trainer = maybe_number_at(use, "trainer")) facts.trainer = trainer;
  facts.steals = maybe_number_at(status, "steals");
  if (!facts.steals && engines) facts.steals = role_sum(roles, "steals");
  const Json& states = at(at(status, "episodes"), "states");
  for (const char* state : {"queued", "leased", "committed", "batched", "trained", "dropped"}) {
    if (const auto count = maybe_number_at(states, state); count && *count > 0)
      facts.states.emplace_back(state, *count);
  }
  return facts;
}

std::string percent(double share) { return fmt::format("{:.0f} %", share * 100); }
std::string phase_text(const Facts& facts) {
  if (facts.phase == "before") return "measuring held-out tasks before training";
  if (facts.phase == "after") return "measuring held-out tasks after training";
  if (facts.phase == "train") return "training";
  return facts.phase;
}

std::string bar(double share, int width) {
  static constexpr std::array<const char*, 9> kParts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  const int eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * width * 8));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  int drawn = eighths / 8;
  if (eighths % 8 != 0) {
    text += kParts[eighths % 8];
    ++drawn;
  }
  for (; drawn < width; ++drawn) text += "·";
  return text;
}

// Columns of a text whose characters are all one column wide.
size_t columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

std::string cut(std::string_view text, size_t width) {
  if (columns(text) <= width) return std::string(text);
  size_t seen = 0, end = 0;
  for (; end < text.size(); ++end) {
    if ((static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) continue;
    if (seen++ == width - 1) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

// A label, then parts, as many lines as they take.
void put_row(std::string& out, std::string_view label, const std::vector<std::string>& parts, size_t width) {
  constexpr size_t kLabel = 10;
  if (parts.empty()) return;
  std::string line = fmt::format("{:<{}}", label, kLabel);
  bool first = true;
  for (const std::string& part : parts) {
    if (!first && columns(line) + 2 + columns(part) > width) {
      out += cut(line, width) + "\n";
      line = std::string(kLabel, ' ');
      first = true;
    }
    line += (first ? "" : "  ") + part;
    first = false;
  }
  out += cut(line, width) + "\n";
}

std::vector<std::string> use_parts(const Facts& facts) {
  std::vector<std::string> parts;
  if (facts.engine) parts.push_back("engines " + percent(*facts.engine));
  if (facts.env)
    parts.push_back("tools " + percent(*facts.env));
  else if (facts.calls)
    parts.push_back(fmt::format("tools {:.1f} at once", *facts.calls));
  if (facts.trainer) parts.push_back("trainer " + percent(*facts.trainer));
  return parts;
}

std::vector<std::string> number_parts(const Facts& facts) {
  std::vector<std::string> parts;
  if (facts.tokens_per_second)
    parts.push_back(fmt::format("{:.0f} tokens/s", *facts.tokens_per_second));
  else if (facts.tokens)
    parts.push_back(fmt::format("{:.0f} tokens", *facts.tokens));
  if (facts.lag) parts.push_back(fmt::format("engines {:.0f} behind", *facts.lag));
  if (facts.steals) parts.push_back(fmt::format("steals {:.0f}", *facts.steals));
  if (facts.logprob_difference) parts.push_back(fmt::format("logprob difference {:g}", *facts.logprob_difference));
  return parts;
}

std::vector<std::string> state_parts(const Facts& facts) {
  std::vector<std::string> parts;
  for (const auto& [state, count] : facts.states) parts.push_back(fmt::format("{:.0f} {}", count, state));
  return parts;
}

}  // namespace

std::string sparkline(std::span<const double> values, size_t width, double low, double high) {
  static constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.size() > width) values = values.last(width);
  std::string line;
  for (const double value : values) {
    const double share = high > low && std::isfinite(value) ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0;
    line += kBlocks[std::min<size_t>(7, static_cast<size_t>(share * 8))];
  }
  return line;
}

std::string render_live(const Json& status, const Json& history, int columns_wanted) {
  const auto width = static_cast<size_t>(std::max(columns_wanted, 40));
  const Facts facts = facts_of(status, history);
  std::string out;
  std::string count = fmt::format("step {:.0f}/{:.0f}", facts.step, facts.steps);
  if (facts.seconds_left) count += fmt::format(", {} left", format_seconds(std::round(*facts.seconds_left)));
  const int room = static_cast<int>(std::min<size_t>(40, width - std::min(width - 8, columns(count) + 12)));
  put_row(out, "run", {phase_text(facts)}, width);
  put_row(out, "", {bar(facts.steps > 0 ? facts.step / facts.steps : 0, std::max(room, 8)) + "  " + count}, width);
  if (facts.success) {
    const size_t spark = width > 30 ? std::min<size_t>(60, width - 20) : 10;
    put_row(out, "training",
            {fmt::format("{:>5}  {}", percent(*facts.success), sparkline(facts.successes, spark, 0, 1))}, width);
  }
  std::vector<std::string> heldout;
  if (facts.before) heldout.push_back("before " + percent(*facts.before));
  if (facts.measured && !facts.after)
    heldout.push_back(fmt::format("step {:.0f} {}", facts.measured_step, percent(*facts.measured)));
  if (facts.after) heldout.push_back("after " + percent(*facts.after));
  if (facts.before && facts.after)
    heldout.push_back(fmt::format("{:+.0f} points", (*facts.after - *facts.before) * 100));
  put_row(out, "held-out", heldout, width);
  put_row(out, "episodes", state_parts(facts), width);
  put_row(out, "busy", use_parts(facts), width);
  put_row(out, "numbers", number_parts(facts), width);
  put_row(out, "trouble", facts.troubles, width);
  return out;
}

std::string plain_line(const Json& status, const Json& history) {
  const Facts facts = facts_of(status, history);
  std::vector<std::string> parts = {fmt::format("{} step {:.0f}/{:.0f}", facts.phase, facts.step, facts.steps)};
  if (facts.seconds_left) parts.push_back(format_seconds(std::round(*facts.seconds_left)) + " left");
  if (facts.success) parts.push_back("training " + percent(*facts.success));
  if (facts.before) parts.push_back("held-out before " + percent(*facts.before));
  if (facts.after) parts.push_back("held-out after " + percent(*facts.after));
  if (!facts.states.empty()) parts.push_back("episodes " + join(state_parts(facts), " "));
  for (auto& part : use_parts(facts)) parts.push_back(std::move(part));
  for (auto& part : number_parts(facts)) parts.push_back(std::move(part));
  for (const auto& trouble : facts.troubles) parts.push_back(trouble);
  return join(parts, ", ");
}

}  // namespace tandem::dashboard
