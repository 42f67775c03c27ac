#include "cli/serve/model_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/overloaded.h"
#include "base/text.h"
#include "base/unique_number.h"
#include "cli/serve/private_folder.h"
#include "model/adapter.h"
#include "serve/keys.h"

namespace tandem::cli {

using namespace std::chrono_literals;
using gateway::ProcessChange;
using run::Supervision;

namespace {

constexpr double kEndSeconds = 10;
constexpr size_t kMostLastLines = 8, kLongestLine = 4096, kLongestCause = 400;
// A model has no limit here: its own admission says how many are sampled, and who waits.
constexpr int kAllOfThem = 1 << 20;

Supervision::Plan plan_of_models(const ModelProcessesSettings& settings) {
  Supervision::Plan plan{.max_restarts = settings.config.max_restarts,
                         .silence_seconds = settings.config.silence_seconds,
                         .start_seconds = settings.config.start_seconds,
                         .independent = true,
                         .restart_window_seconds = settings.config.restart_window_seconds,
                         .end_seconds = kEndSeconds};
  for (size_t i = 0; i < settings.models.size(); ++i) {
    const wire::Peer peer{wire::Role::kRollout, static_cast<int>(i)};
    plan.roles.push_back(peer);
    plan.labels.emplace(peer, fmt::format("the process of the model \"{}\"", settings.models[i].names.front()));
  }
  return plan;
}

Status check_models(const ModelProcessesSettings& settings) {
  if (settings.models.size() > gateway::kMostUpstreams) {
    return Status::invalid(fmt::format("{} models are given, and with --isolate {} is the most", settings.models.size(),
                                       gateway::kMostUpstreams));
  }
  std::vector<std::string> names;
  for (const auto& model : settings.models) {
    for (const auto& name : model.names) {
      if (std::ranges::find(names, name) != names.end())
        return Status::invalid(fmt::format("two models are called \"{}\"", name)).hint("--model NAME=DIR names one");
      names.push_back(name);
    }
  }
  const size_t models = names.size();
  for (const auto& [owner, adapter] : settings.adapters) {
    const auto place = fmt::format("--adapter {}", adapter.name);
    if (std::ranges::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(models), owner) ==
        names.begin() + static_cast<std::ptrdiff_t>(models))
      return Status::invalid(fmt::format("there is no model \"{}\" for it", owner)).at(place);
    if (std::ranges::find(names, adapter.name) != names.end())
      return Status::invalid("a model or adapter is called so already").at(place);
    names.push_back(adapter.name);
  }
  return {};
}

// What the environment says of serve.* was for this process, and would go before the configs of the others.
void forget_environment() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (text.starts_with("TANDEM__SERVE__")) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

}  // namespace

Result<std::unique_ptr<ModelProcesses>> ModelProcesses::create(ModelProcessesSettings settings, const Clock& clock) {
  TRY(check_models(settings));
  auto folder = TRY(PrivateFolder::make("tandem-serve"));
  const std::string key = serve::make_key().text;
  TRY(write_file(folder.path / "key", key + "\n"));
  auto transfers = TRY(wire::HttpTransfers::create(clock));
  forget_environment();
  return std::unique_ptr<ModelProcesses>(
      new ModelProcesses(std::move(settings), folder.path, std::move(folder.lock), key, std::move(transfers), clock));
}

ModelProcesses::ModelProcesses(ModelProcessesSettings settings, fs::path folder, FileDescriptor lock, std::string key,
                               std::unique_ptr<wire::HttpTransfers> transfers, const Clock& clock)
    : settings_(std::move(settings)),
      folder_(std::move(folder)),
      lock_(std::move(lock)),
      key_(std::move(key)),
      transfers_(std::move(transfers)),
      clock_(clock),
      supervision_(plan_of_models(settings_)) {
  const auto now = static_cast<int64_t>(clock.unix_seconds());
  for (size_t i = 0; i < settings_.models.size(); ++i) {
    Process& process = processes_.emplace_back();
    process.terms = settings_.models[i];
    process.peer = {wire::Role::kRollout, static_cast<int>(i)};
    for (const auto& [owner, adapter] : settings_.adapters) {
      if (std::ranges::find(process.terms.names, owner) == process.terms.names.end()) continue;
      process.adapters.push_back(adapter);
      process.adapters.back().created = now;
    }
  }
}

ModelProcesses::~ModelProcesses() {
  for (const int64_t process : supervision_.processes()) launcher_.end(process, run::EndKind::kNow);
  for (const int64_t process : supervision_.processes()) launcher_.await(process);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<gateway::UpstreamTerms> ModelProcesses::upstreams() const {
  std::vector<gateway::UpstreamTerms> all;
  for (const Process& process : processes_) {
    all.push_back(
        {.name = process.terms.names.front(), .key = key_, .slots = kAllOfThem, .names = process.terms.names});
  }
  return all;
}

void ModelProcesses::end() {
  apply(Supervision::Interrupted{});
  while (!supervision_.is_over()) {
    for (Process& process : processes_) read_output(process);
    reap();
    apply(Supervision::Tick{});
    std::this_thread::sleep_for(10ms);
  }
}

const Supervision::Role& ModelProcesses::role_of(const Process& process) const {
  return supervision_.roles()[static_cast<size_t>(process.peer.rank)];
}

ModelProcesses::Process& ModelProcesses::process_of(const wire::Peer& peer) {
  return processes_[static_cast<size_t>(peer.rank)];
}

void ModelProcesses::apply(Supervision::Event event) {
  std::deque<Supervision::Event> events;
  events.push_back(std::move(event));
  for (; !events.empty(); events.pop_front()) {
    for (const auto& action : supervision_.step(events.front(), clock_.now())) {
      if (const auto* start = std::get_if<Supervision::Start>(&action))
        events.push_back(spawn(process_of(start->peer)));
      else
        perform(action);
    }
  }
}

void ModelProcesses::perform(const Supervision::Action& action) {
  std::visit(
      Overloaded{[](const Supervision::Start&) {},  // spawn() does it
                 [&](const Supervision::Ask& ask) { launcher_.end(ask.process, run::EndKind::kAsk); },
                 [&](const Supervision::EndSilent& end) {
                   Process& process = process_of(end.peer);
                   end_now(process, fmt::format("it gave no sign for {:.1f} s ({})", end.silent_seconds, end.doing));
                 },
                 [](const Supervision::AskReport&) {},  // signs are asked for in any case
                 [](const Supervision::AskFinish&) {},
                 [&](const Supervision::Stop& all) {
                   for (const int64_t one : all.processes) launcher_.end(one, run::EndKind::kNow);
                   for (const int64_t one : all.processes) launcher_.await(one);
                 },
                 [](const Supervision::Note& note) { spdlog::warn("{}", note.text); },
                 [&](const Supervision::RoleFailed& failed) {
                   Process& process = process_of(failed.peer);
                   process.failure = failed.why;
                   process.is_news = true;
                   spdlog::error(
                       "the model \"{}\" has failed: its process {}; the others go on. `tandem serve "
                       "ctl revive {}` tries it again",
                       process.terms.names.front(), failed.why, process.terms.names.front());
                   if (!process.has_served && trouble_.ok()) {
                     trouble_ = Status::unavailable(
                         fmt::format("the process of the model \"{}\" {}", process.terms.names.front(), failed.why));
                   }
                 },
                 [](const Supervision::Finish&) {}},
      action);
}

Status ModelProcesses::write_config(const Process& process) const {
  ServeConfig config = settings_.config;
  config.models.clear();
  config.adapters.clear();
  for (const auto& name : process.terms.names)
    config.models.push_back(fmt::format("{}={}", name, process.terms.directory.string()));
  for (const auto& adapter : process.adapters) {
    config.adapters.push_back(
        fmt::format("{}@{}={}", adapter.name, process.terms.names.front(), adapter.directory.string()));
  }
  config.draft_models.clear();
  if (!process.terms.draft_model.empty()) config.draft_models.push_back(process.terms.draft_model.string());
  config.host = "127.0.0.1";
  config.port = 0;
  config.api_key_file = config.admin_key_file = config.front_key_file = (folder_ / "key").string();
  config.keys = config.usage_log = config.tls_certificate = config.tls_key = "";
  config.cors_origins.clear();
  config.address_requests_per_minute = 0;
  config.isolate = false;
  config.memory_mb = 0;   // this process looks at it
  config.slow_start = 0;  // the gateway's
  config.stall_seconds = settings_.config.silence_seconds;
  const Json resolved = config.schema().resolved();
  // JSON is YAML.
  return write_file(folder_ / fmt::format("{}.yaml", process.peer.rank), dump_json(resolved) + "\n");
}

Supervision::Event ModelProcesses::spawn(Process& process) {
  std::erase_if(process.adapters, [&](const auto& adapter) {
    std::error_code error;
    if (!process.has_served) return false;
    for (const char* const name : {model::kAdapterConfigFile, model::kAdapterFactorsFile}) {
      const fs::path file = adapter.directory / name;
      if (fs::is_regular_file(file, error)) continue;
      spdlog::error("the adapter \"{}\" is not loaded again: there is no file {}", adapter.name, file.string());
      return true;
    }
    return false;
  });
  const auto launch = [&]() -> Result<Supervision::Started> {
    TRY(write_config(process));
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail(Status::from_errno("pipe", errno));
    FileDescriptor output(ends[0]);
    const FileDescriptor input(ends[1]);
    ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
    run::Job job{.arguments = {"serve", "--config", (folder_ / fmt::format("{}.yaml", process.peer.rank)).string()},
                 .log = fmt::format("/proc/self/fd/{}", input.get()),
                 .peer = process.peer};
    job.arguments.insert(job.arguments.end(), settings_.arguments.begin(), settings_.arguments.end());
    const int64_t pid = TRY(launcher_.start(job));
    process.output = std::move(output);
    return Supervision::Started{process.peer, pid, ++starts_, clock_.unix_seconds()};
  };
  lose(process);
  process.started = clock_.now();
  process.end_cause.clear();
  process.failure.clear();
  process.last_lines.clear();
  process.doing = "loading the model";
  process.memory = 0;
  auto started = launch();
  if (started) return *started;
  return Supervision::StartFailed{process.peer, started.error().to_string()};
}

// Its life is over, or not begun.
void ModelProcesses::lose(Process& process) {
  if (process.transfer != 0) transfers_->cancel(process.transfer);
  process.transfer = 0;
  process.url.clear();
  process.answered.reset();
  process.there = false;
  process.is_news = true;
}

void ModelProcesses::read_output(Process& process) {
  if (!process.output) return;
  std::array<char, 16384> buffer;
  for (int reads = 0; reads < 16; ++reads) {
    const ssize_t got = ::read(process.output.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;  // nothing now
    if (got == 0) {
      process.output = FileDescriptor();
      return;
    }
    process.line.append(buffer.data(), static_cast<size_t>(got));
    for (size_t end; (end = process.line.find('\n')) != std::string::npos || process.line.size() > kLongestLine;) {
      const size_t length = std::min(end, kLongestLine);
      take_line(process, process.line.substr(0, length));
      process.line.erase(0, length + (length == end ? 1 : 0));
    }
  }
}

void ModelProcesses::take_line(Process& process, std::string line) {
  if (line.starts_with('{') && process.url.empty()) {
    const auto json = parse_json(line);
    if (json && json->is_object() && json->contains("url") && (*json)["url"].is_string()) {
      process.url = (*json)["url"].get<std::string>();
      process.next_ask = Time{};
      return;
    }
  }
  if (line.empty()) return;
  // One that cannot be written is of no consequence here.
  std::fputs(fmt::format("{}: {}\n", process.terms.names.front(), line).c_str(), stderr);
  process.last_lines.push_back(std::move(line));
  if (process.last_lines.size() > kMostLastLines) process.last_lines.pop_front();
}

std::string ModelProcesses::cause_of(const Process& process, const run::Ending& ending) const {
  if (!process.end_cause.empty()) return process.end_cause;
  if (!ending.how.empty()) return "was killed by the kernel for lack of memory";
  if (ending.signal != 0) return fmt::format("was ended by signal {} ({})", ending.signal, ::strsignal(ending.signal));
  std::string cause = fmt::format("ended with code {}", ending.code);
  const auto error = std::find_if(process.last_lines.rbegin(), process.last_lines.rend(),
                                  [](const std::string& line) { return line.starts_with("tandem serve: "); });
  if (ending.code != 0 && error != process.last_lines.rend())
    cause += ": " + error->substr(std::string_view("tandem serve: ").size(), kLongestCause);
  return cause;
}

// A model that has served is not to be lost with an adapter that cannot be loaded any more.
void ModelProcesses::forget_refused_adapter(Process& process) {
  std::erase_if(process.adapters, [&](const auto& adapter) {
    const std::string start = fmt::format("tandem serve: --adapter {}: ", adapter.name);
    const auto line = std::ranges::find_if(process.last_lines, [&](const auto& one) { return one.starts_with(start); });
    if (line == process.last_lines.end()) return false;
    spdlog::error("the adapter \"{}\" is not loaded again: {}", adapter.name, line->substr(start.size()));
    return true;
  });
}

void ModelProcesses::reap() {
  for (run::Ending& ending : launcher_.poll()) {
    const auto found = std::ranges::find_if(processes_, [&](const Process& process) {
      return role_of(process).is_running() && role_of(process).process == ending.process;
    });
    if (found == processes_.end()) continue;
    read_output(*found);
    ending.how = cause_of(*found, ending);
    if (found->has_served && !found->answered) forget_refused_adapter(*found);
    lose(*found);
    // What it cannot work with at the start it says at once.
    if (!found->has_served && ending.signal == 0 && ending.code != 0 && trouble_.ok() && !supervision_.is_over()) {
      const std::string what =
          fmt::format("the process of the model \"{}\" {}", found->terms.names.front(), ending.how);
      trouble_ = ending.code == kUsage   ? Status::invalid(what)
                 : ending.code == kUnfit ? Status::unfit(what)
                                         : Status::unavailable(what);
    }
    apply(Supervision::Exited{.ending = ending});
  }
}

void ModelProcesses::end_now(Process& process, const std::string& why) {
  const auto& role = role_of(process);
  if (!role.is_running() || !process.end_cause.empty()) return;
  process.end_cause = fmt::format("was ended: {}", why);
  spdlog::warn("the process of the model \"{}\" (pid {}) is ended: {}", process.terms.names.front(), role.process, why);
  launcher_.end(role.process, run::EndKind::kNow);
}

Supervision::Heard ModelProcesses::heard() const {
  Supervision::Heard heard;
  for (const Process& process : processes_) {
    if (!process.answered) continue;
    heard.roles[process.peer] = {.epoch = role_of(process).epoch,
                                 .silent_seconds = to_seconds(clock_.now() - *process.answered),
                                 .doing = process.doing};
  }
  return heard;
}

std::vector<ProcessChange> ModelProcesses::tick() {
  for (Process& process : processes_) read_output(process);
  // Ends before signs: what was heard of a process that has died is not news.
  reap();
  take_signs();
  ask_for_signs();
  watch_memory();
  apply(heard());
  apply(Supervision::Tick{});
  std::vector<ProcessChange> told;
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    const Duration late = from_seconds(settings_.config.silence_seconds / 2);
    if (process.there && clock_.now() - *process.answered > late) {
      process.there = false;
      process.is_news = true;
    }
    if (std::exchange(process.is_news, false)) told.push_back(change_of(process, i));
  }
  return told;
}

void ModelProcesses::add_adapter(size_t process, gateway::ProcessAdapter adapter) {
  remove_adapter(process, adapter.name);
  adapter.created = static_cast<int64_t>(clock_.unix_seconds());
  processes_[process].adapters.push_back(std::move(adapter));
}

void ModelProcesses::remove_adapter(size_t process, const std::string& name) {
  Process& one = processes_[process];
  std::erase_if(one.adapters, [&](const auto& adapter) { return adapter.name == name; });
  one.is_news = true;
}

bool ModelProcesses::revive(size_t process) {
  Process& one = processes_[process];
  if (one.failure.empty()) return false;
  one.failure.clear();
  apply(Supervision::Revived{one.peer});
  one.is_news = true;
  return true;
}

}  // namespace tandem::cli
