// `tandem eval`: a model on a suite of tasks, night after night, with gates.
#include <fmt/format.h>

#include <csignal>
#include <thread>

#include "base/host_memory.h"
#include "base/iso_time.h"
#include "base/json_line.h"
#include "cli/command.h"
#include "cli/eval/eval_commands.h"
#include "cli/eval/eval_view.h"
#include "cli/interrupt.h"
#include "cli/model/model_options.h"
#include "cli/progress_line.h"
#include "cli/run/prepare_bases.h"
#include "cli/run/search_progress.h"
#include "envs/backends/backends.h"
#include "envs/packages/cache.h"
#include "envs/search/searching_backend.h"
#include "eval/judge.h"
#include "eval/shared_engine.h"
#include "eval/tasks.h"
#include "model/model_digest.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

// The model of an evaluation: what it is called, what tells it from others, and who samples it.
struct EvalModel {
  std::string name, digest;
  std::optional<eval::EndpointTerms> endpoint;
};

Result<EvalModel> find_model(eval::Suite& suite, const fs::path& out) {
  EvalModel model;
  if (!suite.model.empty()) {
    const auto directory = TRY(eval::model_directory(suite.model));
    suite.model = directory.string();
    model.name = suite.model;
    model.digest = TRY(model::digest_of_model(directory));
    return model;
  }
  auto terms = TRY(eval::endpoint_terms(suite));
  if (terms.model.empty()) {
    // A server that is gone cannot say it again.
    const auto head = eval::read_head(out);
    if (head && head->identity.model != eval::kUnknownModel) {
      terms.model = head->identity.model;
    } else {
      auto only = eval::only_model_of(terms);
      const bool is_gone =
          !only && (only.error().code() == Code::kUnavailable || only.error().code() == Code::kDeadline);
      terms.model = is_gone ? std::string(eval::kUnknownModel) : TRY(std::move(only));
    }
  }
  model.name = terms.model;
  model.digest = eval::digest_of_endpoint(terms.model);
  model.endpoint = std::move(terms);
  return model;
}

Result<int> judge_and_write(const eval::Identity& identity, const eval::EvaluationFolder& folder,
                            const eval::Terms& terms, const std::string& against, bool json) {
  const auto verdict = TRY(eval::judge(identity, folder.samples(), folder.path(), terms, against));
  TRY(eval::write_outcome(verdict, folder.path()));
  print_verdict(verdict, folder.path(), json);
  return verdict.code;
}

// A disk that is full, and the like: what has ended is kept.
Status with_way_on(Status status) {
  if (status.code() != Code::kExhausted || !status.hint().empty()) return status;
  return std::move(status).hint("make room there; the same command goes on with what has not ended");
}

struct OpenModel {
  std::unique_ptr<eval::ModelSource> model;
  std::function<std::unique_ptr<eval::EndpointWatch>(std::function<void(std::string)>)> watch;
};

Result<OpenModel> open_model(const eval::Suite& suite, const EvalModel& model, const Clock& clock) {
  OpenModel open;
  if (model.endpoint) {
    auto source = std::make_unique<eval::EndpointSource>(*model.endpoint, clock);
    open.watch = [&terms = *model.endpoint, &source = *source, &clock](std::function<void(std::string)> on_gone) {
      return std::make_unique<eval::EndpointWatch>(terms, source, clock, std::move(on_gone));
    };
    open.model = std::move(source);
    return open;
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto format = TRY(number_format({.dtype = {}, .weights = suite.weights}, suite.model));
  const auto place = TRY(place_of(suite.device, suite.threads > 0 ? suite.threads : cores));
  eval::EngineTerms terms{.model = suite.model,
                          .format = format,
                          .slots = suite.concurrency,
                          .max_tokens = suite.limits.context,
                          .place = place,
                          .conversation = {.now = parse_iso_time(suite.now),
                                           .special_in_content = suite.special_tokens_in_content == "tokens"
                                                                     ? model::SpecialInContent::kTokens
                                                                     : model::SpecialInContent::kText},
                          .temperature = suite.temperature,
                          .max_new_tokens = suite.limits.max_new_tokens,
                          .tools = suite.profile.tools,
                          .system = suite.profile.system,
                          .compaction = suite.profile.compaction};
  if (terms.place.device.kind == kernels::Device::Kind::kCpu) {
    const uint64_t bytes = TRY(eval::EngineSource::memory_of(terms));
    const auto lack = memory_warning(bytes, bytes, memory_room(), address_space_limit());
    if (!lack.empty()) {
      fmt::print(stderr,
                 "warning: not enough memory for the model: {}; lower concurrency or limits.context, or give it "
                 "more\n",
                 lack);
    }
  }
  open.model = TRY(eval::EngineSource::load(std::move(terms)));
  return open;
}

}  // namespace

namespace {

Result<int> evaluate_suite(const EvalOptions& o) {
  auto overrides = o.overrides;
  if (!o.endpoint.empty()) {
    overrides.push_back("endpoint.url=" + o.endpoint);
    overrides.emplace_back("model=");
  }
  if (!o.device.empty()) overrides.push_back("device=" + o.device);
  auto suite = TRY(eval::read_suite(o.suite, overrides, keys_of_all_configs()));
  if (suite.model.find('@') != std::string::npos && !fs::is_directory(suite.model)) {
    // A step of a run: read again, since the profile is the model's.
    overrides.push_back("model=" + TRY(run::model_directory(suite.model)).string());
    suite = TRY(eval::read_suite(o.suite, overrides, keys_of_all_configs()));
  }
  const auto encoder = TRY(run::encoder_for(suite.profile.tools, suite.env.encoder, "env.encoder"));
  if (encoder) suite.encoder_id = TRY(envs::index_model_of(*encoder)).id.hex();
  const auto shard = o.shard.empty() ? eval::Shard() : TRY(eval::Shard::parse(o.shard));
  if (!o.against.empty()) TRY(eval::read_night(o.against));
  if (suite.temperature == 0 && suite.samples > 1)
    fmt::print(stderr, "note: at temperature 0 the {} samples of a task are mostly the same\n", suite.samples);
  const auto tasks = TRY(eval::read_suite_tasks(suite));
  const auto model = TRY(find_model(suite, o.out));
  const auto identity = eval::identity_of(suite, tasks, model.name, model.digest, shard);
  TRY(eval::check_comparable(identity, o.out, o.against));
  const eval::Terms terms{suite.gates, suite.prices};
  const SystemClock clock;
  std::optional<OpenModel> source;
  // A model that cannot be loaded leaves no folder that would refuse the one that is mended.
  std::error_code error;
  if (!fs::exists(fs::path(o.out) / "evaluation.json", error)) source = TRY(open_model(suite, model, clock));
  auto folder = TRY(eval::EvaluationFolder::open(o.out, identity, terms));

  std::signal(SIGPIPE, SIG_IGN);  // a server that is gone is seen where it is written to
  const auto open = eval::open_samples(identity, suite.gates, folder.samples());
  if (!open.empty()) {
    const auto interrupt = TRY(Interrupt::listen());
    const auto backend = TRY(envs::start_sandboxes("", suite.env.sandbox, suite.env.engine));
    TRY(prepare_bases(tasks));
    if (!source) source = TRY(open_model(suite, model, clock));
    std::unique_ptr<envs::CodeSearcher> searcher;
    if (encoder) {
      TRY(prepare_search(*encoder, tasks, o.out));
      const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
      searcher = TRY(run::searcher_of_run(*encoder, o.out, threads));
    }
    std::optional<envs::SnapshotIndexes> snapshots;
    std::optional<envs::SearchingBackend> searching;
    if (searcher) searching.emplace(*backend, *searcher, snapshots.emplace(*searcher));
    const auto packages = TRY(envs::PackageCache::open({.settings = suite.env.packages,
                                                        .call_seconds = suite.profile.call_seconds,
                                                        .record = fs::path(o.out) / envs::kLockName}));
    ProgressLine line;
    const eval::EvaluationJob job{.suite = suite,
                                  .tasks = tasks,
                                  .identity = identity,
                                  .backend = searching ? static_cast<envs::SandboxBackend&>(*searching) : *backend,
                                  .packages = packages,
                                  .source = *source->model,
                                  .watch = source->watch,
                                  .on_progress = [&](const auto& progress) { line.show(progress_text(progress)); },
                                  .stop = interrupt->token()};
    const auto over = TRY(eval::evaluate(job, folder, clock));
    line.wipe();
    if (over.end == eval::ScheduleEnd::kInterrupted) {
      fmt::print(stderr, "interrupted; the same command goes on\n");
      return kInterrupted;
    }
    if (!over.why.empty()) fmt::print(stderr, "the rest was given up: {}\n", over.why);
  }
  return judge_and_write(identity, folder, terms, o.against, o.json);
}

}  // namespace

Result<int> run_eval(const EvalOptions& o) {
  auto code = evaluate_suite(o);
  if (!code) return fail(with_way_on(std::move(code).error()));
  return code;
}

Result<int> merge_evals(const std::vector<std::string>& parts, const std::string& out, const std::string& against,
                        bool json) {
  std::optional<eval::FolderHead> first;
  std::map<int, std::string> places;
  for (const auto& part : parts) {
    auto head = TRY(eval::read_head(part));
    if (first) {
      const auto difference = eval::first_difference(first->identity, head.identity, eval::CompareShards::kNo);
      if (!difference.empty() || first->identity.shard.count != head.identity.shard.count) {
        return fail(Status::invalid(fmt::format("is no part of the same evaluation as {}: {}", parts[0],
                                                difference.empty() ? "it is cut into other parts" : difference))
                        .at(part));
      }
    }
    if (const auto [place, fresh] = places.emplace(head.identity.shard.index, part); !fresh) {
      return fail(Status::invalid(fmt::format("is part {}, as {} is", head.identity.shard.to_string(), place->second))
                      .at(part));
    }
    if (!first) first = std::move(head);
  }
  for (int i = 1; i <= first->identity.shard.count; ++i) {
    if (places.contains(i)) continue;
    return fail(Status::invalid(fmt::format("part {}/{} is not among them", i, first->identity.shard.count))
                    .hint("run it by --shard, and name its folder too"));
  }
  auto identity = first->identity;
  identity.shard = {};
  TRY(eval::check_comparable(identity, out, against));
  auto folder = TRY(eval::EvaluationFolder::open(out, identity, first->terms));
  for (const auto& [index, part] : places) {
    const auto samples = TRY(eval::read_samples(fs::path(part) / "episodes.jsonl"));
    for (const auto& [key, sample] : samples) {
      Json transcript;
      if (!sample.transcript.empty()) transcript = TRY(parse_json(TRY(read_file(fs::path(part) / sample.transcript))));
      TRY(folder.add(sample, transcript));
    }
  }
  return judge_and_write(identity, folder, first->terms, against, json);
}

Result<int> compare_evals(const std::string& before, const std::string& after, double confidence, bool json) {
  const auto flaky = eval::flaky_tasks(TRY(eval::read_history(before)));
  auto comparison = eval::compare(TRY(eval::read_night(before)), TRY(eval::read_night(after)), confidence, flaky);
  comparison.directory = before;
  if (!comparison.difference) {
    return fail(Status::invalid(
        fmt::format("{} and {} share no task that is the same and has a verdict in both", before, after)));
  }
  if (json)
    fmt::print("{}\n", dump_json_line(eval::to_json(comparison)));
  else
    print_comparison("before", comparison);
  return comparison.is_regression() ? kRegression : kDone;
}

Result<int> show_eval_history(const std::string& folder, bool json) {
  const auto lines = TRY(eval::gather_history(folder));
  if (json)
    fmt::print("{}", eval::history_text(lines));
  else
    print_history(lines);
  return kDone;
}

Result<int> bless_eval(const std::string& folder) {
  TRY(eval::bless(folder, SystemClock().unix_seconds()));
  fmt::print("{} is the blessed evaluation of the folder that it lies in\n", folder);
  return kDone;
}

namespace {

constexpr const char* kCodes =
    "Exit code 0: done; 1: failed; 2: usage, or the folder holds another evaluation; 3: this machine lacks something;\n"
    "4: worse than before at the confidence of the suite, or a gate failed; 5: too many samples without a verdict, "
    "the\n"
    "same command tries them again; 75: interrupted, the same command goes on.";

}  // namespace

Action add_eval(CLI::App& command) {
  const auto o = std::make_shared<EvalOptions>();
  const auto parts = std::make_shared<std::vector<std::string>>();
  const auto folder = std::make_shared<std::string>(), other = std::make_shared<std::string>();
  const auto confidence = std::make_shared<double>(0.95);
  command.require_subcommand(0, 1);
  auto* suite = command.add_option("SUITE", o->suite, "The suite, a YAML file: docs/evaluating.md has its keys");
  command.add_option("OVERRIDES", o->overrides, "Keys of the suite: a.b=v");
  auto* out = command.add_option("--out", o->out, "Folder of this evaluation; one that was begun is continued");
  command.add_option("--against", o->against, "Folder of the evaluation to compare with: last night's");
  command.add_option("--endpoint", o->endpoint, "OpenAI-compatible server, in place of the suite's model");
  command.add_option("--shard", o->shard, "Part i of n of the tasks, as i/n; `tandem eval merge` makes one of them");
  command.add_option("--device", o->device,
                     "Device of the model: auto, cpu, cpu:avx2 and the like, cuda:0, cuda:0:tensor, emulated:0");
  command.add_flag("--json", o->json, "Print results.json, in a line");
  command.footer(fmt::format(
      "DIR gets results.json, junit.xml, report.md, report.html, history.jsonl, episodes.jsonl and transcripts/.\n"
      "A failure of servers or sandboxes is tried again and never counts as a sample that did not pass.\n{}\n\n"
      "Examples:\n"
      "  tandem eval examples/nightly/suite.yaml --out nights/monday\n"
      "  tandem eval examples/nightly/suite.yaml --out nights/tuesday --against nights/monday\n"
      "  tandem eval suite.yaml --out nights/tuesday --endpoint http://127.0.0.1:8000 samples=8\n"
      "  tandem eval suite.yaml --out part-1 --shard 1/2\n"
      "  tandem eval merge part-1 part-2 --out nights/tuesday --against nights/monday\n"
      "  tandem eval compare nights/monday nights/tuesday\n"
      "  tandem eval bless nights/monday\n"
      "  tandem eval history nights",
      kCodes));

  auto* bless = command.add_subcommand("bless", "Compare later evaluations beside it with this one, too");
  bless->add_option("DIR", *folder, "Folder of an evaluation")->required();
  bless->footer(
      "Written to blessed.json in the folder that DIR lies in. A loss that is small from night to night, and adds up, "
      "is\nseen against it.\n\nExample:\n  tandem eval bless nights/monday");
  auto* history = command.add_subcommand("history", "Night after night: pass rates, seconds, exit codes, flaky tasks");
  history->add_option("DIR", *folder, "Folder of an evaluation, or one that has several")->required();
  history->add_flag("--json", o->json, "Print a JSON object a night");
  history->footer("Example:\n  tandem eval history nights");
  auto* compare = command.add_subcommand("compare", "The difference of two evaluations, and how sure it is");
  compare->add_option("BEFORE", *other, "Folder of an evaluation")->required();
  compare->add_option("AFTER", *folder, "Folder of another one")->required();
  compare->add_option("--confidence", *confidence, "Confidence level at which a regression counts")
      ->check(CLI::Range(0.5, 0.9999))
      ->capture_default_str();
  compare->add_flag("--json", o->json, "Print one JSON object, as `against` of results.json");
  compare->footer(
      "Exit code 0: no loss that is sure; 2: usage, or nothing to compare; 4: a loss at the confidence.\n\n"
      "Example:\n  tandem eval compare nights/monday nights/tuesday --confidence 0.99");
  auto* merge = command.add_subcommand("merge", "Make one evaluation of the parts that --shard made");
  merge->add_option("DIR", *parts, "Folders of all parts")->required();
  merge->add_option("--out", o->out, "Folder of the whole")->required();
  merge->add_option("--against", o->against, "Folder of the evaluation to compare with");
  merge->add_flag("--json", o->json, "Print results.json, in a line");
  merge->footer(fmt::format("{}\n\nExample:\n  tandem eval merge part-1 part-2 --out nights/tuesday", kCodes));

  return [=]() -> Result<int> {
    if (bless->parsed()) return bless_eval(*folder);
    if (history->parsed()) return show_eval_history(*folder, o->json);
    if (compare->parsed()) return compare_evals(*other, *folder, *confidence, o->json);
    if (merge->parsed()) return merge_evals(*parts, o->out, o->against, o->json);
    if (suite->count() == 0) return fail(Status::invalid("give a suite: tandem eval SUITE.yaml --out DIR"));
    if (out->count() == 0) return fail(Status::invalid("say where results go: --out DIR"));
    return run_eval(*o);
  };
}

}  // namespace tandem::cli
