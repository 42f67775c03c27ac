#include "serve/adapters.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/text.h"
#include "model/adapter.h"
#include "serve/allowed_folder.h"
#include "serve/api_error.h"

namespace tandem::serve {
namespace {

using wire::HttpReply;
using wire::HttpRequest;

constexpr size_t kLongestName = 200;
constexpr size_t kMostWaitingLoads = 16;

constexpr FieldRow kLoadFields[] = {
    {"lora_name", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":200})",
     "What requests call it as their model."},
    {"lora_path", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":4096})",
     "Folder with adapter_config.json and adapter_model.safetensors, as PEFT writes them."},
    {"load_inplace", Effect::kTakes, R"({"type":"boolean"})",
     "Whether it takes the place of another one of the name. Default false."},
    {"base_model", Effect::kTakes, R"({"type":"string"})", "Name of the model that it is for. Default: the first."},
};
constexpr FieldRow kUnloadFields[] = {
    {"lora_name", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":200})", "Its name."},
    {"lora_int_id", Effect::kIgnored, R"({"type":"integer"})", ""},
};

bool is_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
  return !name.empty() && name.size() <= kLongestName && name.find_first_not_of(kAllowed) == std::string_view::npos;
}

Json json_of(const ServedAdapter& adapter, std::string_view status) {
  return {{"status", status},
          {"lora_name", adapter.name},
          {"parent", adapter.model},
          {"root", adapter.directory.string()},
          {"rank", adapter.rank},
          {"bytes", adapter.live->bytes()},
          {"digest", adapter.live->digest().hex()}};
}

}  // namespace

std::span<const FieldRow> adapter_load_fields() { return kLoadFields; }
std::span<const FieldRow> adapter_unload_fields() { return kUnloadFields; }

Adapters::Adapters(AdapterSettings settings, ModelSet& models, wire::HttpServer& http, const Clock& clock)
    : settings_(std::move(settings)), models_(models), clock_(clock), loads_(1, kMostWaitingLoads) {
  http.watch(loads_.wake_fd(), [this] { loads_.run_completions(); });
}

void Adapters::add_to(BodyPaths& paths) {
  paths.add({"/v1/load_lora_adapter",
             "POST",
             "Loads a LoRA adapter, which requests name as their model",
             FieldTable({kLoadFields}),
             {"lora_name", "lora_path"},
             [this](const HttpRequest&, Fields& fields, const std::string& who, const HttpReply& reply) {
               load(fields, who, reply);
             }});
  paths.add({"/v1/unload_lora_adapter",
             "POST",
             "Forgets a LoRA adapter; requests that have it end with it",
             FieldTable({kUnloadFields}),
             {"lora_name"},
             [this](const HttpRequest&, Fields& fields, const std::string& who, const HttpReply& reply) {
               unload(fields, who, reply);
             }});
}

std::optional<ServedAdapter> Adapters::find(const std::string& name) const {
  const auto all = models_.adapters();
  const auto found = std::ranges::find(all, name, &ServedAdapter::name);
  return found == all.end() ? std::nullopt : std::optional(*found);
}

Status Adapters::check_name(const std::string& name) const {
  if (!is_name(name)) {
    return Status::invalid(fmt::format("an adapter's name is 1 to {} letters, digits and . _ - /", kLongestName));
  }
  const auto* const other = models_.embedder();
  if ((other != nullptr && other->name() == name) || models_.find(name))
    return Status::invalid(fmt::format("a model is called \"{}\" already", name));
  return {};
}

Status Adapters::check_room(const ServedAdapter& wanted) const {
  size_t count = 1, bytes = wanted.live ? wanted.live->bytes() : 0;
  for (const ServedAdapter& other : models_.adapters()) {
    if (other.name == wanted.name) continue;  // its place is taken
    ++count;
    bytes += other.live->bytes();
  }
  if (count > static_cast<size_t>(settings_.count)) {
    return Status::exhausted(fmt::format("{} adapters are loaded, and serve.max_adapters allows no more", count - 1))
        .hint("unload one first");
  }
  if (bytes > settings_.bytes) {
    return Status::exhausted(fmt::format("all adapters would take {}, and serve.adapter_memory_mb allows {}",
                                         format_bytes(bytes), format_bytes(settings_.bytes)))
        .hint("unload one first");
  }
  return {};
}

Result<ServedAdapter> Adapters::read(const std::string& name, const std::string& model, const fs::path& directory,
                                     const Lane& lane) const {
  const fs::path file = directory / model::kAdapterFactorsFile;
  std::error_code error;
  // A pipe would be waited for.
  for (const fs::path& one : {directory / model::kAdapterConfigFile, file}) {
    if (fs::exists(one, error) && !fs::is_regular_file(one, error))
      return fail(Status::invalid("is no file").at(one.string()));
  }
  // Before it is read: fp32 factors are twice what is kept of them.
  if (const auto size = fs::file_size(file, error); !error && size / 2 > settings_.bytes) {
    return fail(Status::exhausted(fmt::format("has {}, and serve.adapter_memory_mb allows {} for all adapters",
                                              format_bytes(size), format_bytes(settings_.bytes)))
                    .at(file.string()));
  }
  const model::Adapter read = TRY(model::read_adapter(directory));
  if (read.rank > settings_.rank) {
    return fail(Status::invalid(fmt::format("r is {}, and serve.max_adapter_rank is {}", read.rank, settings_.rank))
                    .at((directory / model::kAdapterConfigFile).string()));
  }
  auto live = lane.prepare(read);
  if (!live) return fail(std::move(live).error().at(file.string()));
  return ServedAdapter{.name = name,
                       .model = model,
                       .directory = directory,
                       .rank = read.rank,
                       .created = static_cast<int64_t>(clock_.unix_seconds()),
                       .live = std::move(*live)};
}

Status Adapters::load_first() {
  for (const auto& [name, model, directory] : settings_.first) {
    const auto place = fmt::format("--adapter {}", name);
    const auto served = models_.find(model);
    if (!served) {
      return Status::invalid(fmt::format("there is no model \"{}\" for it", model)).at(place);
    }
    if (Status status = check_name(name); !status.ok()) return std::move(status).at(place);
    auto adapter = read(name, served->names.front(), directory, *served->current);
    if (!adapter) return std::move(adapter).error().at(place);
    if (Status status = check_room(*adapter); !status.ok()) return std::move(status).at(place);
    spdlog::info("\"{}\" is {} with the adapter {} of rank {}", name, adapter->model, directory.string(),
                 adapter->rank);
    models_.set_adapter(std::move(*adapter));
  }
  return {};
}

void Adapters::load(Fields& fields, const std::string& who, const HttpReply& reply) {
  const std::string name = fields.text("lora_name");
  if (const Status status = check_name(name); !status.ok())
    return reply(error_response(400, status.to_string(), "lora_name"));
  const auto model = models_.find(fields.text("base_model"));
  if (!model) return reply(models_.unknown_model(fields.text("base_model")));
  const auto folder = allowed_folder(settings_.folders, fields.text("lora_path"));
  Status below = folder ? Status() : folder.error();
  if (folder) {
    static constexpr const char* kFiles[] = {model::kAdapterConfigFile, model::kAdapterFactorsFile};
    below = check_links(settings_.folders, *folder, kFiles);
  }
  if (!below.ok()) return reply(error_response(400, "\"lora_path\" " + below.to_string(), "lora_path"));
  if (const Status room = check_room({.name = name}); !room.ok()) return reply(error_response(409, room.to_string()));
  const uint64_t number = ++loads_begun_;
  const std::string parent = model->names.front();
  const bool taken = loads_.submit(
      [this, number, name, parent, directory = *folder, lane = model->current]() -> WorkQueue::Completion {
        auto read = std::make_shared<Result<ServedAdapter>>(this->read(name, parent, directory, *lane));
        return [this, number, read] { loaded(number, std::move(*read)); };
      });
  if (!taken) return reply(error_response(429, "too many adapters are being loaded; try again later"));
  loading_.emplace(number, Loading{.name = name,
                                   .model = parent,
                                   .directory = *folder,
                                   .in_place = fields.boolean("load_inplace", false),
                                   .who = who,
                                   .reply = reply,
                                   .deadline = clock_.now() + from_seconds(settings_.load_seconds)});
}

void Adapters::loaded(uint64_t number, Result<ServedAdapter> read) {
  const auto found = loading_.find(number);
  if (found == loading_.end()) return;  // it took too long
  const Loading asked = std::move(found->second);
  loading_.erase(found);
  const auto refuse = [&](int status, const std::string& why) {
    spdlog::warn("the adapter {} is not loaded as \"{}\": {}", asked.directory.string(), asked.name, why);
    asked.reply(error_response(status, why, "lora_path"));
  };
  if (!read) return refuse(400, "\"lora_path\" cannot be served: " + read.error().to_string());
  const auto before = find(asked.name);
  const bool same = before && before->model == read->model && before->live->digest() == read->live->digest();
  // The same once more changes nothing: who was interrupted says it again.
  if (same) return asked.reply(json_response(200, json_of(*before, "loaded")));
  if (before && !asked.in_place) {
    return refuse(400, fmt::format("the lora adapter '{}' has already been loaded, from {}. To load another one in its "
                                   "place, set 'load_inplace' to true",
                                   asked.name, before->directory.string()));
  }
  if (const Status room = check_room(*read); !room.ok()) return refuse(409, room.to_string());
  // A candidate may have come meanwhile.
  const auto model = models_.find(asked.model);
  for (const auto& lane : {model->current, model->candidate}) {
    if (lane && !lane->takes(*read->live)) {
      return refuse(
          409, fmt::format("it does not fit {}, a version of {}", lane->settings().directory.string(), asked.model));
    }
  }
  spdlog::info("an admin ({}) loads the adapter {} as \"{}\" for {}", asked.who, asked.directory.string(), asked.name,
               asked.model);
  const Json answer = json_of(*read, "loaded");
  counts_.erase(asked.name);
  models_.set_adapter(std::move(*read));
  asked.reply(json_response(200, answer));
}

void Adapters::unload(Fields& fields, const std::string& who, const HttpReply& reply) {
  const std::string name = fields.text("lora_name");
  const auto adapter = find(name);
  if (!adapter) {
    std::vector<std::string> names;
    for (const ServedAdapter& one : models_.adapters()) names.push_back(one.name);
    return reply(error_response(404,
                                fmt::format("the lora adapter '{}' cannot be found; there is {}", name,
                                            names.empty() ? "none" : join(names, ", ")),
                                "lora_name"));
  }
  spdlog::info("an admin ({}) unloads the adapter \"{}\"", who, name);
  models_.remove_adapter(name);
  counts_.erase(name);
  reply(json_response(200, json_of(*adapter, "unloaded")));
}

void Adapters::note_request(const std::string& name, uint64_t answer_tokens) {
  if (!find(name)) return;  // unloaded meanwhile
  ++counts_[name].requests;
  counts_[name].tokens += answer_tokens;
}

std::vector<AdapterGauges> Adapters::gauges() const {
  std::vector<AdapterGauges> all;
  for (const ServedAdapter& one : models_.adapters()) {
    const auto counts = counts_.find(one.name);
    const Counts of = counts == counts_.end() ? Counts() : counts->second;
    all.push_back({one.model, one.name, one.rank, one.live->bytes(), of.requests, of.tokens});
  }
  return all;
}

void Adapters::tick() {
  const Time now = clock_.now();
  for (auto at = loading_.begin(); at != loading_.end();) {
    if (now < at->second.deadline) {
      ++at;
      continue;
    }
    const Loading late = std::move(at->second);
    at = loading_.erase(at);
    spdlog::warn("{} was not read within {} s", late.directory.string(), settings_.load_seconds);
    late.reply(error_response(504, fmt::format("{} was not read within {} s; nothing is loaded",
                                               late.directory.string(), settings_.load_seconds)));
  }
}

}  // namespace tandem::serve
