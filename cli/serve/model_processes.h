// The processes of `tandem serve --isolate`: one for each model, started, watched and started again by the supervisor's
// machine (run/supervision.h).
//
// Each is a `tandem serve` of one model on a free port of 127.0.0.1, which answers nobody without a key that only this
// process knows: it is drawn at the start, and stands in a private folder that goes with this process, on no command
// line. Every half second each is asked for its health. One that dies, gives no sign for too long, is in one step for
// too long, or takes more memory than it may, is ended and started again with the adapters that it had. Memory is
// looked at several times a second in /proc: what is its own (RssAnon and RssShmem), without pages of files.
//
// They end with this process, also where it is killed. What they say goes to stderr, with the model's name before it.
//
// Thread safety: none; the gateway's loop owns it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/serve/serve_config.h"
#include "gateway/processes.h"
#include "gateway/upstream.h"
#include "run/launcher.h"
#include "run/supervision.h"
#include "wire/http_transfers.h"

namespace tandem::cli {

struct ServedProcess {
  std::vector<std::string> names;  // of the model, the first of which it is called by
  fs::path directory;
  fs::path draft_model = {};  // empty: none
};

struct ModelProcessesSettings {
  struct Adapter {
    std::string owner;  // a name of its model
    gateway::ProcessAdapter adapter;
  };
  ServeConfig config;                  // of each, but for its models, adapters, address and keys
  std::vector<std::string> arguments;  // of each, beside its config
  std::vector<ServedProcess> models;
  std::vector<Adapter> adapters;
};

class ModelProcesses final : public gateway::Processes {
 public:
  // Starts nothing yet: `tick` does. kInvalid for names that are taken, too many models, and adapters without a model.
  static Result<std::unique_ptr<ModelProcesses>> create(ModelProcessesSettings settings, const Clock& clock);
  ~ModelProcesses() override;  // ends them at once where `end` has not

  // The gateway's upstreams, with the key.
  std::vector<gateway::UpstreamTerms> upstreams() const;
  // Asks all to end and waits until they are gone; those that take more than 10 s are killed.
  void end();

  std::vector<gateway::ProcessChange> tick() override;
  std::vector<gateway::ProcessView> views() const override;
  Status trouble() const override { return trouble_; }
  void add_adapter(size_t process, gateway::ProcessAdapter adapter) override;
  void remove_adapter(size_t process, const std::string& name) override;
  bool revive(size_t process) override;

 private:
  struct Process {
    ServedProcess terms;
    wire::Peer peer;
    std::vector<gateway::ProcessAdapter> adapters;
    // This life.
    FileDescriptor output;  // what it says
    std::string line;       // begun
    std::string url;
    Time started{};
    std::optional<Time> answered;  // its last good sign; nothing: it has not been there yet
    bool there = false;
    std::string doing = "loading the model";
    std::string end_cause;  // why it was told to end
    uint64_t memory = 0;
    uint64_t transfer = 0;  // that asks for its health; 0: none
    Time asked{}, next_ask{};
    bool asks_models = false;  // that transfer asks for its models
    int status = 0;
    std::string body;
    // All lives.
    std::deque<std::string> last_lines;
    Duration loading{};  // from a start to the first sign
    int64_t max_model_len = 0;
    bool has_served = false;
    std::string failure;  // why it is not started again
    bool is_news = true;  // the router is to be told
  };

  ModelProcesses(ModelProcessesSettings settings, fs::path folder, FileDescriptor lock, std::string key,
                 std::unique_ptr<wire::HttpTransfers> transfers, const Clock& clock);
  const run::Supervision::Role& role_of(const Process& process) const;
  Process& process_of(const wire::Peer& peer);

  void apply(run::Supervision::Event event);
  void perform(const run::Supervision::Action& action);
  run::Supervision::Event spawn(Process& process);
  Status write_config(const Process& process) const;
  void reap();
  std::string cause_of(const Process& process, const run::Ending& ending) const;
  void forget_refused_adapter(Process& process);
  void read_output(Process& process);
  void take_line(Process& process, std::string line);
  void ask_for_signs();
  void take_signs();
  void take_answer(Process& process);
  void watch_memory();
  void end_now(Process& process, const std::string& why);
  run::Supervision::Heard heard() const;
  gateway::ProcessChange change_of(const Process& process, size_t index) const;
  void lose(Process& process);

  const ModelProcessesSettings settings_;
  const fs::path folder_;  // private: key and configs
  const FileDescriptor lock_;
  const std::string key_;
  std::unique_ptr<wire::HttpTransfers> transfers_;
  const Clock& clock_;
  run::LocalLauncher launcher_;
  std::vector<Process> processes_;
  run::Supervision supervision_;
  uint64_t starts_ = 0;
  Status trouble_;
};

}  // namespace tandem::cli
