#include "gateway/probes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

#include "base/json.h"

namespace tandem::gateway {
namespace {

constexpr size_t kLargestModelList = size_t{4} << 20;  // bytes
constexpr size_t kMostModels = 4096, kLongestModel = 512;

// Whether a name of a foreign list may be a model's: it comes into logs.
bool is_model_name(std::string_view name) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  return !name.empty() && name.size() <= kLongestModel && std::ranges::none_of(name, is_control);
}

Result<std::vector<std::string>> listed_names(std::string_view list) {
  const Json json = TRY(parse_json(list));
  if (!json.is_object() || !json.contains("data") || !json["data"].is_array())
    return fail(Status::corrupt("its /v1/models is no list of models"));
  std::vector<std::string> names;
  for (const Json& model : json["data"]) {
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
    if (auto name = model["id"].get<std::string>(); is_model_name(name)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

void Probes::begin(size_t upstream) {
  const UpstreamTerms& terms = upstreams_[upstream];
  wire::TransferRequest probe;
  probe.request = {.url = *url_of(terms, "/v1/models"),
                   .method = "GET",
                   .connect_limit = limit_,
                   .limit = limit_,
                   .largest_answer = kLargestModelList};
  if (!terms.key.empty()) {
    probe.request.headers.emplace_back("Authorization", fmt::format("Bearer {}", terms.key));
    probe.request.headers.emplace_back("X-Api-Key", terms.key);
    probe.request.headers.emplace_back("anthropic-version", "2023-06-01");
  }
  answers_.emplace(transfers_.start(std::move(probe)), Answer{.upstream = upstream});
}

bool Probes::take(const wire::TransferEvent& event, std::optional<Probed>& probed) {
  const auto found = answers_.find(event.transfer);
  if (found == answers_.end()) return false;
  Answer& answer = found->second;
  if (event.head) answer.status = event.head->status;
  answer.body += event.bytes;
  if (!event.ended) return true;
  probed = Probed{.upstream = answer.upstream};
  auto names = names_of(answer, event.outcome);
  std::string& told = told_[answer.upstream];
  const std::string& name = upstreams_[answer.upstream].name;
  std::string why = names ? "" : fmt::format("cannot be asked: {}", names.error().to_string());
  if (names && names->size() > kMostModels) {
    why = fmt::format("lists more than {} models; a book can name those that it is to get", kMostModels);
    names->resize(kMostModels);
  }
  if (!why.empty() && told != why) spdlog::warn("the upstream {} {}", name, why);
  told = std::move(why);
  if (names) probed->models = std::move(*names);
  answers_.erase(found);
  return true;
}

// The names that clients ask for.
Result<std::vector<std::string>> Probes::names_of(const Answer& answer, const Status& outcome) {
  if (!outcome.ok()) return fail(outcome);
  if (answer.status != 200) return fail(Status::unavailable(fmt::format("it answers {} at /v1/models", answer.status)));
  const auto theirs = TRY(listed_names(answer.body));
  UpstreamTerms& terms = upstreams_[answer.upstream];
  const auto has = [&](const std::string& name) { return std::ranges::find(theirs, name) != theirs.end(); };
  if (!terms.rename.empty() && !theirs.empty()) {
    // The model that is called so is taken, else the first.
    terms.models = {{terms.rename, has(terms.rename) ? terms.rename : theirs.front()}};
  }
  if (terms.models.empty()) return theirs;
  std::vector<std::string> names;
  for (const auto& [name, there] : terms.models) {
    if (has(there)) names.push_back(name);
  }
  // A provider may serve more than it lists.
  if (names.empty()) {
    std::ranges::transform(terms.models, std::back_inserter(names), [](const auto& model) { return model.first; });
  }
  return names;
}

}  // namespace tandem::gateway
