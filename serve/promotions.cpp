#include "serve/promotions.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/host_memory.h"
#include "base/json.h"
#include "base/text.h"
#include "model/model_digest.h"
#include "serve/allowed_folder.h"
#include "serve/api_error.h"
#include "serve/query.h"

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;
using wire::HttpReply;
using wire::HttpRequest;

constexpr size_t kRememberedAnswers = 65536;
// How long a candidate without requests stays in memory for a command that goes on.
constexpr Duration kDropAfter = 600s;
constexpr uint64_t kMostKeptBytes = uint64_t{1} << 20;

constexpr FieldRow kBeginFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Its name. Default: the first model."},
    {"directory", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":4096})", "Of the candidate."},
    {"digest", Effect::kTakes, R"({"type":"string","maxLength":64})",
     "Of its files, as who asks has seen them; others are refused. Default: whatever they are."},
};
constexpr FieldRow kShareFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Its name. Default: the first model."},
    {"share", Effect::kTakes, R"({"type":"number","minimum":0,"maximum":1})", "Of the sessions."},
    {"shadow", Effect::kTakes, R"({"type":"boolean"})",
     "Whether it gets copies of their requests, and its answers go nowhere. Default false."},
    {"lease_seconds", Effect::kTakes, R"({"type":"number","minimum":1,"maximum":86400})",
     "How long it holds unless it is said again. Default 60."},
};
constexpr FieldRow kEndFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Its name. Default: the first model."},
    {"promote", Effect::kTakes, R"({"type":"boolean"})", "Whether the candidate is served from now on."},
};
constexpr FieldRow kFeedbackFields[] = {
    {"id", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":200})", "Of the answer."},
    {"accepted", Effect::kTakes, R"({"type":"boolean"})", "Whether it was of use."},
};

// "chatcmpl-0123" is the answer to request 0123.
std::string request_of(const std::string& answer) {
  const size_t last = answer.find_last_of("-_");
  return last == std::string::npos ? answer : answer.substr(last + 1);
}

uint64_t bytes_of_weights(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file(error)) bytes += entry.file_size(error);
  }
  return bytes;
}

Json version_json(const std::shared_ptr<Lane>& lane) {
  if (!lane) return nullptr;
  return {{"directory", lane->settings().directory.string()},
          {"digest", lane->digest().empty() ? Json() : Json(lane->digest())},
          {"requests", lane->requests()},
          {"failed", lane->trouble().ok() ? Json() : Json(lane->trouble().message())},
          {"outcomes", to_json(lane->outcomes())},
          {"lost_streams", {{"taken_over", lane->streams_taken_over()}, {"cut", lane->streams_cut()}}}};
}

}  // namespace

Result<std::map<std::string, KeptVersion>> read_promoted(const fs::path& kept) {
  std::map<std::string, KeptVersion> versions;
  std::error_code error;
  if (kept.empty() || !fs::exists(kept, error)) return versions;
  const auto json = parse_json(TRY(read_file(kept, kMostKeptBytes)));
  const auto wrong = [&] {
    return fail(
        Status::invalid("must be {\"NAME\": {\"folder\", \"digest\"}}, as a promotion writes it").at(kept.string()));
  };
  if (!json || !json->is_object()) return wrong();
  for (const auto& [name, version] : json->items()) {
    if (version.is_string()) {
      versions[name] = {.folder = version.get<std::string>()};
      continue;
    }
    const auto text = [&version = version](const char* key) {
      return version.is_object() && version.contains(key) && version[key].is_string() ? version[key].get<std::string>()
                                                                                      : std::string();
    };
    versions[name] = {.folder = text("folder"), .digest = text("digest")};
    if (versions[name].folder.empty() || versions[name].digest.empty()) return wrong();
  }
  return versions;
}

Status check_unchanged(const std::string& name, const KeptVersion& version, const fs::path& kept) {
  if (version.digest.empty() || TRY(model::digest_of_model(version.folder)) == version.digest) return {};
  return Status::invalid(fmt::format("the files of {} are others than when it was promoted as \"{}\"",
                                     version.folder.string(), name))
      .at(kept.string())
      .hint(
          fmt::format("take \"{}\" out of the file, so that what --model says is served, and promote it again", name));
}

Promotions::Promotions(PromotionSettings settings, ModelSet& models, wire::HttpServer& http, const Clock& clock)
    : settings_(std::move(settings)), models_(models), http_(http), clock_(clock), loads_(1, 16) {
  http_.watch(loads_.wake_fd(), [this] { loads_.run_completions(); });
}

void Promotions::begin_digests() {
  if (settings_.folders.empty()) return;  // nothing is compared
  for (const auto& model : models_.all()) {
    const bool taken = loads_.submit([lane = model.current]() -> WorkQueue::Completion {
      auto digest = std::make_shared<Result<std::string>>(model::digest_of_model(lane->settings().directory));
      return [lane, digest] {
        if (*digest) return lane->set_digest(**digest);
        spdlog::warn("{} cannot be told from other versions: {}", lane->settings().directory.string(),
                     digest->error().to_string());
      };
    });
    if (!taken) spdlog::warn("{} is not told from other versions", model.current->settings().directory.string());
  }
}

void Promotions::add_to(BodyPaths& paths) {
  const auto of =
      [this](void (Promotions::*answer)(const HttpRequest&, Fields&, const std::string&, const HttpReply&)) {
        return [this, answer](const HttpRequest& request, Fields& fields, const std::string& who,
                              const HttpReply& reply) { (this->*answer)(request, fields, who, reply); };
      };
  paths.add({"/promotion",
             "GET",
             "The versions of a model, and what they answered",
             FieldTable({}),
             {},
             of(&Promotions::show)});
  paths.add({"/promotion/begin",
             "POST",
             "Loads a candidate",
             FieldTable({kBeginFields}),
             {"directory"},
             of(&Promotions::begin)});
  paths.add({"/promotion/share",
             "POST",
             "The share of the sessions that the candidate answers",
             FieldTable({kShareFields}),
             {"share"},
             of(&Promotions::share)});
  paths.add({"/promotion/end",
             "POST",
             "Serves the candidate from now on, or lets it go",
             FieldTable({kEndFields}),
             {"promote"},
             of(&Promotions::end)});
  paths.add({"/feedback",
             "POST",
             "Whether an answer was of use",
             FieldTable({kFeedbackFields}),
             {"id", "accepted"},
             of(&Promotions::feedback),
             false});
}

Json Promotions::state_of(const ServedModel& model) const {
  const auto trial = trials_.find(model.names.front());
  const bool loading = trial != trials_.end() && trial->second.loading;
  return {{"server", server_},
          {"model", model.names.front()},
          {"names", model.names},
          {"state", loading           ? "loading"
                    : model.candidate ? "trial"
                                      : "none"},
          {"share", model.share},
          {"shadow", model.shadow},
          {"lease_seconds", model.share > 0 ? std::max(0.0, to_seconds(trial->second.lease_end - clock_.now())) : 0.0},
          {"current", version_json(model.current)},
          {"candidate", version_json(model.candidate)}};
}

void Promotions::show(const HttpRequest& request, Fields&, const std::string&, const HttpReply& reply) {
  const std::string name = query_parameter(request.query, "model");
  const auto model = models_.find(name);
  if (!model) return reply(models_.unknown_model(name));
  reply(json_response(200, state_of(*model)));
}

void Promotions::begin(const HttpRequest&, Fields& fields, const std::string& who, const HttpReply& reply) {
  const auto model = models_.find(fields.text("model"));
  if (!model) return reply(models_.unknown_model(fields.text("model")));
  const auto folder = allowed_folder(settings_.folders, fields.text("directory"));
  if (!folder) {
    return reply(error_response(400, fmt::format("\"directory\" {}", folder.error().to_string()), "directory"));
  }
  const std::string& name = model->names.front();
  Trial& trial = trials_[name];
  const std::string digest = fields.text("digest");
  const bool same = trial.folder == *folder && (digest.empty() || trial.digest.empty() || digest == trial.digest);
  // The same once more is no other trial: a command that was interrupted says it again.
  if (model->candidate && same) return reply(json_response(200, state_of(*model)));
  if (trial.loading && same) return trial.waiting.push_back(reply);
  if (model->candidate || trial.loading) {
    return reply(error_response(
        409, fmt::format("{} is on trial for {} already; POST /promotion/end ends that", trial.folder.string(), name)));
  }
  if (model->current->asleep() || model->current->paused())
    return reply(error_response(409, "the server is paused or asleep; let it go on first"));
  const uint64_t needed = bytes_of_weights(*folder), free = available_memory();
  if (free > 0 && needed > free) {
    return reply(error_response(409, fmt::format("{} has {} of weights, and this machine has {} free", folder->string(),
                                                 format_bytes(needed), format_bytes(free))));
  }
  spdlog::info("an admin ({}) loads {} beside the version of {} that is served", who, folder->string(), name);
  trial = {.folder = *folder, .digest = digest, .loading = true, .waiting = {reply}};
  const bool taken = loads_.submit([this, name, folder = *folder]() -> WorkQueue::Completion {
    auto found = std::make_shared<Result<std::string>>(model::digest_of_model(folder));
    return [this, name, found] { load(name, std::move(*found)); };
  });
  if (taken) return;
  trials_.erase(name);
  reply(error_response(429, "too many models are being loaded; try again later"));
}

void Promotions::reply_all(const std::string& name, const wire::HttpResponse& response) {
  for (const HttpReply& one : std::exchange(trials_[name].waiting, {})) one(response);
}

// What the candidate is is known; the version that is served already is not loaded again.
void Promotions::load(const std::string& name, Result<std::string> digest) {
  Trial& trial = trials_[name];
  const auto model = models_.find(name);
  const auto refuse = [&](int status, const std::string& why) {
    const auto text = fmt::format("\"directory\" cannot be served: {}", why);
    spdlog::warn("{}", text);
    reply_all(name, error_response(status, text, "directory"));
    trials_.erase(name);
  };
  if (!digest) return refuse(400, digest.error().to_string());
  if (!trial.digest.empty() && trial.digest != *digest)
    return refuse(409, fmt::format("the files of {} are others than who asks has seen", trial.folder.string()));
  trial.digest = *digest;
  if (model->current->digest() == *digest) {
    const auto waiting = std::exchange(trial.waiting, {});
    trials_.erase(name);
    for (const HttpReply& one : waiting) one(json_response(200, state_of(*model)));
    return;
  }
  LaneSettings settings = model->current->settings();
  settings.directory = trial.folder;
  const bool taken = loads_.submit([this, name, settings]() -> WorkQueue::Completion {
    auto lane = std::make_shared<Result<std::shared_ptr<Lane>>>(Lane::load(settings, clock_));
    return [this, name, lane] { loaded(name, std::move(*lane)); };
  });
  if (!taken) refuse(429, "too many models are being loaded; try again later");
}

void Promotions::loaded(const std::string& name, Result<std::shared_ptr<Lane>> lane) {
  Trial& trial = trials_[name];
  trial.loading = false;
  // Requests that name an adapter come to it, too.
  for (const ServedAdapter& adapter : models_.adapters()) {
    if (!lane || adapter.model != name || (*lane)->takes(*adapter.live)) continue;
    lane = fail(Status::invalid(fmt::format("the adapter \"{}\" of {} does not fit it", adapter.name, name))
                    .hint("unload the adapter first"));
  }
  if (!lane) {
    const auto text = fmt::format("\"directory\" cannot be served: {}", lane.error().to_string());
    spdlog::warn("{}", text);
    reply_all(name, error_response(400, text, "directory"));
    trials_.erase(name);
    return;
  }
  (*lane)->set_digest(trial.digest);
  trial.drop_at = clock_.now() + kDropAfter;
  // As the version beside it, which an admin may have paused or put to sleep meanwhile.
  const auto current = models_.find(name)->current;
  if (current->paused()) (*lane)->pause(PauseMode::kWait);
  if (current->asleep()) (*lane)->sleep();
  http_.watch((*lane)->wake_fd(), [one = lane->get()] { one->take_news(); });
  models_.set_candidate(name, std::move(*lane));
  reply_all(name, json_response(200, state_of(*models_.find(name))));
}

void Promotions::share(const HttpRequest&, Fields& fields, const std::string& who, const HttpReply& reply) {
  const auto model = models_.find(fields.text("model"));
  if (!model) return reply(models_.unknown_model(fields.text("model")));
  if (!model->candidate) return reply(error_response(409, "there is no candidate; POST /promotion/begin loads one"));
  const double share = fields.number("share", 0);
  if (share > 0 && !model->candidate->trouble().ok()) {
    return reply(error_response(409, "the candidate's engine has failed: " + model->candidate->trouble().message()));
  }
  Trial& trial = trials_[model->names.front()];
  const Time now = clock_.now();
  trial.lease_end = now + from_seconds(fields.number("lease_seconds", 60));
  trial.drop_at = trial.lease_end + kDropAfter;
  const bool shadow = fields.boolean("shadow", false);
  if (share != model->share || shadow != model->shadow) {
    spdlog::info("an admin ({}) gives {}{} % of the sessions of {} to {}", who, shadow ? "copies of " : "", share * 100,
                 model->names.front(), trial.folder.string());
  }
  models_.set_share(model->names.front(), share, shadow);
  reply(json_response(200, state_of(*models_.find(model->names.front()))));
}

void Promotions::end(const HttpRequest&, Fields& fields, const std::string& who, const HttpReply& reply) {
  const auto model = models_.find(fields.text("model"));
  if (!model) return reply(models_.unknown_model(fields.text("model")));
  const std::string& name = model->names.front();
  const bool promote = fields.boolean("promote", false);
  if (!model->candidate) return reply(error_response(409, "there is no candidate; POST /promotion/begin loads one"));
  if (promote && !model->candidate->trouble().ok()) {
    return reply(error_response(409, "the candidate's engine has failed: " + model->candidate->trouble().message()));
  }
  const fs::path folder = trials_[name].folder;
  if (promote) {
    // Kept before it is served: a server that ends in between starts with the version that is about to be served.
    if (const Status kept = keep(*model, folder); !kept.ok())
      return reply(error_response(500, "the candidate stays one: " + kept.to_string()));
  }
  spdlog::info("an admin ({}) {} {} of {}", who, promote ? "promotes" : "lets go", folder.string(), name);
  let_go(name, promote);
  Json state = state_of(*models_.find(name));
  state["kept"] = promote && !settings_.kept.empty();
  reply(json_response(200, state));
}

void Promotions::let_go(const std::string& name, bool promote) {
  trials_.erase(name);
  models_.end_trial(name, promote);
}

Status Promotions::keep(const ServedModel& model, const fs::path& folder) const {
  if (settings_.kept.empty()) return {};
  Json json = Json::object();
  const auto add = [&](const std::string& name, const fs::path& folder, const std::string& digest) {
    json[name] = digest.empty() ? Json(folder.string()) : Json{{"folder", folder.string()}, {"digest", digest}};
  };
  for (const auto& [name, version] : TRY(read_promoted(settings_.kept))) add(name, version.folder, version.digest);
  for (const auto& name : model.names) add(name, folder, model.candidate->digest());
  return write_file(settings_.kept, dump_json(json) + "\n");
}

void Promotions::note_request(const std::string& id, const std::string& key, const std::shared_ptr<Lane>& lane) {
  // Another version may have taken it over.
  if (!asked_.insert_or_assign(id, Asked{key, lane}).second) return;
  asked_order_.push_back(id);
  if (asked_order_.size() <= kRememberedAnswers) return;
  asked_.erase(asked_order_.front());
  asked_order_.pop_front();
}

void Promotions::feedback(const HttpRequest&, Fields& fields, const std::string& key, const HttpReply& reply) {
  const auto found = asked_.find(request_of(fields.text("id")));
  // Who did not ask is told no more than of an answer that there never was.
  if (found == asked_.end() || found->second.key != key) {
    return reply(error_response(
        404, fmt::format("no answer \"{}\" is remembered; the last {} are", fields.text("id"), kRememberedAnswers),
        "id"));
  }
  if (const auto lane = found->second.lane.lock()) lane->note_feedback(fields.boolean("accepted", false));
  found->second.lane.reset();  // an answer counts once
  reply(json_response(200, {{"id", fields.text("id")}}));
}

void Promotions::tick() {
  const Time now = clock_.now();
  for (const auto& model : models_.all()) {
    if (!model.candidate) continue;
    const std::string& name = model.names.front();
    Trial& trial = trials_[name];
    const bool failed = !model.candidate->trouble().ok();
    if (model.share > 0 && (failed || now >= trial.lease_end)) {
      spdlog::warn("{} gets no requests any more: {}", trial.folder.string(),
                   failed ? "its engine has failed" : "nobody has said for how long it is on trial");
      models_.set_share(name, 0);
    }
    if (now >= trial.drop_at) {
      spdlog::info("{} is let go: it has had no requests for {} s", trial.folder.string(), to_seconds(kDropAfter));
      let_go(name, false);
    }
  }
  for (const auto& lane : models_.take_idle()) http_.unwatch(lane->wake_fd());
}

}  // namespace tandem::serve
