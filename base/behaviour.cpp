#include "base/behaviour.h"

#include <type_traits>

namespace tandem {
namespace {

// The one list of the fields and their names.
template <typename B, typename F>
void each_field(B& b, const F& field) {
  field("turns", b.turns);
  field("calls", b.calls);
  field("parallel_calls", b.parallel_calls);
  field("parallel_turns", b.parallel_turns);
  field("refused_calls", b.refused_calls);
  field("edits", b.edits);
  field("edits_undone", b.edits_undone);
  field("reads_before_edit", b.reads_before_edit);
  field("searches_before_edit", b.searches_before_edit);
  field("searches", b.searches);
  field("seconds_to_edit", b.seconds_to_edit);
  field("seconds", b.seconds);
}

}  // namespace

Json to_json(const Behaviour& behaviour) {
  Json json = Json::object();
  each_field(behaviour, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

Result<Behaviour> behaviour_from_json(const Json& json) {
  constexpr double kMost = 1e9;
  if (!json.is_object()) return fail(Status::corrupt("behaviour is no object"));
  Behaviour behaviour;
  const char* wrong = nullptr;
  each_field(behaviour, [&](const char* name, auto& value) {
    const auto found = json.find(name);
    if (found == json.end()) return;
    const double number = found->is_number() ? found->template get<double>() : -1;
    if (number >= 0 && number <= kMost)  // NaN is neither
      value = static_cast<std::remove_reference_t<decltype(value)>>(number);
    else
      wrong = name;
  });
  if (wrong != nullptr)
    return fail(Status::corrupt(std::string("behaviour: ") + wrong + " is no number from 0 to 1e9"));
  return behaviour;
}

void BehaviourSums::add(const Behaviour& behaviour) {
  ++episodes_;
  with_edit_ += behaviour.edits > 0;
  each_field(behaviour, [&](const char* name, const auto& value) { sums_[name] += static_cast<double>(value); });
}

void BehaviourSums::add(const BehaviourSums& other) {
  episodes_ += other.episodes_;
  with_edit_ += other.with_edit_;
  for (const auto& [name, sum] : other.sums_) sums_[name] += sum;
}

double BehaviourSums::mean(const std::string& field) const {
  const auto found = sums_.find(field);
  return found == sums_.end() || episodes_ == 0 ? 0 : found->second / episodes_;
}

Json BehaviourSums::means() const {
  Json json = {{"episodes", episodes_}};
  const auto put = [&](const char* name, const char* sum, double by) {
    const auto found = sums_.find(sum);
    if (by > 0) json[name] = found == sums_.end() ? 0 : found->second / by;
  };
  const auto of = [&](const char* name) { return sums_.contains(name) ? sums_.at(name) : 0; };
  put("calls_per_turn", "calls", of("turns"));
  put("parallel_share", "parallel_calls", of("calls"));
  put("refused_share", "refused_calls", of("calls"));
  for (const char* name :
       {"edits", "edits_undone", "reads_before_edit", "searches_before_edit", "searches", "parallel_turns", "seconds"})
    json[name] = mean(name);
  put("seconds_to_edit", "seconds_to_edit", with_edit_);
  return json;
}

Json BehaviourSums::sums_to_json() const { return {episodes_, with_edit_, sums_}; }

Result<BehaviourSums> BehaviourSums::sums_from_json(const Json& json) {
  BehaviourSums sums;
  try {
    sums.episodes_ = json.at(0).get<int>();
    sums.with_edit_ = json.at(1).get<int>();
    sums.sums_ = json.at(2).get<std::map<std::string, double>>();
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(std::string("sums of behaviour cannot be read: ") + error.what()));
  }
  return sums;
}

Json means_of(const std::map<std::string, BehaviourSums>& by_kind) {
  BehaviourSums all;
  Json kinds = Json::object();
  for (const auto& [kind, sums] : by_kind) {
    all.add(sums);
    kinds[kind] = sums.means();
  }
  return {{"all", all.means()}, {"kinds", std::move(kinds)}};
}

}  // namespace tandem
