// `tandem bench`: how fast the hot paths are here, beside what this machine could do at most.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <thread>

#include "base/json_line.h"
#include "bench/benchmarks.h"
#include "cli/command.h"
#include "cli/model/model_options.h"
#include "run/run_step.h"

namespace tandem::cli {

namespace {

struct Benchmark {
  const char* name;
  const char* summary;
  Result<std::vector<bench::Figure>> (*run)(const bench::Settings&);
  const char* model = nullptr;  // what --model names; nullptr: it measures no model
};
constexpr const char* kLanguageModel = "Model directory; without one a random model of the shape of SmolLM2-135M";
constexpr const char* kEncoder = "Directory of the encoder; without one a random one of the shape of all-MiniLM-L6-v2";
constexpr std::array kBenchmarks = {
    Benchmark{"kernels", "Products and the optimizer, beside peak arithmetic and read bandwidth", bench::bench_kernels},
    Benchmark{"cuda", "The kernels of libtandem_cuda.so on the first GPU", bench::bench_cuda},
    Benchmark{"engine", "Prefill and decode", bench::bench_engine, kLanguageModel},
    Benchmark{"encoder", "Texts through a sentence encoder, in fp32", bench::bench_encoder, kEncoder},
    Benchmark{"search", "Indexing and searching a folder of code", bench::bench_search, kEncoder},
    Benchmark{"constraints", "Masks of constrained decoding", bench::bench_constraints,
              "Model directory whose vocabulary is used; without one a made-up vocabulary of 150,000 tokens"},
    Benchmark{"tokenizer", "Text into tokens and back", bench::bench_tokenizer,
              "Model directory whose tokenizer is used; needed"},
    Benchmark{"checkpoint", "Reading weights, beside reading their files", bench::bench_checkpoint,
              "Model directory that is read; needed"},
    Benchmark{"trainer", "Training steps", bench::bench_trainer, kLanguageModel},
    Benchmark{"envs", "Sandboxes, calls, whole episodes", bench::bench_envs},
    Benchmark{"bases", "Workspaces that share the files of a whole repository", bench::bench_bases},
    Benchmark{"ledger", "Events, leases and commits of the coordinator's books", bench::bench_ledger},
    Benchmark{"serve", "Requests over HTTP, and tokens that are streamed", bench::bench_serve,
              "Model directory that is served; needed"},
    Benchmark{"load", "The server under more than it can answer at once", bench::bench_load,
              "Model directory that is served; needed"},
    Benchmark{"weights", "A new version of the weights, from trainer to engine", bench::bench_weights, kLanguageModel},
    Benchmark{"wire", "Messages between two sockets", bench::bench_wire},
};

struct BenchOptions {
  bench::Settings settings;
  std::string model, text, folder, weights = "bf16", isa, image, device = "cpu";
  bool json = false;
};

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const kernels::Isa isa : kernels::supported_isas()) names.emplace_back(to_string(isa));
  return names;
}

Result<int> run(const BenchOptions& options, const Benchmark& benchmark) {
  bench::Settings settings = options.settings;
  if (!options.model.empty()) settings.model = TRY(run::model_directory(options.model)).string();
  settings.text = options.text;
  settings.image = options.image;
  settings.folder = options.folder;
  if (benchmark.run == bench::bench_tokenizer || benchmark.run == bench::bench_cuda ||
      benchmark.run == bench::bench_ledger)
    settings.threads = 1;
  settings.device = TRY(place_of(options.device, 1)).device;
  settings.weights = TRY(model::weight_format_named(options.weights));
  for (const kernels::Isa isa : kernels::supported_isas())
    if (to_string(isa) == options.isa) settings.isa = isa;
  const auto figures = TRY(benchmark.run(settings));
  if (options.json) {
    for (const auto& figure : figures) {
      Json line = bench::to_json(figure);
      line["bench"] = benchmark.name;
      line["threads"] = settings.threads;
      fmt::print("{}\n", dump_json_line(line));
    }
  } else {
    fmt::print("{}, {} thread{}; medians, beside this machine's limits in the same run\n{}", benchmark.name,
               settings.threads, settings.threads == 1 ? "" : "s", bench::to_table(figures));
  }
  return kDone;
}

}  // namespace

Action add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  options->settings.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  command.require_subcommand(1);
  auto chosen = std::make_shared<const Benchmark*>(nullptr);
  for (const Benchmark& benchmark : kBenchmarks) {
    auto* sub = command.add_subcommand(benchmark.name, benchmark.summary);
    if (benchmark.model != nullptr) sub->add_option("--model", options->model, benchmark.model);
    if (benchmark.run == bench::bench_weights)
      sub->add_option("--learning-rate", options->settings.learning_rate, "Learning rate of the steps between versions")
          ->check(CLI::Range(1e-12, 1.0));
    if (benchmark.run == bench::bench_engine || benchmark.run == bench::bench_trainer ||
        benchmark.run == bench::bench_weights) {
      sub->add_option("--weights", options->weights, "Number format of the model's layers")
          ->check(CLI::IsMember(model::weight_format_names()));
    }
    if (benchmark.run == bench::bench_engine || benchmark.run == bench::bench_trainer)
      add_device_option(*sub, options->device);
    if (benchmark.run == bench::bench_kernels)
      sub->add_option("--isa", options->isa, "Instruction set (default: the fastest of this machine)")
          ->check(CLI::IsMember(isa_names()));
    if (benchmark.run != bench::bench_tokenizer && benchmark.run != bench::bench_cuda &&
        benchmark.run != bench::bench_ledger)
      sub->add_option("--threads", options->settings.threads, "Threads to compute with")->check(CLI::Range(1, 1024));
    sub->add_option("--seconds", options->settings.seconds, "Approximate seconds for each figure")
        ->check(CLI::Range(0.0, 3600.0));
    sub->add_flag("--json", options->json, "One JSON object a figure");
    if (benchmark.run == bench::bench_kernels) {
      sub->add_option("--op", options->settings.operation, "One operation alone")
          ->check(CLI::IsMember(bench::kernel_operations()));
      sub->add_option("--shape", options->settings.shape, "With --op gemm: MxNxK, such as 1x49152x576");
    }
    if (benchmark.run == bench::bench_envs)
      sub->add_option("--image", options->image, "Also containers of this image of podman or Docker");
    if (benchmark.run == bench::bench_bases)
      sub->add_option("--folder", options->folder,
                      "Folder that the base is made from (default: 100,000 files of 20 kB)")
          ->check(CLI::ExistingDirectory);
    if (benchmark.run == bench::bench_tokenizer)
      sub->add_option("--text", options->text, "The file to tokenise (default: 1 MB that looks like code)");
    sub->footer(fmt::format("Examples:\n  tandem bench {0}\n  tandem bench {0} --seconds 2 --json", benchmark.name));
    sub->callback([chosen, &benchmark] { *chosen = &benchmark; });
  }
  command.footer(
      "Example:\n  tandem bench engine --threads 2\n  tandem bench engine --weights fp8\n  tandem bench kernels "
      "--json\n  tandem bench kernels --op gemm --isa avx2\n  tandem bench tokenizer --model models/mine --text "
      "main.cpp");
  return [options, chosen] { return run(*options, **chosen); };
}

}  // namespace tandem::cli
