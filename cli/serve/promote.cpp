// `tandem promote`: a trained model into service, behind a suite and a trial on some of the traffic.
#include <fcntl.h>
#include <fmt/format.h>

#include <csignal>
#include <thread>

#include "base/digest.h"
#include "base/folder_lock.h"
#include "base/json_file.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/eval/eval_commands.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
#include "cli/serve/promotion_client.h"
#include "model/model_digest.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookEvery = 500ms;
// A command that has died leaves the candidate with requests for so long.
constexpr double kLeaseSeconds = 20;
// How long a server may be away before the command gives up.
constexpr Duration kAway = 60s;
// The same before it has answered once: its address may be wrong.
constexpr Duration kFirstAnswer = 10s;
// How often a command sees the server go while the candidate is there: the candidate may be what ends it.
constexpr int kMostLosses = 5;
constexpr int kPromotionFormat = 1;

struct PromoteOptions {
  std::string checkpoint, server, model, suite, against, out, key_variable = "TANDEM_ADMIN_KEY";
  std::vector<std::string> overrides;
  std::vector<double> shares = {1, 10, 50, 100};  // percent
  double shadow = 0;                              // percent
  eval::PromotionTerms terms;
  bool json = false;
};

// Where the command is, and what was decided: OUT/promotion.json; each step of it a line of OUT/audit.jsonl. One
// command at a time has the folder.
class PromotionFolder {
 public:
  // kInvalid where the folder is of another promotion, and where another command has it.
  static Result<PromotionFolder> open(const fs::path& path, const Json& identity) {
    TRY(make_directories(path));
    auto lock = FolderLock::claim(path, SystemClock());
    if (!lock && lock.error().code() == Code::kInvalid)
      return fail(std::move(lock).error().hint("wait for its end, or name another folder with --out"));
    PromotionFolder folder(path, identity, TRY(std::move(lock)));
    std::error_code error;
    if (!fs::exists(path / "promotion.json", error)) return folder;
    const Json json = TRY(read_json_file(path / "promotion.json", kPromotionFormat, uint64_t{1} << 20));
    const auto text = (path / "promotion.json").string();
    if (!json.contains("identity") || !json.contains("stage") || !json["stage"].is_number_unsigned() ||
        !json.contains("verdict") || !json.contains("suite_passed") ||
        !(json.at("verdict").is_null() ||
          (json.at("verdict").is_string() && json.contains("says") && json.at("says").is_string())))
      return fail(Status::invalid("is no record of a promotion").at(text));
    if (json["identity"] != identity) {
      return fail(Status::invalid(fmt::format("is of another promotion: {}", dump_json(json["identity"])))
                      .at(text)
                      .hint("name another folder with --out"));
    }
    folder.state_ = json;
    return folder;
  }

  const fs::path& path() const { return path_; }
  size_t stage() const { return state_["stage"].get<size_t>(); }
  bool suite_passed() const { return state_["suite_passed"] == true; }
  const Json& verdict() const { return state_["verdict"]; }
  const Json& says() const { return state_["says"]; }

  Status note_suite() { return change("suite", {{"suite_passed", true}}, "the suite passed", Json()); }
  Status note_stage(size_t stage, const std::string& says, const Json& figures) {
    return change("share", {{"stage", stage}}, says, figures);
  }
  Status note_verdict(const char* verdict, const std::string& says, const Json& figures) {
    return change("verdict", {{"verdict", verdict}, {"says", says}, {"figures", figures}}, says, figures);
  }
  Status note(const char* what, const std::string& says) { return change(what, Json::object(), says, Json()); }

 private:
  PromotionFolder(fs::path path, const Json& identity, FolderLock lock)
      : path_(std::move(path)), lock_(std::move(lock)) {
    state_ = {{"identity", identity}, {"suite_passed", false}, {"stage", 0U}, {"verdict", nullptr}, {"says", nullptr}};
  }
  Status change(const char* what, const Json& changed, const std::string& says, const Json& figures) {
    for (const auto& [key, value] : changed.items()) state_[key] = value;
    Json line = {{"time", SystemClock().unix_seconds()}, {"what", what}, {"says", says}};
    if (!figures.is_null()) line["figures"] = figures;
    const FileDescriptor log(::open((path_ / "audit.jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log) return Status::from_errno((path_ / "audit.jsonl").string(), errno);
    TRY(write_all(log.get(), dump_json_line(line) + "\n", (path_ / "audit.jsonl").string()));
    return write_file(path_ / "promotion.json", dump_json(with_format(state_, kPromotionFormat)) + "\n");
  }
  fs::path path_;
  FolderLock lock_;
  Json state_;
};

std::string progress_of(const Json& figures, double answers) {
  std::string text = fmt::format("{}{} % of the sessions: {:.0f} of {:.0f} answers, {:.0f} errors",
                                 figures["shadow"] == true ? "copies of " : "", figures["share"].get<double>() * 100,
                                 figures["answers"].get<double>(), answers, figures["errors"].get<double>());
  const auto add = [&](const char* key, const char* name) {
    const Json& one = figures[key];
    if (one.is_object()) text += fmt::format(", {} {:.2f} times", name, one["value"].get<double>());
  };
  add("first_token_ratio", "first token after");
  add("per_token_ratio", "a token in");
  return text;
}

bool is_of_absence(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kDeadline;
}

int finish(const PromotionFolder& folder, bool json) {
  const auto verdict = folder.verdict().get<std::string>();
  if (json) {
    fmt::print("{}\n",
               dump_json_line({{"verdict", verdict}, {"says", folder.says()}, {"folder", folder.path().string()}}));
  } else {
    fmt::print("{}: {}\n", verdict, folder.says().get<std::string>());
  }
  return verdict == "promoted" ? kDone : kRegression;
}

// What is to be promoted: by its files, since a folder may be written anew.
struct Checkpoint {
  std::string directory, digest;
  bool served(const PromotionState& state) const { return state.current_digest == digest; }
  bool on_trial(const PromotionState& state) const { return state.candidate_digest == digest; }
};

// What an earlier command has decided. Something else may be served since.
Result<int> decided_before(const PromoteOptions& o, const Checkpoint& checkpoint, const AdminClient& admin,
                           const PromotionFolder& folder) {
  if (folder.verdict() == "promoted") {
    const PromotionClient client(admin, o.model, {});
    auto state = TRY(client.state());
    // One that has just started reads its files once more to tell versions apart.
    for (const auto end = SystemClock().now() + kAway; state.current_digest.empty() && SystemClock().now() < end;) {
      std::this_thread::sleep_for(kLookEvery);
      state = TRY(client.state());
    }
    if (!checkpoint.served(state)) {
      return fail(Status::invalid(fmt::format("{} was promoted before, and the server serves {} now",
                                              checkpoint.directory, state.current))
                      .at(folder.path().string())
                      .hint("name another folder with --out to bring it into service again"));
    }
  }
  fmt::print(stderr, "decided before, as {} says; with another --out it is tried again\n",
             (folder.path() / "promotion.json").string());
  return finish(folder, o.json);
}

// Tells the server that the candidate is refused. The verdict stands without it: a share that nobody renews ends, and
// so does a candidate without requests.
void send_back(const PromotionClient& client, const Checkpoint& checkpoint, const Interrupt& interrupt) {
  const SystemClock clock;
  const auto lease_end = clock.now() + from_seconds(kLeaseSeconds);
  while (true) {
    const auto ended = client.end(false);
    if (ended) return;
    // One that was started again, or that was asked by somebody else, has let it go.
    if (const auto state = client.state(); state && !checkpoint.on_trial(*state)) return;
    if (!is_of_absence(ended.error()) || interrupt.requested() || clock.now() > lease_end) {
      fmt::print(stderr, "the server was not told, and takes the share back by itself: {}\n",
                 ended.error().to_string());
      return;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

// The trial on the server, until there is a verdict.
Result<int> try_on_traffic(const PromoteOptions& o, const Checkpoint& checkpoint, const AdminClient& admin,
                           PromotionFolder& folder) {
  using Kind = eval::PromotionStep::Kind;
  const auto interrupt = TRY(Interrupt::listen());
  const SystemClock clock;
  const PromotionClient client(admin, o.model, interrupt->token());
  ProgressLine line;
  std::optional<eval::PromotionTrial> trial;
  std::string begun_on;  // the server that the trial is on
  bool answered = false;
  Time heard = clock.now();
  int losses = 0;
  const auto undecided = [&](const std::string& why) -> Result<int> {
    line.wipe();
    TRY(folder.note("undecided", why));
    fmt::print(stderr, "undecided: {}; the same command goes on\n", why);
    return kIncomplete;
  };
  while (true) {
    if (interrupt->requested()) {
      line.wipe();
      const auto back = trial ? client.share(0, false, kLeaseSeconds) : Result<PromotionState>(PromotionState());
      TRY(folder.note("interrupted", "the version that was served has all requests"));
      fmt::print(stderr, "interrupted{}; the same command goes on\n",
                 back ? "" : fmt::format(" (the server was not told: {})", back.error().to_string()));
      return kInterrupted;
    }
    auto state = client.state();
    if (state) {
      answered = true;
      heard = clock.now();
    }
    if (state && checkpoint.served(*state) && !checkpoint.on_trial(*state)) {
      TRY(folder.note_verdict("promoted", "the server serves it", Json()));
      return finish(folder, o.json);
    }
    if (state && trial && state->candidate.empty() && state->server == begun_on)
      return undecided("somebody else has ended the trial");
    if (state && state->candidate.empty()) {
      if (trial) ++losses;
      if (losses >= kMostLosses)
        return undecided(fmt::format("the server was lost {} times while it had the candidate", losses));
      line.show("loading it beside the version that is served");
      state = client.begin(checkpoint.directory, checkpoint.digest);
      heard = clock.now();  // loading may have taken an hour
      trial.reset();
      if (!state && is_of_absence(state.error())) ++losses;
      // It may be served already: another command was first.
      if (state && !checkpoint.on_trial(*state)) {
        std::this_thread::sleep_for(kLookEvery);
        continue;
      }
    } else if (state && !checkpoint.on_trial(*state)) {
      return fail(Status::invalid(fmt::format("{} is on trial for {} already", state->candidate, state->model)));
    }
    if (!state) {
      if (!is_of_absence(state.error())) {
        if (interrupt->requested()) continue;
        return fail(std::move(state).error());
      }
      if (clock.now() - heard > (answered ? kAway : kFirstAnswer)) return undecided(state.error().to_string());
      line.show("the server is away: " + state.error().message());
      std::this_thread::sleep_for(kLookEvery);
      continue;
    }
    const bool begins = !trial;
    begun_on = state->server;
    if (begins) trial.emplace(o.terms, folder.stage());
    // The figures are those of the share that this step may end.
    const Json figures = begins ? Json() : trial->figures(state->reading, heard);
    const auto step = trial->step(state->reading, heard);
    switch (step.kind) {
      case Kind::kWait:
        line.show(progress_of(figures, o.terms.answers));
        break;
      case Kind::kShare:
        line.wipe();
        fmt::print(stderr, "{}\n", step.says);
        TRY(folder.note_stage(trial->stage(), step.says, figures));
        break;
      case Kind::kPromote: {
        line.wipe();
        const auto ended = client.end(true);
        if (!ended && is_of_absence(ended.error())) {
          // Whether it heard is seen once it is back: it serves the candidate then, or the trial begins anew.
          trial.reset();
          ++losses;
          break;
        }
        TRY(ended);
        TRY(folder.note_verdict("promoted", step.says, figures));
        return finish(folder, o.json);
      }
      case Kind::kBack:
        line.wipe();
        // Noted first: what is refused is not tried again, whatever becomes of the server.
        TRY(folder.note_verdict("refused", step.says, figures));
        send_back(client, checkpoint, *interrupt);
        return finish(folder, o.json);
      case Kind::kUndecided:
        // One that is away gives the share back by itself.
        if (const auto ended = client.end(false); !ended && !is_of_absence(ended.error())) return fail(ended.error());
        return undecided(step.says);
    }
    if (!trial) continue;
    // Its lease is renewed; where it has ended meanwhile, the next turn sees why.
    if (const auto renewed = client.share(trial->share(), trial->shadow(), kLeaseSeconds);
        !renewed && is_of_absence(renewed.error()))
      line.show("the server is away: " + renewed.error().message());
    std::this_thread::sleep_for(kLookEvery);
  }
}

Result<int> run_promote(PromoteOptions o) {
  o.terms.shadow = o.shadow / 100;
  o.terms.shares.clear();
  for (const double share : o.shares) {
    if (share <= (o.terms.shares.empty() ? 0 : o.terms.shares.back() * 100) || share > 100)
      return fail(Status::invalid("must rise, from above 0 to 100 (percent)").at("--shares"));
    o.terms.shares.push_back(share / 100);
  }
  if (o.terms.shares.empty() || o.terms.shares.back() != 1)
    return fail(Status::invalid("must end with 100 (percent)").at("--shares"));
  const auto admin = TRY(AdminClient::open(o.server, TRY(admin_key(o.key_variable))));
  std::error_code error;
  const auto directory = fs::canonical(TRY(run::model_directory(o.checkpoint)), error).string();
  if (error) return fail(Status::invalid(fmt::format("there is no folder {}", o.checkpoint)));
  auto digest = TRY(model::digest_of_model(directory));
  const Checkpoint checkpoint{directory, std::move(digest)};
  if (o.out.empty())
    o.out = fmt::format("promotions/{}", digest_of(checkpoint.digest + "\n" + o.server).hex().substr(0, 12));
  const Json identity = {
      {"directory", directory}, {"digest", checkpoint.digest}, {"server", o.server}, {"model", o.model},
      {"suite", o.suite},       {"shadow", o.shadow},          {"shares", o.shares}};
  auto folder = TRY(PromotionFolder::open(o.out, identity));
  if (folder.stage() >= o.terms.stages()) {
    return fail(Status::invalid(fmt::format("\"stage\" must be below {}", o.terms.stages()))
                    .at((folder.path() / "promotion.json").string()));
  }
  if (!folder.verdict().is_null()) return decided_before(o, checkpoint, admin, folder);
  fmt::print(stderr, "{} into service on {}; the record is in {}\n", directory, o.server, o.out);

  if (!o.suite.empty() && !folder.suite_passed()) {
    EvalOptions evaluation{.suite = o.suite, .out = (folder.path() / "evaluation").string(), .against = o.against};
    evaluation.overrides = o.overrides;
    evaluation.overrides.push_back("model=" + directory);
    const int code = TRY(run_eval(evaluation));
    if (code == kRegression) {
      TRY(folder.note_verdict("refused", "the suite says no: see " + evaluation.out + "/report.md", Json()));
      return finish(folder, o.json);
    }
    if (code != kDone) return code;
    TRY(folder.note_suite());
  }
  std::signal(SIGPIPE, SIG_IGN);
  return try_on_traffic(o, checkpoint, admin, folder);
}

}  // namespace

Action add_promote(CLI::App& command) {
  const auto o = std::make_shared<PromoteOptions>();
  command
      .add_option("CHECKPOINT", o->checkpoint, "Model directory, a run, or RUN@STEP; the server must see the folder")
      ->required();
  command.add_option("--server", o->server, "URL of the `tandem serve` that is to serve it")->required();
  command.add_option("--model", o->model, "Name of the model there (default: its first)");
  command.add_option("--suite", o->suite, "Suite that it must pass first (docs/evaluating.md)");
  command.add_option("--against", o->against, "Folder of the evaluation that the suite compares with");
  command.add_option("--set", o->overrides, "Keys of the suite: a.b=v");
  command.add_option("--out", o->out, "Folder of the record and the evaluation (default: below promotions/)");
  command.add_option("--admin-key-env", o->key_variable, "Environment variable with an admin's key of the server")
      ->capture_default_str();
  command.add_option("--shares", o->shares, "Percent of the sessions, one after the other")
      ->delimiter(',')
      ->capture_default_str();
  command
      .add_option("--shadow", o->shadow,
                  "First mirror requests of this percent of the sessions; their answers are discarded")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--answers", o->terms.answers, "Least answers of the candidate at each share")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command.add_option("--seconds", o->terms.seconds, "Least seconds at each share")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command.add_option("--limit", o->terms.limit_seconds, "Most seconds for the answers of a share")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command.add_option("--max-error-points", o->terms.max_error_points, "More errors in a hundred answers, at most")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--max-slowdown", o->terms.max_slowdown, "Times to the first token and per token, at most")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str();
  command
      .add_option("--max-acceptance-points", o->terms.max_acceptance_points,
                  "Fewer accepted answers in a hundred that were judged (POST /feedback), at most")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--confidence", o->terms.confidence, "Confidence level for a rejection, over the whole trial")
      ->check(CLI::Range(0.5, 0.9999))
      ->capture_default_str();
  command.add_flag("--json", o->json, "Print the verdict as a JSON object");
  command.footer(
      "The suite first; then the server loads it beside the version that it serves, and gives it copies of requests\n"
      "(--shadow), then a share of the sessions after the other. Where it fails more often, is slower or less "
      "accepted, it goes back at once. A command\n"
      "that is interrupted leaves the served version with all requests, and goes on when it is given again.\n\n"
      "Exit code 0: promoted; 2: usage, or the server refuses; 4: refused, with the figures; 5: undecided, too few\n"
      "answers or no server; 75: interrupted, the same command goes on.\n\n"
      "Examples:\n"
      "  tandem promote runs/coder@400 --server http://127.0.0.1:8000 --suite suite.yaml --against nights/monday\n"
      "  tandem promote runs/coder --server http://127.0.0.1:8000 --shares 10,100 --answers 50");
  return [o] { return run_promote(*o); };
}

}  // namespace tandem::cli
