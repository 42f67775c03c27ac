#include "rollout/books/trajectory.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "base/digest.h"
#include "base/segments.h"

namespace tandem::rollout {

void Trajectory::append(std::span<const int32_t> observed) {
  tokens.insert(tokens.end(), observed.begin(), observed.end());
  sampled.resize(tokens.size(), 0);
  logprobs.resize(tokens.size(), 0);
  versions.resize(tokens.size(), 0);
  routes.resize(tokens.size());
  kept.resize(tokens.size());
}

void Trajectory::append_sampled(int32_t token, float logprob, uint64_t version, std::span<const int32_t> drawn_from) {
  tokens.push_back(token);
  sampled.push_back(1);
  logprobs.push_back(logprob);
  versions.push_back(version);
  routes.resize(tokens.size());
  kept.append(drawn_from);
}

std::span<const int32_t> Trajectory::prompt() const {
  return std::span(tokens).first(static_cast<size_t>(std::ranges::find(sampled, uint8_t{1}) - sampled.begin()));
}

namespace {

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string all_bytes(const Trajectory& t) {
  std::string bytes;
  bytes.append(bytes_of(t.tokens))
      .append(bytes_of(t.sampled))
      .append(bytes_of(t.logprobs))
      .append(bytes_of(t.versions))
      .append(bytes_of(t.routes.recorded))
      .append(bytes_of(t.routes.ids));
  return bytes;
}

template <typename T>
void take(std::string_view& bytes, size_t count, std::vector<T>& values) {
  values.resize(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
}

// The formats of a record: 2 is the same as 1, which did not say so; 3 is one of several segments, which older programs
// would take for one; 4 has routes, behind the other lists; 5 has a trunk, whose tokens programs of before would count
// more than once; 6 has kept tokens, behind all lists, of whose distribution programs of before would know nothing; 7
// has a hint, without which its step would be another one.
constexpr int kTrajectoryFormat = 2, kSegmentsFormat = 3, kRoutesFormat = 4, kTrunkFormat = 5, kKeptFormat = 6,
              kHintFormat = 7;

bool are_segments(std::span<const uint32_t> later, size_t count) {
  return later.size() < kMostSegments && are_parts(later, count);
}

Digest digest_of_lists(const Trajectory& t) {
  std::string bytes = all_bytes(t);
  bytes.append(bytes_of(t.later_segments))
      .append(bytes_of(t.kept.counts))
      .append(bytes_of(t.kept.ids))
      .append(bytes_of(t.hint.tokens));
  return tandem::digest_of(bytes);
}

Status check_shape(const RouteShape& shape) {
  if (shape.layers <= kMostRouteLayers && shape.top_k <= kMostRouteTopK && shape.experts <= kMostRouteExperts)
    return {};
  return Status::corrupt(fmt::format("a trajectory has routes of {} layers, with {} of {} experts", shape.layers,
                                     shape.top_k, shape.experts));
}

// A hint lies in the prompt, before the first token that was sampled.
Status check_hint(const Trajectory& t) {
  if (t.hint.fits(t.prompt().size())) return {};
  return Status::corrupt(fmt::format("the hint of episode {} does not fit its prompt", t.key.episode));
}

constexpr size_t kBytesPerToken = sizeof(int32_t) + sizeof(uint8_t) + sizeof(float) + sizeof(uint64_t);

}  // namespace

size_t bytes_of(const Trajectory& t) {
  return t.tokens.size() * kBytesPerToken + t.routes.recorded.size() + t.routes.ids.size() +
         t.kept.counts.size() * sizeof(uint32_t) + t.kept.ids.size() * sizeof(int32_t) +
         t.hint.tokens.size() * sizeof(int32_t);
}

void write_trajectory(const Trajectory& t, wire::Trajectory::Builder out, wire::Outgoing& message) {
  out.setEpisode(t.key.episode);
  out.setAttempt(t.key.attempt);
  out.setGroup(t.group);
  out.setCount(static_cast<uint32_t>(t.tokens.size()));
  const Digest digest = digest_of_lists(t);
  out.setDigestLow(digest.low);
  out.setDigestHigh(digest.high);
  out.setNumericsId(t.numerics_id);
  auto segments = out.initLaterSegments(static_cast<unsigned>(t.later_segments.size()));
  for (size_t i = 0; i < t.later_segments.size(); ++i) segments.set(static_cast<unsigned>(i), t.later_segments[i]);
  out.setTrunkFamily(t.trunk.family);
  out.setTrunkTokens(t.trunk.tokens);
  out.setHintAt(t.hint.at);
  out.setHintReplaced(t.hint.replaced);
  auto hint = out.initHintTokens(static_cast<unsigned>(t.hint.tokens.size()));
  for (size_t i = 0; i < t.hint.tokens.size(); ++i) hint.set(static_cast<unsigned>(i), t.hint.tokens[i]);
  message.add_bulk_of(std::span<const int32_t>(t.tokens));
  message.add_bulk_of(std::span<const uint8_t>(t.sampled));
  message.add_bulk_of(std::span<const float>(t.logprobs));
  message.add_bulk_of(std::span<const uint64_t>(t.versions));
  if (!t.routes.empty()) {
    auto shape = out.initRoutes();
    shape.setLayers(t.routes.shape.layers);
    shape.setTopK(t.routes.shape.top_k);
    shape.setExperts(t.routes.shape.experts);
    message.add_bulk_of(std::span<const uint8_t>(t.routes.recorded));
    message.add_bulk_of(std::span<const uint8_t>(t.routes.ids));
  }
  if (t.kept.empty()) return;
  const std::string kept = encode(t.kept);
  out.setKeptVocabulary(t.kept.vocabulary);
  out.setKeptBytes(static_cast<uint32_t>(kept.size()));
  message.add_bulk_of(std::span<const char>(kept));
}

Result<Trajectory> read_trajectory(wire::Trajectory::Reader in, const wire::Incoming& message) {
  Trajectory t{.key = {in.getEpisode(), in.getAttempt()}, .group = in.getGroup(), .numerics_id = in.getNumericsId()};
  t.tokens = TRY(message.bulk_of<int32_t>(0, in.getCount()));
  t.sampled = TRY(message.bulk_of<uint8_t>(1, in.getCount()));
  t.logprobs = TRY(message.bulk_of<float>(2, in.getCount()));
  t.versions = TRY(message.bulk_of<uint64_t>(3, in.getCount()));
  if (const auto shape = in.getRoutes(); shape.getLayers() > 0) {
    t.routes.shape = {.layers = shape.getLayers(), .top_k = shape.getTopK(), .experts = shape.getExperts()};
    TRY(check_shape(t.routes.shape));
    t.routes.recorded = TRY(message.bulk_of<uint8_t>(4, in.getCount()));
    t.routes.ids = TRY(message.bulk_of<uint8_t>(5, in.getCount() * t.routes.shape.row_bytes()));
  }
  if (in.getKeptVocabulary() > 0) {
    const auto kept = TRY(message.bulk_of<char>(t.routes.empty() ? 4 : 6, in.getKeptBytes()));
    t.kept = TRY(decode_keep_sets({kept.data(), kept.size()}, in.getKeptVocabulary(), t.tokens));
  }
  const auto segments = in.getLaterSegments();
  for (unsigned i = 0; i < segments.size() && i < kMostSegments; ++i) t.later_segments.push_back(segments[i]);
  t.trunk = {.family = in.getTrunkFamily(), .tokens = in.getTrunkTokens()};
  if (t.trunk.tokens > t.tokens.size())
    return fail(Status::corrupt(fmt::format("the trunk of episode {} is longer than its tokens", t.key.episode)));
  const auto hint = in.getHintTokens();
  if (hint.size() > kMostHintTokens)
    return fail(Status::corrupt(fmt::format("the hint of episode {} has {} tokens", t.key.episode, hint.size())));
  t.hint.at = in.getHintAt();
  t.hint.replaced = in.getHintReplaced();
  for (const int32_t token : hint) t.hint.tokens.push_back(token);
  if (digest_of_lists(t) != Digest{in.getDigestLow(), in.getDigestHigh()}) {
    return fail(Status::corrupt(fmt::format("the trajectory of episode {} was damaged on its way", t.key.episode)));
  }
  if (!are_segments(t.later_segments, t.tokens.size()))
    return fail(Status::corrupt(fmt::format("the segments of episode {} do not fit its tokens", t.key.episode)));
  if (!t.routes.fits(t.tokens.size()))
    return fail(
        Status::corrupt(fmt::format("the routes of episode {} name experts that there are not", t.key.episode)));
  TRY(check_hint(t));
  return t;
}

// A record is a line of JSON, then the four lists as they lie in memory.
Status TrajectoryStore::append(const Trajectory& trajectory) {
  const Trajectory* const one = &trajectory;
  return append(std::span(&one, 1));
}

Status TrajectoryStore::append(std::span<const Trajectory* const> trajectories) {
  for (const Trajectory* const trajectory : trajectories) {
    const Trajectory& t = *trajectory;
    Json head = {{"format", kTrajectoryFormat},  {"episode", t.key.episode},
                 {"attempt", t.key.attempt},     {"group", t.group},
                 {"numerics_id", t.numerics_id}, {"count", t.tokens.size()}};
    if (!t.later_segments.empty()) {
      head["format"] = kSegmentsFormat;
      head["later_segments"] = t.later_segments;
    }
    if (!t.routes.empty()) {
      head["format"] = kRoutesFormat;
      head["routes"] = {
          {"layers", t.routes.shape.layers}, {"top_k", t.routes.shape.top_k}, {"experts", t.routes.shape.experts}};
    }
    if (t.trunk.tokens > 0) {
      head["format"] = kTrunkFormat;
      head["trunk"] = {{"family", t.trunk.family}, {"tokens", t.trunk.tokens}};
    }
    std::string kept;
    if (!t.kept.empty()) {
      kept = encode(t.kept);
      head["format"] = kKeptFormat;
      head["kept"] = {{"vocabulary", t.kept.vocabulary}, {"bytes", kept.size()}};
    }
    if (!t.hint.empty()) {
      head["format"] = kHintFormat;
      head["hint"] = to_json(t.hint);
    }
    offsets_[t.key] = TRY(log_->append(dump_json(head) + "\n" + all_bytes(t) + kept));
  }
  return log_->sync();
}

Result<Trajectory> TrajectoryStore::read(const EpisodeKey& key) const {
  const auto found = offsets_.find(key);
  if (found == offsets_.end()) {
    return fail(Status::not_found(fmt::format("no trajectory of episode {}, attempt {}", key.episode, key.attempt))
                    .at(path_.string()));
  }
  const std::string record = TRY(read_record(file_, path_, found->second));
  const size_t line = record.find('\n');
  const Json head = TRY(parse_json(std::string_view(record).substr(0, line)));
  std::string_view bytes = std::string_view(record).substr(line + 1);
  const size_t count = head.value("count", size_t{0});
  RouteShape shape;
  if (const Json routes = head.value("routes", Json()); routes.is_object()) {
    for (const auto& [name, value] : routes.items()) {
      if (!value.is_number_unsigned())
        return fail(
            Status::corrupt(fmt::format("the {} of a trajectory's routes are no number", name)).at(path_.string()));
    }
    shape = {.layers = routes.value("layers", 0u),
             .top_k = routes.value("top_k", 0u),
             .experts = routes.value("experts", 0u)};
    TRY(check_shape(shape).at(path_.string()));
  }
  const size_t bytes_per_token = kBytesPerToken + (shape.any() ? 1 + shape.row_bytes() : 0);
  const Json kept = head.value("kept", Json());
  const bool has_kept = kept.is_object();
  const Json kept_bytes = has_kept ? kept.value("bytes", Json()) : Json(0u);
  const Json kept_of = has_kept ? kept.value("vocabulary", Json()) : Json(0u);
  if (!kept_bytes.is_number_unsigned() || !kept_of.is_number_unsigned() || kept_of.get<uint64_t>() > UINT32_MAX ||
      kept_bytes.get<uint64_t>() > bytes.size())
    return fail(Status::corrupt("the kept tokens of a trajectory do not fit its record").at(path_.string()));
  if (bytes.size() - kept_bytes.get<size_t>() != count * bytes_per_token)
    return fail(Status::corrupt("a trajectory has the wrong size").at(path_.string()));
  Trajectory t{.key = key, .group = head.value("group", uint64_t{0}), .numerics_id = head.value("numerics_id", "")};
  take(bytes, count, t.tokens);
  take(bytes, count, t.sampled);
  take(bytes, count, t.logprobs);
  take(bytes, count, t.versions);
  t.routes.shape = shape;
  if (shape.any()) {
    take(bytes, count, t.routes.recorded);
    take(bytes, count * shape.row_bytes(), t.routes.ids);
  }
  if (has_kept) {
    auto sets = decode_keep_sets(bytes, kept_of.get<uint32_t>(), t.tokens);
    if (!sets) return fail(std::move(sets).error().at(path_.string()));
    t.kept = std::move(*sets);
  }
  t.later_segments = head.value("later_segments", std::vector<uint32_t>());
  if (!are_segments(t.later_segments, count))
    return fail(Status::corrupt("the segments of a trajectory do not fit its tokens").at(path_.string()));
  if (const Json trunk = head.value("trunk", Json()); trunk.is_object()) {
    const Json family = trunk.value("family", Json()), tokens = trunk.value("tokens", Json());
    if (!family.is_number_unsigned() || !tokens.is_number_unsigned() || tokens.get<uint64_t>() > count)
      return fail(Status::corrupt("the trunk of a trajectory does not fit its tokens").at(path_.string()));
    t.trunk = {.family = family.get<uint64_t>(), .tokens = tokens.get<uint32_t>()};
  }
  if (!t.routes.fits(count))
    return fail(Status::corrupt("the routes of a trajectory name experts that there are not").at(path_.string()));
  if (const Json hint = head.value("hint", Json()); !hint.is_null()) {
    auto read = read_prompt_hint(hint);
    if (!read) return fail(std::move(read).error().at(path_.string()));
    t.hint = std::move(*read);
    TRY(check_hint(t).at(path_.string()));
  }
  return t;
}

Status TrajectoryStore::index() {
  if (!fs::exists(path_)) return {};
  file_ = TRY(open_regular_file(path_));
  const auto visit = [&](std::string_view record, uint64_t offset) -> Status {
    const Json head = TRY(parse_json(record.substr(0, record.find('\n'))));
    const int own = head.value("format", 1);
    const bool has_more = own > kTrajectoryFormat && own <= kHintFormat;
    if (auto format = format_of(head, kTrajectoryFormat); !format && !has_more)
      return std::move(format).error().at(fmt::format("{}, byte {}", path_.string(), offset));
    offsets_[{head.value("episode", uint64_t{0}), head.value("attempt", uint32_t{0})}] = offset;
    return {};
  };
  // An episode without its trajectory is one sample less; the others are as good as before.
  const LogContent content = TRY(read_log(path_, visit, Damage::kSkip));
  for (const uint64_t offset : content.damaged)
    spdlog::error("{}: the trajectory at byte {} is damaged and counts as lost", path_.string(), offset);
  return {};
}

Result<TrajectoryStore> TrajectoryStore::open(const fs::path& folder) {
  TRY(make_directories(folder));
  TrajectoryStore store;
  store.path_ = folder / "episodes.log";
  uint64_t cut = 0;
  store.log_ = TRY(RecordLog::open(store.path_, &cut, Damage::kSkip));
  if (cut > 0) spdlog::warn("{}: the last {} bytes were torn off and cut", store.path_.string(), cut);
  TRY(store.index());
  return store;
}

Result<TrajectoryStore> TrajectoryStore::open_to_read(const fs::path& folder) {
  TrajectoryStore store;
  store.path_ = folder / "episodes.log";
  TRY(store.index());
  return store;
}

}  // namespace tandem::rollout
