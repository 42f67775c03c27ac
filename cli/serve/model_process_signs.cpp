// The processes of `tandem serve --isolate`: the signs that they give, and what is told of them.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "base/text.h"
#include "cli/serve/model_processes.h"

namespace tandem::cli {

using namespace std::chrono_literals;
using gateway::ProcessChange;

namespace {

constexpr Duration kSignEvery = 500ms;

// Bytes that are the process's own; 0 where it is gone.
uint64_t own_memory(int64_t pid) {
  const auto status = read_file(fmt::format("/proc/{}/status", pid), 1 << 16);
  if (!status) return 0;
  uint64_t bytes = 0;
  for (const std::string_view line : split_lines(*status)) {
    if (!line.starts_with("RssAnon:") && !line.starts_with("RssShmem:")) continue;
    const size_t digit = line.find_first_of("0123456789");
    uint64_t kilobytes = 0;
    if (digit != std::string_view::npos) std::from_chars(line.data() + digit, line.data() + line.size(), kilobytes);
    bytes += kilobytes << 10;
  }
  return bytes;
}

}  // namespace

void ModelProcesses::ask_for_signs() {
  const Time now = clock_.now();
  for (Process& process : processes_) {
    if (process.url.empty() || process.transfer != 0 || now < process.next_ask) continue;
    process.next_ask = now + kSignEvery;
    process.asked = now;
    process.status = 0;
    process.body.clear();
    process.asks_models = process.answered && process.max_model_len == 0;
    const Duration limit = from_seconds(settings_.config.silence_seconds);
    wire::TransferRequest transfer;
    transfer.request = {.url = process.url + (process.asks_models ? "/v1/models" : "/health"),
                        .method = "GET",
                        .headers = {{"Authorization", fmt::format("Bearer {}", key_)}},
                        .connect_limit = limit,
                        .limit = limit,
                        .largest_answer = size_t{1} << 20};
    process.transfer = transfers_->start(std::move(transfer));
  }
}

void ModelProcesses::take_signs() {
  for (wire::TransferEvent& event : transfers_->take_events()) {
    const auto found = std::ranges::find(processes_, event.transfer, &Process::transfer);
    if (found == processes_.end()) continue;
    if (event.head) found->status = event.head->status;
    found->body += event.bytes;
    if (!event.ended) continue;
    found->transfer = 0;
    if (event.outcome.ok()) take_answer(*found);
  }
}

void ModelProcesses::take_answer(Process& process) {
  const auto json = parse_json(process.body);
  const bool whole = json && json->is_object();
  if (process.status == 200) {
    if (!process.answered) {
      process.loading = clock_.now() - process.started;
      spdlog::info("the process of the model \"{}\" (pid {}) serves after {:.1f} s", process.terms.names.front(),
                   role_of(process).process, to_seconds(process.loading));
    }
    process.answered = process.asked;
    process.there = process.is_news = process.has_served = true;
    process.doing = "answering";
  } else if (whole && json->contains("error") && (*json)["error"].is_object()) {
    const Json message = (*json)["error"].value("message", Json());
    if (message.is_string()) process.doing = message.get<std::string>();
    const Json status = json->value("status", Json());
    // One that ends may finish what it has begun; new requests wait for the next one.
    if (process.there && status == Json("ending")) {
      process.there = false;
      process.is_news = true;
    }
    if (process.answered && (status == Json("failed") || status == Json("stalled"))) end_now(process, process.doing);
  }
  if (!process.asks_models || !whole) return;
  for (const Json& model : json->value("data", Json::array())) {
    if (model.is_object() && process.max_model_len == 0)
      process.max_model_len = model.value("max_model_len", int64_t{0});
  }
}

void ModelProcesses::watch_memory() {
  const uint64_t limit = static_cast<uint64_t>(settings_.config.memory_mb) << 20;
  for (Process& process : processes_) {
    const auto& role = role_of(process);
    if (!role.is_running()) continue;
    process.memory = own_memory(role.process);
    if (limit == 0 || process.memory <= limit) continue;
    end_now(process, fmt::format("{} of memory, more than serve.memory_mb allows, {}", format_bytes(process.memory),
                                 format_bytes(limit)));
  }
}

ProcessChange ModelProcesses::change_of(const Process& process, size_t index) const {
  ProcessChange told{.upstream = index, .models = process.terms.names};
  for (const auto& adapter : process.adapters) told.models.push_back(adapter.name);
  const std::string& name = process.terms.names.front();
  if (!process.failure.empty()) {
    told.state = ProcessChange::State::kFailed;
    told.why = fmt::format("the model \"{}\" has failed: its process {}", name, process.failure);
  } else if (process.there) {
    told.state = ProcessChange::State::kThere;
    told.as_of = *process.answered;
  } else {
    const Time now = clock_.now();
    const auto& role = role_of(process);
    told.state = ProcessChange::State::kAway;
    told.expected =
        std::max(now, (role.is_running() ? process.started : std::max(now, role.restart_at)) + process.loading);
    const bool stands = role.is_running() && process.answered;
    told.why = stands ? fmt::format("the process of the model \"{}\" gives no sign", name)
               : !role.last_cause.empty()
                   ? fmt::format("the process of the model \"{}\" {}; it is being started again", name, role.last_cause)
                   : fmt::format("the model \"{}\" is being loaded", name);
  }
  return told;
}

std::vector<gateway::ProcessView> ModelProcesses::views() const {
  std::vector<gateway::ProcessView> all;
  for (const Process& process : processes_) {
    const auto& role = role_of(process);
    const bool is_running = role.is_running();
    const char* const state = !process.failure.empty()                ? "failed"
                              : process.there                         ? "serving"
                              : is_running && process.answered        ? "stalled"
                              : role.last_cause.empty() || is_running ? "starting"
                                                                      : "restarting";
    all.push_back({.names = process.terms.names,
                   .url = process.url,
                   .pid = role.process,
                   .state = state,
                   .since = role.since,
                   .restarts = role.restarts,
                   .memory_bytes = is_running ? process.memory : 0,
                   .memory_limit = static_cast<uint64_t>(settings_.config.memory_mb) << 20,
                   .last_cause = role.last_cause,
                   .max_model_len = process.max_model_len,
                   .adapters = process.adapters});
  }
  return all;
}

}  // namespace tandem::cli
