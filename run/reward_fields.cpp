// The keys of what an episode teaches.
#include "run/rewards.h"

namespace tandem::run {

void add_reward_fields(Schema& s, RunConfig& c) {
  s.add("reward.task", c.reward.task, "Weight of the task's own reward in what is learned from", -1e6, 1e6);
  s.add("reward.tests", c.reward.tests, "Weight of the share of its tests that passed", -1e6, 1e6);
  s.add("reward.lints", c.reward.lints,
        "Taken off for n problems that linters find because of the episode: times n / (n + 1); 0: they are not counted",
        0, 1e6);
  s.add("reward.format", c.reward.format, "Taken off for calls that could not be read: times their share", 0, 1e6);
  s.add("reward.effort", c.reward.effort,
        "Taken off where the task was met: times ((1 + k x)^(1 - q) - 1) / (k (1 - q)), x from the keys below", 0, 1e6);
  s.add("reward.effort_token", c.reward.effort_token, "Part of x for each token that was sampled", 0, 1e6);
  s.add("reward.effort_call", c.reward.effort_call, "Part of x for each call", 0, 1e6);
  s.add("reward.effort_turn", c.reward.effort_turn, "Part of x for each message of the model", 0, 1e6);
  s.add("reward.effort_k", c.reward.effort_k, "k of the effort", 1e-6, 1e6);
  s.add("reward.effort_q", c.reward.effort_q, "q of the effort: 0 is a straight line, 1 a logarithm", 0, 1);
  auto& own = c.reward.own;
  s.add("reward.weights", c.reward.weights,
        "Weights of terms that reward.command, reward.http and reward.judge say, NAME=WEIGHT each; others are recorded "
        "alone. An episode that lacks one of these has no reward")
      .example("[style=0.5, length=-0.1]");
  s.add("reward.command", own.command,
        "A command that gets each episode as JSON on its standard input and prints {\"terms\": {NAME: NUMBER}}; empty: "
        "none");
  s.add("reward.place", own.place,
        "Where it runs: in a fresh sandbox with the files that the episode left behind, or beside the environment "
        "server",
        {"sandbox", "server"});
  s.add("reward.files", own.files, "Files that it needs; it runs in a folder that has them. The run keeps a copy")
      .example("[my_reward.py]");
  s.add("reward.http", own.http,
        "URL of a server that gets the same JSON by POST and gives the same answer; empty: none");
  s.add("reward.key_env", own.key_env, "Environment variable with its key, sent as Authorization: Bearer KEY");
  s.add("reward.key_file", own.key_file, "Or a file with that key in its first line");
  s.add(
      "reward.turns", c.reward.turns,
      "Weight of the numbers that a reward program, or an environment of somebody else's, gives for single messages of "
      "the model. Algorithms with advantages of tokens (reinforce++, gae, torch) have each on its message, others "
      "their "
      "sum",
      -1e6, 1e6);
  s.add(
      "reward.judge", own.judge.url,
      "OpenAI-compatible endpoint, http://HOST/v1, of a model that scores each training episode from 0 to 1: the term "
      "judge; empty: none");
  s.add("reward.judge_model", own.judge.model, "Its name there");
  s.add("reward.judge_rubric", own.judge.rubric, "File that says what it judges by. The run keeps a copy");
  s.add("reward.judge_key_env", own.judge.key_env, "Environment variable with its key");
  s.add("reward.judge_key_file", own.judge.key_file, "Or a file with that key in its first line");
  s.add("reward.judge_pairwise", own.judge.pairwise,
        "Compare the episodes of a group with each other, each pair in both orders, in place of scoring each: the term "
        "preferred, a share from 0 to 1");
  s.add("reward.judge_rivals", own.judge.rivals, "Siblings after it that each episode is compared with; 0: all", 0,
        4096);
  s.add("reward.judge_bytes", own.judge.bytes,
        "Of an episode that the judge is shown: task, last message, changed files", 100, 1'000'000);
  s.add("reward.judge_price", own.judge.price, "Of a million tokens, for the cost in the report", 0, 1e6);
  s.add("reward.seconds", own.seconds, "For one answer of a reward program, server or judge", 0.1, 600);
  s.add("reward.retries", own.retries,
        "Times that it is asked again where it failed; then the episode is an infra_error", 0, 10);
  s.add("reward.concurrency", own.concurrency, "Answers that an environment server waits for at once", 1, 256);
  s.add("reward.cache", own.cache, "Answers that an environment server keeps: equal episodes are not asked about again",
        0, 1'000'000);
  s.add("reward.output_bytes", own.output_bytes, "Largest answer", 64, 1'000'000);
}

}  // namespace tandem::run
