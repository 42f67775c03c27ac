// All that a ledger under History::kOpen is, as bytes: a restart need not replay the whole log.
//
// A head as JSON, and behind it what there is one of for every episode, as numbers in the order of this machine. It is
// a shortcut, not a record: who cannot read it replays the log.
#include <fmt/format.h>

#include <cstring>

#include "rollout/books/ledger.h"

namespace tandem::rollout {

namespace {

constexpr int kSnapshotFormat = 2;  // 1 did not say which held-out groups were measured before an extension

template <typename T>
void put(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes values off the front of bytes; `good` says whether there were enough.
struct Taker {
  std::string_view bytes;
  bool good = true;

  template <typename T>
  T take() {
    T value{};
    good = good && bytes.size() >= sizeof value;
    if (!good) return value;
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return value;
  }
  // A count of things of `size` bytes each that follow.
  uint64_t count(size_t size) {
    const auto n = take<uint64_t>();
    good = good && n <= bytes.size() / size;
    return good ? n : 0;
  }
};

Json to_json(const EpisodeRecord& r) {
  return {{"episode", r.episode},
          {"attempt", r.attempt},
          {"failures", r.failures},
          {"interrupted", r.interrupted},
          {"group", r.group},
          {"phase", static_cast<int>(r.phase)},
          {"kind", r.kind},
          {"split", r.split},
          {"task_seed", r.task_seed},
          {"temperature", r.temperature},
          {"versions", {r.min_version, r.max_version}},
          {"worker", r.worker},
          {"claims", r.claims},
          {"commit", r.commit ? to_json(Event(*r.commit)) : Json()}};
}

Result<EpisodeRecord> record_from_json(const Json& json) {
  EpisodeRecord r{.episode = json.at("episode").get<uint64_t>(),
                  .attempt = json.at("attempt").get<uint32_t>(),
                  .failures = json.at("failures").get<int>(),
                  .interrupted = json.at("interrupted").get<bool>(),
                  .group = json.at("group").get<uint64_t>(),
                  .phase = static_cast<Phase>(json.at("phase").get<int>()),
                  .kind = json.at("kind").get<std::string>(),
                  .split = json.at("split").get<std::string>(),
                  .task_seed = json.at("task_seed").get<uint64_t>(),
                  .temperature = json.at("temperature").get<float>(),
                  .min_version = json.at("versions").at(0).get<uint64_t>(),
                  .max_version = json.at("versions").at(1).get<uint64_t>(),
                  .worker = json.at("worker").get<std::string>(),
                  .claims = json.value("claims", 0u)};
  if (const Json& commit = json.at("commit"); !commit.is_null())
    r.commit = std::get<Commit>(TRY(event_from_json(commit)));
  return r;
}

}  // namespace

std::string Ledger::snapshot() const {
  Json head = {{"format", kSnapshotFormat},
               {"planned", planned_},
               {"plan", rollout::to_json(plan_)},
               {"config", config_},
               {"epoch", epoch_},
               {"curriculum", curriculum_.save()},
               {"order", order_.save()},
               {"phase", static_cast<int>(phase_)},
               {"finishing", finishing_},
               {"finished", finished_},
               {"evaluation_admitted", evaluation_admitted_},
               {"open_training", open_training_},
               {"newest_version", newest_version_},
               {"train_groups_admitted", train_groups_admitted_},
               {"open_phase", open_phase_},
               {"steps_trained", steps_trained_},
               {"batches_formed", batches_formed_},
               {"checkpointed", checkpointed_},
               {"late_commits", late_commits_},
               {"drawn", drawn_},
               {"draws", draws_},
               {"dropped", dropped_},
               {"too_old", too_old_},
               {"workers", Json::array()},
               {"open", Json::array()},
               {"steps", Json::array()}};
  for (const auto& [name, worker] : workers_.all())
    head["workers"].push_back({name, worker.present, worker.stealing, worker.credits});
  for (uint64_t id = 0; id < records_.size(); ++id) {
    if (states_[id] <= EpisodeState::kCommitted) head["open"].push_back(to_json(*records_[id]));
  }
  const auto groups_to_json = [this](uint64_t step, const StepGroups& groups) {
    Json kinds = Json::object();
    for (const auto& [kind, sums] : groups.kinds) kinds[kind] = {sums.first, sums.second};
    Json terms = Json::object();
    for (const auto& [name, sums] : groups.terms) terms[name] = {sums.first, sums.second};
    Json json{step, groups.groups, groups.with_signal, groups.success, std::move(kinds), std::move(terms)};
    if (plan_.branch.ways > 1) {
      const auto& b = groups.branches;
      json.push_back(
          {b.trunks, b.episodes, b.inherited_tokens, b.inherited_calls, groups.sampled_tokens, groups.calls});
    }
    return json;
  };
  for (const auto& [step, groups] : step_groups_) head["steps"].push_back(groups_to_json(step, groups));
  if (left_out_.groups.groups > 0)
    head["left_out"] = {groups_to_json(0, left_out_.groups), left_out_.success, left_out_.episodes};
  Json behaviour = Json::array();
  const auto add_behaviour = [&behaviour](uint64_t step, const StepGroups& groups) {
    for (const auto& [kind, sums] : groups.behaviour) behaviour.push_back({step, kind, sums.sums_to_json()});
  };
  for (const auto& [step, groups] : step_groups_) add_behaviour(step, groups);
  add_behaviour(0, left_out_.groups);
  if (!behaviour.empty()) head["behaviour"] = std::move(behaviour);
  if (plan_.heldout_every > 0) {
    head["during"] = {during_step_, open_during_, due_during_};
    head["measurements"] = Json::array();
    for (const auto& [step, m] : measurements_) {
      head["measurements"].push_back(
          {step, m.samples, m.passed, m.greedy_samples, m.greedy_passed, m.last_version, m.is_complete});
    }
  }
  Json comparing = Json::array(), turns = Json::array(), kinds = Json::array(), metrics = Json::array();
  for (const uint64_t group : open_training_) {
    if (groups_[group].comparing) comparing.push_back(group);
  }
  for (const auto& [step, batch] : batches_) {
    for (size_t i = 0; i < batch.entries.size(); ++i) {
      if (!batch.entries[i].turn_rewards.empty()) turns.push_back({step, i, batch.entries[i].turn_rewards});
      if (!batch.entries[i].kind.empty()) kinds.push_back({step, i, batch.entries[i].kind});
      if (!batch.entries[i].metrics.empty()) metrics.push_back({step, i, batch.entries[i].metrics});
    }
  }
  if (!comparing.empty()) head["comparing"] = std::move(comparing);
  if (!turns.empty()) head["turn_rewards"] = std::move(turns);
  if (!kinds.empty()) head["kinds"] = std::move(kinds);
  if (!metrics.empty()) head["metrics"] = std::move(metrics);
  const std::string text = dump_json(head);
  std::string out;
  out.reserve(text.size() + states_.size() * 33 + groups_.size() * 17 + batches_.size() * 16 + 64);
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
  put(out, static_cast<uint64_t>(states_.size()));
  out.append(reinterpret_cast<const char*>(states_.data()), states_.size());
  put(out, static_cast<uint64_t>(groups_.size()));
  for (const Group& group : groups_) {
    put(out, group.first);
    put(out, group.size);
    put(out, group.open);
    put(out, group.phase);
  }
  put(out, static_cast<uint64_t>(batches_.size()));
  for (const auto& [step, batch] : batches_) {
    put(out, step);
    put(out, static_cast<uint64_t>(batch.entries.size()));
    for (const BatchEntry& entry : batch.entries) {
      put(out, entry.key.episode);
      put(out, entry.key.attempt);
      put(out, entry.group);
      put(out, entry.advantage);
    }
  }
  return out;
}

Result<Ledger> Ledger::restore(std::string_view snapshot) {
  Taker in{snapshot};
  const auto damaged = [] { return fail(Status::corrupt("a snapshot of the ledger is cut short or damaged")); };
  const uint64_t head_bytes = in.count(1);
  if (!in.good) return damaged();
  const Json head = TRY(parse_json(in.bytes.substr(0, head_bytes)));
  in.bytes.remove_prefix(head_bytes);
  if (const int format = TRY(format_of(head, kSnapshotFormat)); format != kSnapshotFormat)
    return fail(Status::invalid(fmt::format("is of format {}; only {} is read", format, kSnapshotFormat)));
  Ledger ledger(History::kOpen);
  try {
    ledger.begin(TRY(plan_from_json(head.at("plan"))));
    ledger.planned_ = head.at("planned").get<bool>();
    ledger.config_ = head.at("config");
    ledger.epoch_ = head.value("epoch", uint64_t{1});
    ledger.curriculum_.load(head.at("curriculum"));
    ledger.order_.load(head.at("order"));
    ledger.phase_ = static_cast<Phase>(head.at("phase").get<int>());
    ledger.finishing_ = head.at("finishing").get<bool>();
    ledger.finished_ = head.at("finished").get<bool>();
    ledger.evaluation_admitted_ = head.at("evaluation_admitted").get<bool>();
    ledger.open_training_ = head.at("open_training").get<std::vector<uint64_t>>();
    ledger.newest_version_ = head.at("newest_version").get<uint64_t>();
    ledger.train_groups_admitted_ = head.at("train_groups_admitted").get<uint64_t>();
    ledger.open_phase_ = head.at("open_phase").get<uint64_t>();
    ledger.steps_trained_ = head.at("steps_trained").get<uint64_t>();
    ledger.batches_formed_ = head.at("batches_formed").get<uint64_t>();
    ledger.checkpointed_ = head.at("checkpointed").get<uint64_t>();
    ledger.late_commits_ = head.at("late_commits").get<uint64_t>();
    ledger.drawn_ = head.at("drawn").get<std::vector<std::string>>();
    ledger.draws_ = head.at("draws").get<uint64_t>();
    ledger.dropped_ = head.at("dropped").get<std::map<std::string, uint64_t>>();
    ledger.too_old_ = head.at("too_old").get<std::map<std::string, uint64_t>>();
    const auto groups_from_json = [](const Json& step) {
      StepGroups groups{.groups = step.at(1).get<int>(),
                        .with_signal = step.at(2).get<int>(),
                        .success = step.at(3).get<double>(),
                        .kinds = {},
                        .terms = {}};
      for (const auto& [kind, sums] : step.at(4).items())
        groups.kinds[kind] = {sums.at(0).get<double>(), sums.at(1).get<int>()};
      if (step.size() > 5) {
        for (const auto& [name, sums] : step.at(5).items())
          groups.terms[name] = {sums.at(0).get<double>(), sums.at(1).get<int>()};
      }
      if (step.size() > 6) {  // of plans with branches
        const Json& b = step.at(6);
        groups.branches = {.trunks = b.at(0).get<int>(),
                           .episodes = b.at(1).get<int>(),
                           .inherited_tokens = b.at(2).get<uint64_t>(),
                           .inherited_calls = b.at(3).get<uint64_t>()};
        groups.sampled_tokens = b.at(4).get<uint64_t>();
        groups.calls = b.at(5).get<uint64_t>();
      }
      return groups;
    };
    for (const Json& step : head.at("steps")) ledger.step_groups_[step.at(0).get<uint64_t>()] = groups_from_json(step);
    if (head.contains("left_out")) {
      const Json& left_out = head.at("left_out");
      ledger.left_out_ = {.groups = groups_from_json(left_out.at(0)),
                          .success = left_out.at(1).get<double>(),
                          .episodes = left_out.at(2).get<int>()};
    }
    if (head.contains("behaviour")) {
      for (const Json& each : head.at("behaviour")) {
        const auto step = each.at(0).get<uint64_t>();
        StepGroups& groups = step == 0 ? ledger.left_out_.groups : ledger.step_groups_[step];
        groups.behaviour[each.at(1).get<std::string>()] = TRY(BehaviourSums::sums_from_json(each.at(2)));
      }
    }
    const uint64_t episodes = in.count(1);
    for (uint64_t id = 0; id < episodes; ++id) {
      const auto state = in.take<uint8_t>();
      if (state > static_cast<uint8_t>(EpisodeState::kDropped)) return damaged();
      ledger.states_.push_back(static_cast<EpisodeState>(state));
      ++ledger.counts_[state];
    }
    ledger.records_.resize(episodes);
    for (uint64_t group = 0, n = in.count(17); group < n; ++group) {
      Group& at = ledger.groups_.emplace_back();
      at.first = in.take<uint64_t>();
      at.size = in.take<int>();
      at.open = in.take<int>();
      at.phase = static_cast<Phase>(in.take<uint8_t>());
    }
    for (uint64_t batch = 0, n = in.count(16); batch < n; ++batch) {
      const auto step = in.take<uint64_t>();
      TrainBatch& at = ledger.batches_[step];
      at.step = step;
      at.entries.resize(in.count(28));
      for (BatchEntry& entry : at.entries) {
        entry.key.episode = in.take<uint64_t>();
        entry.key.attempt = in.take<uint32_t>();
        entry.group = in.take<uint64_t>();
        entry.advantage = in.take<double>();
      }
    }
    if (!in.good || !in.bytes.empty()) return damaged();
    std::map<std::string, std::set<uint64_t>> leased;
    for (const Json& open : head.at("open")) {
      auto record = TRY(record_from_json(open));
      if (record.episode >= episodes || record.group >= ledger.groups_.size()) return damaged();
      record.state = ledger.states_[record.episode];
      if (record.state == EpisodeState::kQueued) ledger.queue_of(record).insert(record.episode);
      ledger.leased_during_ += record.state == EpisodeState::kLeased && record.phase == Phase::kDuring;
      if (record.state == EpisodeState::kLeased) leased[record.worker].insert(record.episode);
      ledger.records_[record.episode] = std::make_unique<EpisodeRecord>(std::move(record));
    }
    for (const Json& worker : head.at("workers")) {
      const auto name = worker.at(0).get<std::string>();
      ledger.workers_.restore({.name = name,
                               .present = worker.at(1).get<bool>(),
                               .stealing = worker.at(2).get<bool>(),
                               .credits = worker.at(3).get<uint32_t>(),
                               .leased = std::move(leased[name])});
    }
    if (head.contains("during")) {
      const Json& during = head.at("during");
      ledger.during_step_ = during.at(0).get<uint64_t>();
      ledger.open_during_ = during.at(1).get<uint64_t>();
      ledger.due_during_ = during.at(2).get<uint64_t>();
      for (const Json& m : head.at("measurements")) {
        ledger.measurements_[m.at(0).get<uint64_t>()] = {.samples = m.at(1).get<int>(),
                                                         .passed = m.at(2).get<int>(),
                                                         .greedy_samples = m.at(3).get<int>(),
                                                         .greedy_passed = m.at(4).get<int>(),
                                                         .last_version = m.at(5).get<uint64_t>(),
                                                         .is_complete = m.at(6).get<bool>()};
      }
    }
    if (head.contains("comparing")) {
      for (const Json& group : head.at("comparing")) ledger.groups_.at(group.get<uint64_t>()).comparing = true;
    }
    if (head.contains("turn_rewards")) {
      for (const Json& each : head.at("turn_rewards")) {
        auto& entries = ledger.batches_.at(each.at(0).get<uint64_t>()).entries;
        entries.at(each.at(1).get<size_t>()).turn_rewards = each.at(2).get<std::vector<double>>();
      }
    }
    if (head.contains("kinds")) {
      for (const Json& each : head.at("kinds")) {
        auto& entries = ledger.batches_.at(each.at(0).get<uint64_t>()).entries;
        entries.at(each.at(1).get<size_t>()).kind = each.at(2).get<std::string>();
      }
    }
    if (head.contains("metrics")) {
      for (const Json& each : head.at("metrics")) {
        auto& entries = ledger.batches_.at(each.at(0).get<uint64_t>()).entries;
        entries.at(each.at(1).get<size_t>()).metrics = each.at(2).get<std::map<std::string, double>>();
      }
    }
    for (const uint64_t group : ledger.open_training_) ledger.complete_ += ledger.groups_.at(group).is_complete();
  } catch (const std::exception& error) {  // of JSON, and of what is not where it should be
    return fail(Status::corrupt(fmt::format("a snapshot of the ledger cannot be read: {}", error.what())));
  }
  return ledger;
}

}  // namespace tandem::rollout
