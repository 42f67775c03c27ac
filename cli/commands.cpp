// The list of commands.
#include <array>
#include <span>

#include "cli/command.h"

namespace tandem::cli {

Action add_agent(CLI::App&);
Action add_bench(CLI::App&);
Action add_config(CLI::App&);
Action add_doctor(CLI::App&);
Action add_embed(CLI::App&);
Action add_envs(CLI::App&);
Action add_chaos(CLI::App&);
Action add_episodes(CLI::App&);
Action add_eval(CLI::App&);
Action add_export(CLI::App&);
Action add_generate(CLI::App&);
Action add_host(CLI::App&);
Action add_hosts(CLI::App&);
Action add_import(CLI::App&);
Action add_index(CLI::App&);
Action add_inspect(CLI::App&);
Action add_launch(CLI::App&);
Action add_loss(CLI::App&);
Action add_manual(CLI::App&);
Action add_mcp(CLI::App&);
Action add_parse(CLI::App&);
Action add_render(CLI::App&);
Action add_replay(CLI::App&);
Action add_role(CLI::App&);
Action add_cache(CLI::App&);
Action add_run(CLI::App&);
Action add_runs(CLI::App&);
Action add_score(CLI::App&);
Action add_serve(CLI::App&);
Action add_promote(CLI::App&);
Action add_sft(CLI::App&);
Action add_tasks(CLI::App&);
Action add_tokenize(CLI::App&);
Action add_tools(CLI::App&);
Action add_version(CLI::App&);
Action add_view(CLI::App&);

std::span<const Command> commands() {
  static constexpr std::array kCommands = {
      Command{"run", "The main job: train", add_run},
      Command{"launch", "Let a scheduler start runs, and start them again: Slurm, Kubernetes, Ray, or this machine",
              add_launch},
      Command{"host", "Lend this machine to runs of others that hold its key", add_host},
      Command{"hosts", "The machines that are lent to a run: list them, add one, give one back", add_hosts},
      Command{"sft", "Train a model on transcripts, or warm-start it on demonstrations", add_sft},
      Command{"view", "Show a run: its report, or live while it is on", add_view},
      Command{"runs", "The runs below a folder: list them, compare two, remove what is not needed any more", add_runs},
      Command{"episodes", "Every episode of a run: what it was, how it ended, where it went; JSON Lines", add_episodes},
      Command{"replay", "Train a recorded step again, or compute an episode again, and compare the bits", add_replay},
      Command{"chaos", "A run under faults: processes that die, messages that are lost, a disk that is full",
              add_chaos},
      Command{"envs", "The sandboxes of a run that is on: list them, look into them, end them", add_envs},
      Command{"agent", "Let an agent work on a folder, with a model of yours or over an OpenAI-compatible API",
              add_agent},
      Command{"eval", "Evaluate a model on a suite of tasks, compare with the night before, hold it to gates",
              add_eval},
      Command{"generate", "Sample from a model; JSON Lines", add_generate},
      Command{"serve", "Serve models over HTTP, with the API of OpenAI", add_serve},
      Command{"promote", "Bring a trained model into service, behind a suite and a trial on some of the traffic",
              add_promote},
      Command{"score", "Log-probabilities of given tokens, by the trainer's or the engine's code; JSON Lines",
              add_score},
      Command{"embed", "Vectors of texts by a sentence encoder; JSON Lines", add_embed},
      Command{"loss", "Loss, gradient and advantages of given logprobs and rewards; JSON Lines", add_loss},
      Command{"tasks", "Tasks of your own: look at them, prove that they can be trained on, try them", add_tasks},
      Command{"tools", "The agent's tools: their schemas, and single calls in the sandbox", add_tools},
      Command{"index", "Index a folder for codebase_search, keep the index up to date, search and share it", add_index},
      Command{"mcp", "The agent's tools for other agents, over the Model Context Protocol", add_mcp},
      Command{"inspect", "What a model is, what it takes, and what stands in the way of using it", add_inspect},
      Command{"export", "Turn a checkpoint into a Hugging Face directory", add_export},
      Command{"import", "Turn a GGUF file into a Hugging Face directory", add_import},
      Command{"tokenize", "Turn text into token ids, or ids into text; JSON Lines", add_tokenize},
      Command{"parse",
              "What a model's text says: reasoning, content, calls; or whether it is valid by a schema; JSON Lines",
              add_parse},
      Command{"render", "Turn chat messages into text and ids by a model's template; JSON Lines", add_render},
      Command{"role", "One process of a run", add_role},
      Command{"config", "What the config of a run, or of sft, may say, and what a file does say", add_config},
      Command{"cache", "What this machine keeps to be quick the next time; remove what was not used for long",
              add_cache},
      Command{"bench", "How fast the hot paths are here, beside the limits of this machine", add_bench},
      Command{"doctor", "What this machine has of what a run needs, and how to mend the rest", add_doctor},
      Command{"manual", "The help of all commands as man pages, and as completions of bash", add_manual},
      Command{"version", "Print the version", add_version},
  };
  return kCommands;
}

int exit_code_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return kDone;
    case Code::kInvalid:
      return kUsage;
    case Code::kUnfit:
      return kUnfit;
    default:
      return kFailed;
  }
}

}  // namespace tandem::cli
