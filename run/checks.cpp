#include "run/checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/byte_size.h"
#include "base/iso_time.h"
#include "base/json_file.h"
#include "base/keep_sets.h"
#include "base/text.h"
#include "dashboard/run_files.h"
#include "envs/backends/backends.h"
#include "kernels/sampling.h"
#include "model/parameters.h"
#include "model/routes.h"
#include "model/safetensors.h"
#include "rollout/agent/conversation.h"
#include "rollout/books/failures.h"
#include "run/env_hosts.h"
#include "run/rewards.h"
#include "run/run_step.h"
#include "run/tasks.h"
#include "run/teacher.h"
#include "trainer/learn/low_rank.h"
#include "trainer/learn/teacher.h"

namespace tandem::run {

namespace {

constexpr const char* kWhereElse =
    "make it a folder that this user can write to, on a file system that is not read-only, or choose another folder";

Status make_writable_folder(const fs::path& folder) {
  if (const Status made = make_directories(folder); !made) return Status::unfit(made.message()).hint(kWhereElse);
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) == 0) return {};
  return Status::unfit(fmt::format("{} cannot be written to: {}", folder.string(), std::strerror(errno)))
      .hint(kWhereElse);
}

// All that loading would refuse, without reading the numbers.
Status check_weights(const fs::path& folder, const model::ParameterLayout& layout) {
  const auto checkpoint = TRY(model::Safetensors::open(folder));
  std::vector<std::string> names;
  for (const auto& parameter : layout.parameters) {
    for (const auto& part : parameter.parts) names.push_back(part.checkpoint_name);
  }
  if (Status missing = checkpoint.require(names); !missing.ok()) return std::move(missing).at(folder.string());
  for (const auto& parameter : layout.parameters) {
    for (const auto& part : parameter.parts) {
      const auto tensor = TRY(checkpoint.get(part.checkpoint_name));
      const int64_t expected = static_cast<int64_t>(parameter.split ? 1 : part.rows) * parameter.columns;
      if (tensor.elements() == expected) continue;
      return Status::invalid(fmt::format("tensor {} has {} elements, config.json says {}", part.checkpoint_name,
                                         tensor.elements(), expected))
          .at(folder.string());
    }
  }
  return {};
}

Status check_teacher_of(const RunConfig& config) {
  const std::string& path = config.algorithm.teacher.path;
  if (path.empty()) return {};
  const fs::path directory = TRY(model_to_check(path));
  TRY(check_weights(directory, TRY(model::parameter_layout(TRY(model::read_config(directory))))));
  // The tiny model is compared with it once it is made.
  if (is_tiny(config.model.path)) return {};
  return trainer::check_teacher(directory, TRY(model_to_check(config.model.path)), config.rollout.max_tokens);
}

// Behind a hint an episode is longer by it; and the text itself has room.
Status check_hint(const RunConfig& config, const model::ModelConfig& model, const rollout::Conversation& conversation) {
  const rollout::HintSettings hint = hint_settings(config);
  if (!hint.any()) return {};
  if (trim(hint.text).empty())
    return Status::invalid("is blank").hint("leave it out, or say what the model is to read");
  const int tokens = config.algorithm.teacher.hint_tokens, most = config.rollout.max_tokens;
  if (most + tokens > model.max_positions)
    return Status::invalid(fmt::format("rollout.max_tokens ({}) with algorithm.teacher.hint_tokens ({}) is above the "
                                       "{} positions of the model",
                                       most, tokens, model.max_positions))
        .hint("lower one of the two");
  const envs::Opening opening{.messages = {{"user", "task"}}, .tools = Json::array()};
  const auto prompt = TRY(conversation.prompt(opening));
  const auto made = rollout::hint_of(conversation, hint, opening, prompt, "feedback");
  if (made) return {};
  if (made.error().code() != Code::kExhausted) return made.error();
  return Status::invalid(made.error().message()).hint("raise it, or shorten the text");
}

// Most bytes of an episode's routes, so that its record fits the log.
constexpr uint64_t kMostRouteBytes = uint64_t{192} << 20;

Status check_routes(const RunConfig& config, const model::ModelConfig& model) {
  if (!config.trainer.replay_routes) return {};
  const RouteShape shape = model::route_shape(model);
  if (!shape.any()) {
    return Status::invalid(
               fmt::format("the model ({}) is no mixture of experts, and its tokens have no routes", config.model.path))
        .at("trainer.replay_routes")
        .hint("leave it out, or train a mixture of experts");
  }
  const uint64_t bytes = shape.row_bytes() * static_cast<uint64_t>(config.rollout.max_tokens);
  if (bytes <= kMostRouteBytes) return {};
  return Status::invalid(fmt::format("routes of {} tokens take {}, and a trajectory has room for {} of them",
                                     config.rollout.max_tokens, format_bytes(bytes), format_bytes(kMostRouteBytes)))
      .at("trainer.replay_routes")
      .hint(fmt::format("lower rollout.max_tokens to {}", kMostRouteBytes / shape.row_bytes()));
}

// Kept tokens of an episode, so that they fit its record.
Status check_truncation(const RunConfig& config, int vocabulary) {
  const rollout::Truncation cut = truncation_of(config);
  if (!cut.any()) return {};
  std::vector<std::string_view> keys;
  if (cut.top_k > 0) keys.push_back("rollout.top_k");
  if (cut.top_p < 1) keys.push_back("rollout.top_p");
  if (cut.min_p > 0) keys.push_back("rollout.min_p");
  const std::string named = fmt::format("{}", fmt::join(keys, ", "));
  const auto words = static_cast<size_t>(vocabulary);
  const size_t kept = std::min(static_cast<size_t>(cut.top_k > 0 ? cut.top_k : kernels::kMostKept), words);
  const auto tokens = static_cast<size_t>(config.rollout.max_tokens);
  const size_t bytes = most_keep_bytes(kept, words) * tokens;
  if (bytes <= kMostKeepBytes) return {};
  const size_t fixed = most_keep_bytes(0, words), of_token = kMostKeepBytes / tokens;
  return Status::invalid(fmt::format("kept tokens of {} tokens may take {}, and a trajectory has room for {} of them",
                                     config.rollout.max_tokens, format_bytes(bytes), format_bytes(kMostKeepBytes)))
      .at(named)
      .hint(of_token > fixed ? fmt::format("set rollout.top_k to {} at most", of_token - fixed)
                             : "lower rollout.max_tokens");
}

}  // namespace

rollout::ConversationSettings conversation_settings(const RunConfig& config) {
  return {.now = parse_iso_time(config.model.now),
          .special_in_content = config.model.special_tokens_in_content == "tokens" ? model::SpecialInContent::kTokens
                                                                                   : model::SpecialInContent::kText};
}

rollout::HintSettings hint_settings(const RunConfig& config) {
  const auto& teacher = config.algorithm.teacher;
  return {.text = teacher.hint, .most_tokens = static_cast<size_t>(teacher.hint_tokens)};
}

Status check_inputs(const RunConfig& config) {
  TRY(check(config));
  TRY(check_rewards(config));
  if (is_tiny(config.model.path)) TRY(check_routes(config, {}));
  if (!is_tiny(config.model.path)) {
    const fs::path directory = TRY(model_to_check(config.model.path));
    std::error_code error;
    if (!fs::exists(directory / "config.json", error)) {
      return Status::invalid(
                 fmt::format("model.path: {} is no model directory: it has no config.json", directory.string()))
          .hint("name a directory in the layout of Hugging Face, a step of a run (RUN@last), or tiny");
    }
    const auto model = TRY(model::read_config(directory));
    const auto layout = TRY(model::parameter_layout(model));
    TRY(check_routes(config, model));
    TRY(check_truncation(config, model.vocabulary));
    const auto conversation = TRY(rollout::Conversation::load(directory, conversation_settings(config)));
    TRY(check_hint(config, model, conversation).at("algorithm.teacher.hint"));
    TRY(check_weights(directory, layout));
    if (config.lora.rank > 0) TRY(trainer::LowRank::check(layout, config.lora));
    if (config.rollout.max_tokens > model.max_positions) {
      return Status::invalid(fmt::format("rollout.max_tokens is {}, the model takes at most {}",
                                         config.rollout.max_tokens, model.max_positions));
    }
  }
  if (config.algorithm.teacher.is_remote()) TRY(teacher_key(config));
  if (Status probed = weights_sync::probe_store(config.trainer.weight_store); !probed)
    return std::move(probed).at("trainer.weight_store");
  if (Status taught = check_teacher_of(config); !taught) return std::move(taught).at("algorithm.teacher.path");
  if (!has_local_env(config)) return {};
  if (const auto foreign = TRY(foreign_environments_of(config))) {
    if (const Status status = foreign->probe(); !status)
      return Status::unfit(status.message()).hint("env.external says how it is started, or where it is");
  }
  TRY(envs::start_sandboxes("", config.env.sandbox));
  return {};
}

Result<FolderLock> claim_run_dir(const fs::path& run_dir) {
  TRY(make_writable_folder(run_dir));
  auto lock = FolderLock::claim(run_dir, SystemClock());
  if (lock || lock.error().code() != Code::kInvalid) return lock;
  return fail(
      std::move(lock).error().hint("`tandem view` shows what it does; wait for its end, or choose another --run-dir"));
}

Status check_run_files(const fs::path& run_dir) {
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(run_dir, error); it != fs::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    if (!it->is_other(ignored)) continue;
    return Status::invalid("is neither a file nor a folder, and a run has nothing else")
        .at(it->path().string())
        .hint("move it away");
  }
  return error ? Status::from_errno(run_dir.string(), error.value()) : Status();
}

Status check_formats(const fs::path& run_dir) {
  constexpr std::pair<const char*, int> kFormats[] = {{"status.json", dashboard::kStatusFormat},
                                                      {"supervisor.json", dashboard::kSupervisorFormat},
                                                      {"floors.json", dashboard::kFloorsFormat},
                                                      {"tasks.json", kTasksFormat}};
  for (const auto& [name, newest] : kFormats) {
    const auto text = read_file(run_dir / name, uint64_t{1} << 30);
    const Json json = text ? parse_json(*text).value_or(Json()) : Json();
    if (!json.is_object()) continue;
    if (auto format = format_of(json, newest); !format) return std::move(format).error().at((run_dir / name).string());
  }
  const auto failures = rollout::Failures::read(run_dir / "failures.json");
  return failures ? Status() : failures.error();
}

Result<FileDescriptor> claim_role(const RunLayout& layout, const wire::Peer& peer) {
  using namespace std::chrono_literals;
  const fs::path path = layout.socket_folder() / (to_string(peer) + ".lock");
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock && errno == ENOENT)
    return fail(Status::unavailable("the run is not on").hint("`tandem run` starts it, and its roles"));
  if (!lock) return fail(Status::from_errno(path.string(), errno));
  for (const auto deadline = std::chrono::steady_clock::now() + 5s;;) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) return fail(Status::from_errno(path.string(), errno));
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(50ms);
  }
  return fail(Status::invalid(fmt::format("{} of this run is on already", to_string(peer)))
                  .hint("the run starts it again where it ends; choose another --rank for one more"));
}

}  // namespace tandem::run
