#include "trainer/team.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstring>

#include "base/json.h"
#include "base/segments.h"
#include "collectives/local.h"
#include "trainer/learn/checkpoints.h"

namespace tandem::trainer {
namespace {

using namespace std::chrono_literals;

constexpr auto kMeetingAttempt = 5s;      // a rank that is asked to stop goes after it
constexpr auto kSaidAgain = 30s;          // that somebody is missing
constexpr uint64_t kMostBytes = 1 << 30;  // of a batch's tokens, times what is said of each

// What goes before the samples.
struct Head {
  uint64_t magic = 0x6f72646572313031;
  uint32_t kind = 0, unused = 0;
  uint64_t version = 0, bytes = 0;
};

Result<std::map<std::string, double>> metrics_from(const std::string& text) {
  const Json json = TRY(parse_json(text));
  std::map<std::string, double> metrics;
  if (!json.is_object()) return fail(Status::corrupt("metrics of another rank's sample are no object"));
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number()) return fail(Status::corrupt("metrics of another rank's sample are no numbers"));
    metrics[name] = value.get<double>();
  }
  return metrics;
}

template <typename T>
void put(std::vector<std::byte>& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <typename T>
  bool get(std::span<T> values) {
    if (left_.size() < values.size_bytes()) return false;
    if (!values.empty()) std::memcpy(values.data(), left_.data(), values.size_bytes());
    left_ = left_.subspan(values.size_bytes());
    return true;
  }
  size_t left() const { return left_.size(); }

 private:
  std::span<const std::byte> left_;
};

struct SampleHead {
  uint64_t tokens = 0, sampled = 0;  // lengths: of tokens and trained, of logprobs and versions
  double advantage = 0;
  uint64_t group = 0, has_group = 0;
  uint64_t turns = 0;  // of turn_rewards
  uint64_t later_segments = 0;
  uint64_t metrics = 0;  // bytes of their JSON; 0: none
  uint64_t part = 0;
  RouteShape routes;             // layers 0: none
  uint32_t kept_vocabulary = 0;  // 0: no kept tokens
  uint64_t kept = 0;             // in all
  uint64_t taught = 0;           // length of teacher_logprobs
  int64_t trunk = -1;
  uint64_t trunk_tokens = 0;
  uint32_t hint_at = 0, hint_replaced = 0;
  uint64_t hint_tokens = 0;  // 0: no hint
};

}  // namespace

Result<Ranks> meet(const TeamSettings& settings, const std::function<bool()>& stop) {
  const auto began = std::chrono::steady_clock::now();
  auto say_next = began + kSaidAgain;
  std::error_code ignored;
  for (;;) {
    if (stop()) return fail(Status::cancelled("asked to stop while ranks of the trainer were missing"));
    // Left by a life of this rank that was killed while it waited.
    fs::remove(settings.folder / fmt::format("rank-{}", settings.rank), ignored);
    auto group = collectives::meet_locally(
        {.folder = settings.folder, .rank = settings.rank, .ranks = settings.ranks, .deadline = kMeetingAttempt});
    if (group) return Ranks(std::move(*group));
    // Others come later, or again; what else is wrong stays wrong.
    const Code code = group.error().code();
    if (code != Code::kDeadline && code != Code::kUnavailable && code != Code::kExists && code != Code::kCorrupt)
      return fail(std::move(group).error());
    if (const auto now = std::chrono::steady_clock::now(); now >= say_next) {
      spdlog::warn("still waiting for the other ranks: {}", group.error().message());
      say_next = now + kSaidAgain;
    }
  }
}

std::vector<std::byte> pack(std::span<const Sample> samples) {
  std::vector<std::byte> bytes;
  for (const Sample& sample : samples) {
    const std::string metrics = sample.metrics.empty() ? "" : dump_json(sample.metrics);
    const SampleHead head{.tokens = sample.tokens.size(),
                          .sampled = sample.logprobs.size(),
                          .advantage = sample.advantage,
                          .group = sample.group.value_or(0),
                          .has_group = sample.group.has_value(),
                          .turns = sample.turn_rewards.size(),
                          .later_segments = sample.later_segments.size(),
                          .metrics = metrics.size(),
                          .part = sample.part,
                          .routes = sample.routes.shape,
                          .kept_vocabulary = sample.kept.vocabulary,
                          .kept = sample.kept.ids.size(),
                          .taught = sample.teacher_logprobs.size(),
                          .trunk = sample.trunk,
                          .trunk_tokens = sample.trunk_tokens,
                          .hint_at = sample.hint.at,
                          .hint_replaced = sample.hint.replaced,
                          .hint_tokens = sample.hint.tokens.size()};
    put(bytes, std::span(&head, 1));
    put(bytes, std::span<const int32_t>(sample.tokens));
    put(bytes, std::span<const uint8_t>(sample.trained));
    put(bytes, std::span<const float>(sample.logprobs));
    put(bytes, std::span<const uint64_t>(sample.versions));
    put(bytes, std::span<const double>(sample.turn_rewards));
    put(bytes, std::span<const uint32_t>(sample.later_segments));
    put(bytes, std::span<const uint8_t>(sample.routes.recorded));
    put(bytes, std::span<const uint8_t>(sample.routes.ids));
    put(bytes, std::span<const uint32_t>(sample.kept.counts));
    put(bytes, std::span<const int32_t>(sample.kept.ids));
    put(bytes, std::span<const float>(sample.teacher_logprobs));
    put(bytes, std::span<const int32_t>(sample.hint.tokens));
    put(bytes, std::span<const char>(metrics));
  }
  return bytes;
}

Result<std::vector<Sample>> unpack(std::span<const std::byte> bytes) {
  std::vector<Sample> samples;
  Reader reader(bytes);
  while (reader.left() > 0) {
    SampleHead head;
    if (!reader.get(std::span(&head, 1)) || head.tokens > reader.left() || head.sampled > reader.left() ||
        head.turns > reader.left() || head.later_segments > reader.left() || head.metrics > reader.left() ||
        head.routes.layers > kMostRouteLayers || head.routes.top_k > kMostRouteTopK ||
        head.tokens * head.routes.row_bytes() > reader.left() || head.kept > reader.left() ||
        head.taught > reader.left() || head.trunk_tokens > head.tokens || head.hint_tokens > kMostHintTokens)
      return fail(Status::corrupt("a sample of another rank is cut short"));
    Sample sample{.advantage = head.advantage, .part = static_cast<uint32_t>(head.part)};
    if (head.has_group != 0) sample.group = head.group;
    sample.trunk = head.trunk;
    sample.trunk_tokens = static_cast<uint32_t>(head.trunk_tokens);
    sample.tokens.resize(head.tokens);
    sample.trained.resize(head.tokens);
    sample.logprobs.resize(head.sampled);
    sample.versions.resize(head.sampled);
    sample.turn_rewards.resize(head.turns);
    sample.later_segments.resize(head.later_segments);
    sample.routes.shape = head.routes;
    sample.routes.resize(head.tokens);
    sample.kept.vocabulary = head.kept_vocabulary;
    sample.kept.resize(head.tokens);
    sample.kept.ids.resize(head.kept);
    sample.teacher_logprobs.resize(head.taught);
    sample.hint = {.at = head.hint_at, .replaced = head.hint_replaced, .tokens = {}};
    sample.hint.tokens.resize(head.hint_tokens);
    std::string metrics(head.metrics, '\0');
    if (!reader.get(std::span(sample.tokens)) || !reader.get(std::span(sample.trained)) ||
        !reader.get(std::span(sample.logprobs)) || !reader.get(std::span(sample.versions)) ||
        !reader.get(std::span(sample.turn_rewards)) || !reader.get(std::span(sample.later_segments)) ||
        !reader.get(std::span(sample.routes.recorded)) || !reader.get(std::span(sample.routes.ids)) ||
        !reader.get(std::span(sample.kept.counts)) || !reader.get(std::span(sample.kept.ids)) ||
        !reader.get(std::span(sample.teacher_logprobs)) || !reader.get(std::span(sample.hint.tokens)) ||
        !reader.get(std::span(metrics)) || !sample.hint.fits(sample.tokens.size()) ||
        !are_parts(sample.later_segments, sample.tokens.size()) || !sample.routes.fits(sample.tokens.size()) ||
        !sample.kept.fits(sample.tokens))
      return fail(Status::corrupt("a sample of another rank is cut short"));
    if (!metrics.empty()) sample.metrics = TRY(metrics_from(metrics));
    samples.push_back(std::move(sample));
  }
  return samples;
}

Status say(Ranks& ranks, const Order& order) {
  if (ranks.count() == 1) return {};
  std::vector<std::byte> bytes = pack(order.samples);
  if (bytes.size() > kMostBytes)
    return Status::exhausted(fmt::format("the samples of a step are {} MiB; ranks tell each other {} at most",
                                         bytes.size() >> 20, kMostBytes >> 20))
        .hint("trainer.groups_per_step makes a batch smaller");
  Head head{.kind = static_cast<uint32_t>(order.kind), .version = order.version, .bytes = bytes.size()};
  TRY(ranks.broadcast(std::as_writable_bytes(std::span(&head, 1))));
  return bytes.empty() ? Status() : ranks.broadcast(bytes);
}

Result<Order> hear(Ranks& ranks) {
  Head head;
  TRY(ranks.broadcast(std::as_writable_bytes(std::span(&head, 1))));
  if (head.magic != Head().magic || head.kind > static_cast<uint32_t>(Order::Kind::kLoad) || head.bytes > kMostBytes)
    return fail(Status::corrupt("what the first rank says is no order of this version"));
  Order order{.kind = static_cast<Order::Kind>(head.kind), .version = head.version};
  if (head.bytes == 0) return order;
  std::vector<std::byte> bytes(head.bytes);
  TRY(ranks.broadcast(bytes));
  order.samples = TRY(unpack(bytes));
  return order;
}

Status go_on_from_checkpoint(const fs::path& run_dir, Ranks& ranks, Learner& learner) {
  auto all = checkpoints_of(run_dir);
  while (!all.empty()) {
    const auto& [step, folder] = all.back();
    TRY(say(ranks, {.kind = Order::Kind::kLoad, .version = step}));
    Status loaded = learner.load(folder);
    if (loaded.ok() && static_cast<uint64_t>(learner.steps()) != step)
      loaded = Status::corrupt(fmt::format("says that it is of step {}", learner.steps())).at(folder.string());
    if (loaded.ok()) {
      spdlog::info("going on from {}", folder.string());
      return {};
    }
    // An older one costs steps that are trained again; a damaged one would cost the run. One of a newer format holds
    // steps that must not be thrown away, and a lost rank is no fault of a checkpoint.
    if (loaded.code() == Code::kUnfit || loaded.code() == Code::kUnavailable || loaded.code() == Code::kDeadline)
      return loaded;
    spdlog::error("{}", loaded.to_string());
    all.pop_back();
    if (all.empty()) return loaded;
  }
  return {};
}

}  // namespace tandem::trainer
