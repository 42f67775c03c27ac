// The benchmarks of `tandem bench`, one function for each hot path.
//
// Each measures the machine's limits itself, in the same run, since they change with what else the machine does.
// Figures are medians of several rounds. Thread safety: none, and the machine should be idle.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "bench/figure.h"
#include "model/executor.h"
#include "model/weight_format.h"

namespace tandem::bench {

struct Settings {
  fs::path model;  // Hugging Face directory; where it is empty a random model of SmolLM2-135M's shape is used
  model::WeightFormat weights = model::WeightFormat::kBf16;  // of the model's layers
  int threads = 1;
  std::optional<kernels::Isa> isa;                                 // of bench_kernels; default: the fastest
  kernels::Device device = {.kind = kernels::Device::Kind::kCpu};  // of bench_engine and bench_trainer
  model::Place place() const { return {.device = device, .threads = threads}; }
  double seconds = 1;           // for each figure, about
  float learning_rate = 1e-6f;  // of bench_weights alone
  // For bench_kernels only.
  std::string operation;  // one of kernel_operations(); empty: all
  std::string shape;      // of a gemm, "MxNxK"; empty: those that matter
  fs::path text;          // of bench_tokenizer alone: the file to tokenise; empty: 1 MB that looks like code
  fs::path folder;        // of bench_bases alone: what the base is made from; empty: 100,000 files of 20 kB
  std::string image;      // of bench_envs alone: of a container engine; empty: no containers
};

std::vector<std::string> kernel_operations();
Result<std::vector<Figure>> bench_kernels(const Settings& settings);
// The same operations of libtandem_cuda.so on the first GPU; kUnfit where there is none.
Result<std::vector<Figure>> bench_cuda(const Settings& settings);
// Prefill, and decode at context 256 with 1, 16 and 64 sequences: apart, and in groups of 8 that share their prompt;
// with LoRA adapters, and with drafts.
Result<std::vector<Figure>> bench_engine(const Settings& settings);
// Texts through a sentence encoder, a random one of the shape of all-MiniLM-L6-v2 where `model` is empty.
Result<std::vector<Figure>> bench_encoder(const Settings& settings);
// Embedding pieces of code, and searching a folder of 10,000 files: looking for changes, an update, a query. The same
// encoder.
Result<std::vector<Figure>> bench_search(const Settings& settings);
// The mask of allowed tokens before each token of a text under a constraint, over `model`'s vocabulary or a made-up one
// of 150,000 tokens.
Result<std::vector<Figure>> bench_constraints(const Settings& settings);
// Text into the tokens of `model` and back, with one thread.
Result<std::vector<Figure>> bench_tokenizer(const Settings& settings);
// Reading the weights of `model`, from the disk and from the page cache, beside reading the files alone.
Result<std::vector<Figure>> bench_checkpoint(const Settings& settings);
// Forward and backward, the optimizer's step, and what follows it.
Result<std::vector<Figure>> bench_trainer(const Settings& settings);
// Episodes, tool calls and sandboxes.
Result<std::vector<Figure>> bench_envs(const Settings& settings);
// Workspaces that begin on a base that all share.
Result<std::vector<Figure>> bench_bases(const Settings& settings);
// The books of a run: an event at the millionth episode, leases, commits on disk, restarts.
Result<std::vector<Figure>> bench_ledger(const Settings& settings);
// Requests over loopback beside bare sockets, and tokens streamed by the server of `model` beside its engine alone.
Result<std::vector<Figure>> bench_serve(const Settings& settings);
// The server of `model` under load: suggestions while somebody types beside other work, and answers in time at several
// times the rate that it can hold.
Result<std::vector<Figure>> bench_load(const Settings& settings);
// A new version of the weights, from the trainer's numbers to an engine's on the same host, and how much of it is sent.
Result<std::vector<Figure>> bench_weights(const Settings& settings);
// Messages between two processes' sockets.
Result<std::vector<Figure>> bench_wire(const Settings& settings);

}  // namespace tandem::bench
