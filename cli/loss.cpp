// `tandem loss`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/command.h"
#include "cli/json_lines.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/batch_loss.h"
#include "trainer/torch/function_loader.h"

namespace tandem::cli {
namespace {

constexpr std::array<std::string_view, 16> kKeys = {"algorithm",        "logprobs", "old_logprobs", "rollout_logprobs",
                                                    "ref_logprobs",     "values",   "mask",         "advantages",
                                                    "rewards",          "groups",   "anchors",      "step",
                                                    "teacher_logprobs", "trunks",   "metrics",      "segments"};
constexpr size_t kMaxTokens = size_t{1} << 26;

// Whole numbers of JSON go up to 2^64: the upper half would be taken for negative ones.
Result<int64_t> whole_number(const Json& item, const auto& place) {
  if (!item.is_number_integer() || (item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX))
    return fail(Status::invalid(fmt::format("{} is {}, not a whole number below 2^63", place(), dump_json(item))));
  return item.get<int64_t>();
}

// The lists of one line, read against the shape that `logprobs` has.
class BatchReader {
 public:
  explicit BatchReader(const Json& line) : line_(line) {}

  Result<trainer::LossBatch> read() {
    TRY(read_shape());
    batch_.logprobs = TRY(matrix("logprobs"));
    batch_.old_logprobs = TRY(matrix("old_logprobs"));
    batch_.rollout_logprobs = TRY(matrix("rollout_logprobs"));
    batch_.ref_logprobs = TRY(matrix("ref_logprobs"));
    batch_.teacher_logprobs = TRY(matrix("teacher_logprobs"));
    batch_.values = TRY(matrix("values"));
    batch_.advantages = TRY(matrix("advantages"));
    TRY(read_mask());
    TRY(read_segments());
    TRY(read_rewards());
    TRY(read_groups());
    TRY(read_anchors());
    TRY(read_trunks());
    TRY(read_metrics());
    if (!batch_.advantages.empty() && !batch_.rewards.empty())
      return fail(Status::invalid("advantages and rewards are both given; one of them is meant"));
    return std::move(batch_);
  }

 private:
  Status read_shape() {
    const auto found = line_.find("logprobs");
    if (found == line_.end() || !found->is_array()) return Status::invalid("logprobs is not a list of rows");
    batch_.rows = found->size();
    batch_.length = batch_.rows > 0 && found->front().is_array() ? found->front().size() : 0;
    if (batch_.rows * batch_.length == 0) return Status::invalid("logprobs has no tokens");
    if (batch_.rows * batch_.length > kMaxTokens)
      return Status::invalid(fmt::format("logprobs has more than {} tokens", kMaxTokens));
    return {};
  }

  const Json* given(const char* key) const {
    const auto found = line_.find(key);
    return found == line_.end() || found->is_null() ? nullptr : &*found;
  }

  // Sums of squares of what is larger are infinite, and make advantages of 0 out of rewards that differ.
  static Result<double> number_of(const Json& item, const auto& place) {
    constexpr double kLargest = 1e100;
    if (!item.is_number())
      return fail(Status::invalid(fmt::format("{} is {}, not a number", place(), dump_json(item))));
    const auto number = item.get<double>();
    if (std::abs(number) > kLargest)
      return fail(Status::invalid(fmt::format("{} is {}, beyond {}", place(), dump_json(item), kLargest)));
    return number;
  }

  Result<trainer::Rows> matrix(const char* key) const {
    const Json* const list = given(key);
    trainer::Rows values;
    if (list == nullptr) return values;
    if (!list->is_array() || list->size() != batch_.rows)
      return fail(Status::invalid(fmt::format("{} does not have the {} rows of logprobs", key, batch_.rows)));
    values.reserve(batch_.rows * batch_.length);
    for (size_t row = 0; row < batch_.rows; ++row) {
      const Json& items = (*list)[row];
      if (!items.is_array() || items.size() != batch_.length) {
        return fail(
            Status::invalid(fmt::format("{}[{}] does not have {} numbers; pad the rows", key, row, batch_.length)));
      }
      for (size_t i = 0; i < batch_.length; ++i) {
        values.push_back(TRY(number_of(items[i], [&] { return fmt::format("{}[{}][{}]", key, row, i); })));
      }
    }
    return values;
  }

  Status read_mask() {
    batch_.mask.assign(batch_.rows * batch_.length, 1);
    const Json* const list = given("mask");
    if (list == nullptr) return {};
    if (!list->is_array() || list->size() != batch_.rows)
      return Status::invalid(fmt::format("mask does not have the {} rows of logprobs", batch_.rows));
    for (size_t row = 0; row < batch_.rows; ++row) {
      const Json& items = (*list)[row];
      if (!items.is_array() || items.size() != batch_.length)
        return Status::invalid(fmt::format("mask[{}] does not have {} items; pad the rows", row, batch_.length));
      for (size_t i = 0; i < batch_.length; ++i) {
        const Json& item = items[i];
        if (item != 0 && item != 1 && !item.is_boolean())
          return Status::invalid(fmt::format("mask[{}][{}] is {}, neither 0 nor 1", row, i, dump_json(item)));
        batch_.mask[row * batch_.length + i] = item == 1 || item == true;
      }
    }
    return {};
  }

  // Reads for each token the turn that it is of. Without them a row has a turn for each run of tokens that count.
  Status read_segments() {
    const Json* const list = given("segments");
    if (list == nullptr) return {};
    const trainer::Rows numbers = TRY(matrix("segments"));
    int64_t turn = -1;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const size_t row = i / batch_.length, column = i % batch_.length;
      if (column == 0) turn = -1;
      const auto place = [&] { return fmt::format("segments[{}][{}]", row, column); };
      const int64_t value = TRY(whole_number((*list)[row][column], place));
      if (!batch_.mask[i] && value != -1)
        return Status::invalid(fmt::format("{} is {}, and a token that does not count is of turn -1", place(), value));
      if (batch_.mask[i] && value < 0)
        return Status::invalid(fmt::format("{} is {}, and the mask counts that token", place(), value));
      if (batch_.mask[i] && value != turn && value != turn + 1) {
        return Status::invalid(fmt::format("{} is {}, not {}: turns of a row count up from 0", place(), value,
                                           turn < 0 ? std::string("0") : fmt::format("{} or {}", turn, turn + 1)));
      }
      if (batch_.mask[i]) turn = value;
      batch_.turns.push_back(value);
    }
    return {};
  }

  // A number a sequence stands for a reward of its last token that counts.
  Status read_rewards() {
    const Json* const list = given("rewards");
    if (list == nullptr) return {};
    if (!list->is_array() || list->size() != batch_.rows)
      return Status::invalid(fmt::format("rewards does not have an item for each of the {} rows", batch_.rows));
    if (list->front().is_array()) {
      batch_.rewards = TRY(matrix("rewards"));
      return {};
    }
    batch_.rewards.assign(batch_.rows * batch_.length, 0);
    for (size_t row = 0; row < batch_.rows; ++row) {
      const double reward = TRY(number_of((*list)[row], [&] { return fmt::format("rewards[{}]", row); }));
      for (size_t i = (row + 1) * batch_.length; i-- > row * batch_.length;) {
        if (!batch_.mask[i]) continue;
        batch_.rewards[i] = reward;
        break;
      }
    }
    return {};
  }

  Status read_groups() {
    const Json* const list = given("groups");
    if (list == nullptr) return {};
    if (!list->is_array() || list->size() != batch_.rows)
      return Status::invalid(fmt::format("groups does not have an item for each of the {} rows", batch_.rows));
    for (const Json& item : *list) {
      const auto place = [&] { return fmt::format("groups[{}]", batch_.groups.size()); };
      batch_.groups.push_back(TRY(whole_number(item, place)));
    }
    return {};
  }

  // Reads for each row the state before each of its turns.
  Status read_anchors() {
    const Json* const list = given("anchors");
    if (list == nullptr) return {};
    if (!list->is_array() || list->size() != batch_.rows)
      return Status::invalid(fmt::format("anchors does not have an item for each of the {} rows", batch_.rows));
    for (size_t row = 0; row < batch_.rows; ++row) {
      const Json& items = (*list)[row];
      if (!items.is_array())
        return Status::invalid(fmt::format("anchors[{}] is {}, not a list of whole numbers", row, dump_json(items)));
      auto& anchors = batch_.anchors.emplace_back();
      for (const Json& item : items) {
        const auto place = [&] { return fmt::format("anchors[{}][{}]", row, anchors.size()); };
        anchors.push_back(TRY(whole_number(item, place)));
      }
    }
    return {};
  }

  // Reads for each row the number of its trunk, and how many of its counted tokens belong to it; null: it has none.
  Status read_trunks() {
    const Json* const list = given("trunks");
    if (list == nullptr) return {};
    if (!list->is_array() || list->size() != batch_.rows)
      return Status::invalid(fmt::format("trunks does not have an item for each of the {} rows", batch_.rows));
    for (size_t row = 0; row < batch_.rows; ++row) {
      const Json& item = (*list)[row];
      batch_.trunks.emplace_back();
      if (item.is_null()) continue;
      if (!item.is_array() || item.size() != 2 || !item[0].is_number_unsigned() || !item[1].is_number_unsigned() ||
          item[0].get<uint64_t>() > INT64_MAX) {
        return Status::invalid(fmt::format("trunks[{}] is {}, not the number of a trunk and how many tokens it has",
                                           row, dump_json(item)));
      }
      batch_.trunks.back() = {.number = item[0].get<int64_t>(), .tokens = item[1].get<size_t>()};
    }
    return {};
  }

  // Reads for each name a number of each row's episode; null: it has none.
  Status read_metrics() {
    const Json* const metrics = given("metrics");
    if (metrics == nullptr) return {};
    if (!metrics->is_object()) return Status::invalid("metrics is not an object of lists");
    for (const auto& [name, list] : metrics->items()) {
      if (!list.is_array() || list.size() != batch_.rows)
        return Status::invalid(
            fmt::format("metrics.{} does not have a number for each of the {} rows", name, batch_.rows));
      auto& values = batch_.metrics[name];
      for (const Json& item : list) {
        const auto place = [&, of = std::string_view(name)] {
          return fmt::format("metrics.{}[{}]", of, values.size());
        };
        values.push_back(item.is_null() ? std::nan("") : TRY(number_of(item, place)));
      }
    }
    return {};
  }

  const Json& line_;
  trainer::LossBatch batch_;
};

Json rows_of(const trainer::Rows& values, size_t length) {
  Json rows = Json::array();
  for (size_t begin = 0; begin < values.size(); begin += length) {
    rows.push_back(std::vector<double>(values.begin() + static_cast<long>(begin),
                                       values.begin() + static_cast<long>(begin + length)));
  }
  return rows;
}

// What is not finite has no place in JSON, and would leave no weights behind.
Status check_finite(const char* what, const trainer::Rows& values, size_t length) {
  const auto found = std::ranges::find_if_not(values, [](double value) { return std::isfinite(value); });
  if (found == values.end()) return {};
  const auto at = static_cast<size_t>(found - values.begin());
  return Status::invalid(fmt::format("{}[{}][{}] of these numbers is not finite", what, at / length, at % length));
}

// Functions of the user's own that lines have asked for; a line mostly asks for those of the line before.
class LastFunctions {
 public:
  Result<trainer::OwnFunctions> of(const trainer::Algorithm& algorithm) {
    if (algorithm.torch != loss_ || algorithm.own_advantages != advantages_) {
      functions_ = TRY(trainer::load_functions(algorithm));
      loss_ = algorithm.torch;
      advantages_ = algorithm.own_advantages;
    }
    return functions_;
  }

 private:
  trainer::TorchSource loss_, advantages_;
  trainer::OwnFunctions functions_;
};

Result<int64_t> step_of(const Json& line) {
  const auto found = line.find("step");
  if (found == line.end() || found->is_null()) return 1;
  const int64_t step = TRY(whole_number(*found, [] { return "step"; }));
  if (step < 1) return fail(Status::invalid(fmt::format("step is {}, and steps count from 1", step)));
  return step;
}

Result<Json> answer(const Json& line, LastFunctions& last) {
  auto algorithm = TRY(trainer::algorithm_from_json(line.value("algorithm", Json::object())));
  const auto batch = TRY(BatchReader(line).read());
  if (!batch.ref_logprobs.empty()) algorithm.torch.reference = algorithm.own_advantages.reference = true;
  const int64_t step = TRY(step_of(line));
  const auto functions = TRY(last.of(algorithm));
  auto result = TRY(trainer::batch_loss(batch, algorithm, functions, step));
  for (const auto& [name, value] : result.function_metrics) {
    if (!result.metrics.emplace(name, value).second)
      return fail(Status::invalid(
          fmt::format("the function's metric \"{}\" has the name of one that is printed anyway: rename it", name)));
  }
  TRY(check_finite("advantages", result.advantages, batch.length));
  TRY(check_finite("grad_logprobs", result.grad_logprobs, batch.length));
  if (!std::isfinite(result.loss)) return fail(Status::invalid("the loss of these numbers is not finite"));
  return Json{{"loss", result.loss},
              {"grad_logprobs", rows_of(result.grad_logprobs, batch.length)},
              {"advantages", rows_of(result.advantages, batch.length)},
              {"metrics", result.metrics}};
}

}  // namespace

Action add_loss(CLI::App& command) {
  auto options = std::make_shared<JsonLinesOptions>();
  options->alone_on_output = true;  // a function may print
  add_json_lines_options(command, *options);
  command.footer(
      "Example:\n"
      "  echo '{\"algorithm\": {\"name\": \"grpo\"}, \"logprobs\": [[-0.5, -1], [-2, -0.1]], \"rewards\": [1, 0], "
      "\"groups\": [0, 0]}' | tandem loss\n"
      "  echo '{\"algorithm\": {\"name\": \"torch\", \"script\": \"examples/losses/grpo.py\", \"options\": "
      "[\"clip_low=0.1\"]}, \"logprobs\": [[-0.5, -1], [-2, -0.1]], \"rewards\": [1, 0], \"groups\": [0, 0]}' | tandem "
      "loss\n"
      "  echo '{\"algorithm\": {\"advantage\": \"distill\"}, \"logprobs\": [[-0.5, -1]], \"teacher_logprobs\": [[-0.1, "
      "-3]]}' "
      "| tandem loss\n"
      "docs/algorithms.md has all keys, docs/custom-loss.md those of a loss of your own.");
  return [options]() -> Result<int> {
    LastFunctions functions;
    return run_json_lines(*options, kKeys, [&](const Json& line) { return answer(line, functions); });
  };
}

}  // namespace tandem::cli
