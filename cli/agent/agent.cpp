// `tandem agent`: the agent's loop on a folder of the user's.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/iso_time.h"
#include "base/text.h"
#include "cli/agent/agent_changes.h"
#include "cli/agent/agent_view.h"
#include "cli/agent/offered_tools.h"
#include "cli/agent/search_options.h"
#include "cli/agent/workspace.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model/model_options.h"
#include "envs/backends/backends.h"
#include "envs/changes/folder_work.h"
#include "envs/episodes/episode.h"
#include "envs/episodes/profile.h"
#include "envs/sandbox/capabilities.h"
#include "envs/search/installed_encoder.h"
#include "envs/search/searching_backend.h"
#include "rollout/agent/endpoint_model.h"
#include "rollout/agent/engine_model.h"
#include "rollout/agent/transcript.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

using rollout::AgentEnd;

constexpr uint64_t kAgentDisk = uint64_t{1} << 30;  // of what the agent writes: 200,000 files of a page each, and more

struct AgentOptions {
  WorkspaceOptions workspace;
  SearchOptions search;
  std::string task, model, model_name, transcript, trajectory, profile;
  std::string step_name;  // of a model that is a step of a run
  std::vector<std::string> endpoints, excludes, tools;
  NumberFormatOptions format;
  std::optional<double> temperature, minutes;
  std::optional<uint64_t> seed;
  std::optional<int> max_tokens;
  int max_turns = 30, max_context = 0, requests_per_minute = 0;
  double request_seconds = 600;
  std::string device = "cpu";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  bool strict_profile = false, end_on_change = false, review = false, dry_run = false, yes = false, undo = false,
       json = false;
};

// What the model learned under: its own profile, else that of a small model for one of ours, and all for a server's.
Result<envs::Profile> learned_profile(const AgentOptions& o) {
  if (!o.profile.empty()) return envs::read_profile(o.profile);
  if (o.model.empty()) return envs::default_profile();
  return envs::profile_of_model(o.model, envs::small_profile());
}

// What it runs under. An encoder adds its tool.
Result<envs::Profile> used_profile(const AgentOptions& o, const envs::Profile& learned) {
  auto usual = learned.tools;
  const bool is_known = std::ranges::find(usual, envs::kSearchTool) != usual.end();
  if (o.search.given() && !is_known) usual.emplace_back(envs::kSearchTool);
  if (!o.search.given()) std::erase(usual, envs::kSearchTool);
  envs::Profile used = learned;
  used.tools = TRY(offered_tools(o.tools, o.search.given(), usual));
  if (o.workspace.time_limit_s != WorkspaceOptions().time_limit_s) used.call_seconds = o.workspace.time_limit_s;
  return used;
}

Status check(const AgentOptions& o) {
  if (o.undo) return {};
  if (o.model.empty() == o.endpoints.empty())
    return Status::invalid("give --model DIR, or --endpoint URL (once or several times)");
  if (o.task.find_first_not_of(" \t\n") == std::string::npos)
    return Status::invalid("say what is to be done: tandem agent ... \"TASK\"");
  if (!o.endpoints.empty() && o.model_name.empty())
    return Status::invalid("--endpoint needs --model-name, the name of the model at the server");
  if (o.model.empty() && !o.trajectory.empty())
    return Status::invalid("--trajectory needs --model: servers do not say which tokens they sampled")
        .hint("--transcript writes down what was said");
  for (const auto& url : o.endpoints) {
    if (Status status = wire::check_url(url); !status.ok()) return std::move(status).at("--endpoint");
  }
  TRY(envs::leaves_out_of(o.excludes));
  TRY(servers_of(o.workspace));
  const auto learned = TRY(learned_profile(o));
  const auto changes = envs::differences(learned, TRY(used_profile(o, learned)));
  if (o.strict_profile && !changes.empty())
    return Status::invalid("the model's profile is another: " + join(changes, "; "))
        .hint("leave out --strict-profile, or what differs");
  return {};
}

// A key is never on the command line, where every user of the machine can read it.
std::string key_of_environment() {
  for (const char* name : {"TANDEM_API_KEY", "OPENAI_API_KEY"}) {
    if (const char* key = std::getenv(name); key != nullptr && key[0] != '\0') return key;
  }
  return "";
}

bool goes_in_the_clear(const std::string& url) {
  return url.starts_with("http://") && !url.starts_with("http://127.") && !url.starts_with("http://localhost") &&
         !url.starts_with("http://[::1]");
}

// The task as training has it: the names of the files, and what to do.
envs::Task task_of(const AgentOptions& options, const envs::FolderWork& work) {
  envs::Task task;
  task.instruction = options.task;
  for (auto& name : work.names()) task.files.emplace_hint(task.files.end(), std::move(name), "");
  return task;
}

Result<std::unique_ptr<rollout::EndpointModel>> endpoint_model(const AgentOptions& o, const envs::Task& task,
                                                               const envs::Profile& profile,
                                                               std::vector<envs::ForeignTool> foreign,
                                                               const Clock& clock, AgentView& view) {
  rollout::EndpointSettings settings{.urls = o.endpoints,
                                     .model = o.model_name,
                                     .key = key_of_environment(),
                                     .temperature = o.temperature,
                                     .seed = o.seed,
                                     .max_tokens = o.max_tokens,
                                     .request_limit = from_seconds(o.request_seconds)};
  settings.tools = profile.tools;
  settings.system = profile.system;
  settings.compaction = profile.compaction;
  settings.foreign_tools = std::move(foreign);
  settings.attempts.per_minute = o.requests_per_minute;
  settings.attempts.seed = static_cast<uint64_t>(clock.unix_seconds() * 1e6);
  for (const auto& url : o.endpoints) {
    if (!settings.key.empty() && goes_in_the_clear(url))
      view.trouble(fmt::format("the key goes to {} unencrypted; https would keep it secret", url));
  }
  return rollout::EndpointModel::create(std::move(settings), task, clock);
}

// "RUN@12"; the directory of a step is called the same in all runs.
std::string shown_name(const tandem::run::RunStep& step) {
  std::error_code error;
  const auto run = fs::canonical(step.run, error);
  return fmt::format("{}@{}", (error ? step.run : run).filename().string(), step.step);
}

std::unique_ptr<rollout::EngineModel> engine_model(const AgentOptions& o, const rollout::LoadedModel& loaded,
                                                   const envs::Task& task, const envs::Profile& profile,
                                                   std::vector<envs::ForeignTool> foreign) {
  rollout::EngineModelSettings settings{.name = loaded.name, .seed = o.seed.value_or(0)};
  settings.tools = profile.tools;
  settings.system = profile.system;
  settings.compaction = profile.compaction;
  settings.foreign_tools = std::move(foreign);
  settings.sampling.temperature = static_cast<float>(o.temperature.value_or(0));
  if (o.max_tokens) settings.max_new_tokens = *o.max_tokens;
  return std::make_unique<rollout::EngineModel>(*loaded.source, loaded.conversation, settings, task);
}

Status write_records(const AgentOptions& o, const rollout::AgentModel& model, const rollout::EngineModel* engine,
                     const rollout::AgentRecord& record) {
  if (!o.transcript.empty()) {
    const rollout::TranscriptHead head{
        .session_id = fmt::format("{}-{}", static_cast<int64_t>(record.began * 1000), ::getpid()),
        .agent_version = TANDEM_VERSION,
        .model = model.name()};
    const auto atif = rollout::atif_of(head, record, model.opening(), model.tools());
    TRY(write_file(o.transcript, atif.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  }
  if (engine != nullptr && !o.trajectory.empty()) {
    auto store = TRY(rollout::TrajectoryStore::open(o.trajectory));
    auto trajectory = engine->trajectory();
    trajectory.key.episode = store.size() + 1;
    TRY(store.append(trajectory));
  }
  return {};
}

int exit_code(const rollout::AgentRecord& record, const std::vector<envs::WrittenChange>& written, bool interrupted) {
  if (interrupted) return kInterrupted;
  if (record.end == AgentEnd::kFailed) return exit_code_of(record.why);
  const bool lost = std::ranges::any_of(written, [](const envs::WrittenChange& change) {
    return change.outcome == envs::WriteOutcome::kConflict || change.outcome == envs::WriteOutcome::kFailed;
  });
  return rollout::is_whole(record.end) && !lost ? kDone : kFailed;
}

// What an agent left that did not come to its end by itself may be half of something: only who asks for it gets it.
bool may_write(const AgentOptions& o, AgentEnd end, std::vector<envs::Change>& changes, const AskLine& ask) {
  if (o.dry_run) return false;
  const bool whole = rollout::is_whole(end) || o.yes;
  if (!whole && !o.review && ::isatty(STDIN_FILENO) != 1) return false;
  if (o.review || !whole) review(changes, ask);
  return std::ranges::any_of(changes, [](const envs::Change& change) { return change.refused.empty(); });
}

Result<int> work_on(const AgentOptions& o, const fs::path& folder, envs::SandboxSpec spec, Interrupt& interrupt) {
  const auto store = TRY(undo_store_for(folder));  // before the work, not after it
  const auto identity = TRY(envs::identity_of_folder(folder));
  const bool people = !o.json;
  const auto view = people ? view_for_people(stdout, ::isatty(STDOUT_FILENO) == 1) : view_for_scripts(stdout);
  const auto backend = TRY(envs::start_sandboxes());
  spec.workspace.reset();                             // its files are below those of the sandbox
  spec.memory_bytes += kAgentDisk - spec.disk_bytes;  // which is memory
  spec.disk_bytes = kAgentDisk;
  const auto learned = TRY(learned_profile(o));
  const auto profile = TRY(used_profile(o, learned));
  if (!o.model.empty() || !o.profile.empty()) {
    for (const auto& change : envs::differences(learned, profile))
      view->trouble("another profile than the model's: " + change);
  }
  spec.output_limit = static_cast<size_t>(profile.output_bytes);
  spec.call_time_limit_s = profile.call_seconds;
  spec.tools = profile.tools;
  const auto searcher = TRY(searcher_of(o.search, folder));
  std::unique_ptr<envs::SearchingBackend> searching;
  if (searcher) searching = std::make_unique<envs::SearchingBackend>(*backend, *searcher);
  envs::SandboxBackend& maker = searching ? static_cast<envs::SandboxBackend&>(*searching) : *backend;
  auto work = TRY(envs::FolderWork::begin(maker, spec, folder, TRY(envs::leaves_out_of(o.excludes))));
  auto task = task_of(o, work);
  task.network = spec.network;
  TRY(start_servers(work.sandbox(), TRY(servers_of(o.workspace))));
  const auto foreign = foreign_tools_of(work.sandbox());

  const SystemClock clock;
  std::optional<rollout::LoadedModel> loaded;
  std::unique_ptr<rollout::EngineModel> engine;
  std::unique_ptr<rollout::EndpointModel> servers;
  if (o.model.empty()) {
    servers = TRY(endpoint_model(o, task, profile, foreign, clock, *view));
  } else {
    const auto format = TRY(number_format(o.format, o.model));
    const auto place = TRY(place_of(o.device, o.threads));
    loaded = TRY(rollout::load_model({.model = o.model,
                                      .format = format,
                                      .max_tokens = o.max_context,
                                      .place = place,
                                      .conversation = {.now = local_time()}}));
    if (!o.step_name.empty()) loaded->name = o.step_name;
    engine = engine_model(o, *loaded, task, profile, foreign);
  }
  rollout::AgentModel& model = engine ? static_cast<rollout::AgentModel&>(*engine) : *servers;
  view->begins({.model = model.name(),
                .folder = folder.string(),
                .files = task.files.size(),
                .is_copy = work.is_copy(),
                .note = work.note()});
  rollout::AgentLimits limits{.turns = o.max_turns, .ends_on_change = o.end_on_change};
  if (o.minutes) limits.time = from_seconds(*o.minutes * 60);
  const auto record = rollout::run_agent(model, work.sandbox(), limits, clock, *view, interrupt.token());
  Status recorded = write_records(o, model, engine.get(), record);  // told at the end: the work is not lost with it

  auto changes = TRY(work.changes());
  work.end();
  view->stopped(record, changes);
  std::vector<envs::WrittenChange> written;
  // After a Ctrl-C the next one ends everything at once; until then the question waits for its answer.
  const auto ask = ask_on_terminal(interrupt.requested() ? std::stop_token() : interrupt.token());
  if (may_write(o, record.end, changes, ask))
    written = TRY(write_back_with_undo(store, folder, o.task, changes, identity));
  const int code = exit_code(record, written, interrupt.requested());
  view->ends({.record = &record, .changes = changes, .written = written, .exit_code = code, .is_dry = o.dry_run});
  TRY(std::move(recorded));
  return code;
}

// A model that learned with codebase_search has it by the encoder that is installed, where none is given.
void find_encoder(AgentOptions& o) {
  if (o.undo || o.search.given() || (o.model.empty() && o.profile.empty())) return;
  const auto learned = learned_profile(o);
  if (!learned) return;  // check says why
  const auto names_it = [](const std::vector<std::string>& tools) {
    return std::ranges::find(tools, envs::kSearchTool) != tools.end();
  };
  if (!names_it(o.tools.empty() ? learned->tools : o.tools)) return;
  if (const auto installed = envs::installed_encoder()) o.search.encoder = installed->string();
}

Result<int> run(AgentOptions options) {
  find_encoder(options);
  TRY(check(options));
  auto spec = TRY(sandbox_of(options.workspace));
  const fs::path folder = *spec.workspace;
  envs::remove_left_behind(folder);  // the model is not to see it
  std::signal(SIGPIPE, SIG_IGN);     // a reader or a server that is gone is seen where it is written to
  const auto interrupt = TRY(Interrupt::listen());
  if (options.undo) {
    return undo_last(folder, {.review = options.review, .dry_run = options.dry_run, .json = options.json},
                     ask_on_terminal(interrupt->token()));
  }
  return work_on(options, folder, std::move(spec), *interrupt);
}

}  // namespace

Action add_agent(CLI::App& command) {
  const auto o = std::make_shared<AgentOptions>();
  command.add_option("TASK", o->task, "The task, as an instruction");
  add_workspace_options(command, o->workspace);
  add_server_option(command, o->workspace);
  auto* model = command.add_option("--model", o->model, "Model directory (Hugging Face layout), run in this process");
  auto* endpoint =
      command.add_option("--endpoint", o->endpoints,
                         "OpenAI-compatible server, such as http://127.0.0.1:8000/v1; several are asked in "
                         "their order where one fails");
  endpoint->excludes(model)->allow_extra_args(false);  // what follows the URL is the task
  command.add_option("--model-name", o->model_name, "Name of the model at the servers")->needs(endpoint);
  command.add_option("--temperature", o->temperature, "0 by default with --model, the server's with --endpoint")
      ->check(CLI::Range(0.0, 10.0));
  command.add_option("--seed", o->seed, "Seed of sampling; 0 by default with --model");
  command.add_option("--max-turns", o->max_turns, "Most messages of the model")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command.add_option("--max-tokens", o->max_tokens, "Most tokens of a message; 1024 by default with --model")
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--max-context", o->max_context,
                  "Longest conversation in tokens (default: the model's, at most 8192)")
      ->needs(model)
      ->check(CLI::Range(64, 1'000'000));
  command.add_option("--minutes", o->minutes, "Time limit of the agent in minutes; none by default")
      ->check(CLI::Range(0.001, 525'600.0));
  command.add_flag("--end-on-change", o->end_on_change,
                   "The first turn that changes files is the last, as in the workspace tasks that models learn from");
  command
      .add_option("--requests-per-minute", o->requests_per_minute,
                  "Rate limit over all servers together; none by default")
      ->needs(endpoint)
      ->check(CLI::Range(1, 100'000));
  command.add_option("--request-seconds", o->request_seconds, "Timeout of a request, which is then tried again")
      ->needs(endpoint)
      ->check(CLI::Range(0.01, 86'400.0))
      ->capture_default_str();
  command.add_option("--exclude", o->excludes, "Files and folders that stay out of the sandbox, as globs")
      ->allow_extra_args(false);
  auto* review_flag = command.add_flag("--review", o->review, "Ask before anything is written back");
  auto* dry = command.add_flag("--dry-run", o->dry_run, "Show what was changed and write nothing back");
  command.add_flag("--yes", o->yes, "Also write back changes of an agent that did not finish")
      ->excludes(review_flag)
      ->excludes(dry);
  command.add_flag("--undo", o->undo, "Take back what the last agent wrote to this folder");
  command.add_flag("--json", o->json, "Print one JSON object an event");
  command.add_option("--transcript", o->transcript, "Write what was said and done to this file, as ATIF");
  command.add_option("--trajectory", o->trajectory, "Append the tokens to the trajectories in this folder");
  add_device_option(command, o->device);
  command.add_option("--threads", o->threads, "Threads of the model")->needs(model)->check(CLI::Range(1, 1024));
  command
      .add_option("--profile", o->profile,
                  "Harness profile (YAML): tools, output, time of a call, system message (default: profile.yaml of the "
                  "model's folder, else profiles/small.yaml; with --endpoint profiles/default.yaml)")
      ->type_name("FILE");
  command.add_flag("--strict-profile", o->strict_profile,
                   "Refuse options that differ from the profile, such as --tools");
  add_tools_option(command, o->tools);
  add_search_options(command, o->search);
  add_number_format_options(command, o->format);
  command.footer(
      "The agent works in the sandbox, with the tools of `tandem tools list`; the folder, of any size, is only read "
      "until\n"
      "the end. Then the difference is shown and written back, each file whole or not at all; what somebody changed\n"
      "meanwhile is left as it is. What was replaced is kept below $XDG_STATE_HOME/tandem/agent (~/.local/state) for "
      "--undo.\n"
      "Ctrl-C ends what is running, shows what was changed so far, and writes it back only where you say so.\n"
      "A key for the servers is read from TANDEM_API_KEY, else OPENAI_API_KEY.\n"
      "Exit code 0: done; 1: failed, not finished, or a file was left as it is; 2: usage; 3: no sandbox can be had;\n"
      "75: interrupted.\n\n"
      "Examples:\n"
      "  tandem agent --workspace . --model models/warm-start --end-on-change \"In app.ini, set cache_limit to 40.\"\n"
      "  tandem agent --workspace . --endpoint http://127.0.0.1:8000/v1 --model-name qwen3-8b --review \"Make the "
      "tests "
      "pass.\"\n"
      "  tandem agent --workspace . --endpoint https://a.example/v1 --endpoint https://b.example/v1 --model-name large "
      "\\\n"
      "      --transcript session.json \"Rename Config to Settings everywhere.\"\n"
      "  tandem agent --workspace . --undo");
  return [o]() -> Result<int> {
    if (!o->model.empty()) {
      if (const auto step = TRY(tandem::run::run_step_named(o->model))) o->step_name = shown_name(*step);
      o->model = TRY(tandem::run::model_directory(o->model)).string();
    }
    return run(*o);
  };
}

}  // namespace tandem::cli
