// Runs batches of one model on one device. Weights, pages of keys and values, and logits stay inside; callers use ids.
//
// A plan is submitted and gets a ticket; its answer is collected by the ticket. Plans run in the order in which they
// were submitted, and calls about pages in that order too: a page that is given away after `submit` is still that
// plan's. A row's token may be what an earlier plan samples, so the next plan can be submitted before the last answer
// is known. What a row gives depends on its tokens, their positions and the weights alone, never on the plan it is in
// (docs/numerics.md).
//
// A run of rows may name an adapter that was attached: its products are followed by it (live_adapter.h), those of other
// rows are not. Adapters stay beside whatever weights are live.
//
// Weights change between two plans: `stage` gives room for the bytes of a version, `prepare` makes of them what batches
// read, `flip` makes them those of the plans from then on, `roll_back` takes the last flip back.
//
// Thread safety: none, but for StagedWeights. Errors: kInvalid for a plan or a page that breaks a rule here; any other
// error leaves the executor fit for nothing but its destruction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/device.h"
#include "kernels/sampling.h"
#include "kernels/stream.h"
#include "model/batch.h"
#include "model/weight_format.h"

namespace tandem::model {

struct ModelConfig;
class Weights;

// Adapters that an executor holds at once, at most.
constexpr size_t kMostAdapters = 4096;

using Ticket = uint64_t;  // counts from 1, in the order of submission

// A token that is not known yet: what draw number `draw` of an uncollected plan samples.
struct LaterToken {
  Ticket ticket = 0;
  int draw = 0;
};

struct TokenBias {
  int32_t token = 0;
  float add = 0;  // finite
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

// One token to sample from the distribution after a row.
struct Draw {
  int row = 0;
  kernels::SamplingSettings sampling;
  uint64_t seed = 0;
  uint64_t position = 0;  // of the token that is drawn
  // Logits are multiplied by it before all else, and the token's `logprob` is of those: 1 / T for a policy that is at
  // temperature T, whose `sampling.temperature` is 1 then.
  float logit_scale = 1;
  // Where not all tokens are allowed: sets a bit for each that is, of cleared words for the vocabulary. Called once, by
  // any thread, between `submit` and the end of `collect`, so that the host can find the mask while the device
  // computes.
  std::function<void(std::span<uint64_t> allowed)> mask;
  // Added to logits before all else, each token at most once; the token's `logprob` stays the model's own.
  std::vector<TokenBias> bias;
  // The answer says which tokens it was drawn from (kernels::sample_kept), and the token's `logprob` is the model's
  // among those alone. Goes without a mask and a bias, at a temperature of 1, and no other draw of the
  // plan cuts something off without it.
  bool keeps = false;
};

struct Plan {
  Batch batch;
  // Computed with the weights before the last flip: kInvalid where their memory was staged since.
  bool before_flip = false;
  struct Later {
    int row = 0;  // whose token in `batch` is a placeholder
    LaterToken token;
  };
  std::vector<Later> later;
  std::vector<Draw> draws;
  std::vector<kernels::TokenPick> picks;  // tokens whose logprobs after a row are asked for, sorted by row
  std::vector<int> likeliest;             // rows whose likeliest next token is asked for
  struct Tops {
    int row = 0;
    int count = 0;  // at least 1
  };
  std::vector<Tops> tops;  // rows whose `count` likeliest next tokens are asked for with their logprobs
  bool routes = false;     // the experts of all rows are asked for: kInvalid where the model has none
};

struct Answer {
  std::vector<kernels::Sampled> draws;  // token -1: its mask allowed none
  // The tokens that each draw that asks for it was drawn from, ascending; empty: all. Empty where no draw asks.
  std::vector<std::vector<int32_t>> kept;
  std::vector<float> picks;
  std::vector<int32_t> likeliest;
  std::vector<std::vector<TokenLogprob>> tops;     // the likeliest first, ties by id
  std::vector<uint8_t> routes;                     // a row for each of the batch (base/expert_routes.h)
  double forward_seconds = 0, sample_seconds = 0;  // of the device
};

// Counts of device graphs captured from plans, and of their launches.
struct GraphCounters {
  uint64_t captured = 0, launched = 0;
};

// A version of the weights on its way into an executor. Belongs to one thread at a time, which need not be the
// executor's; must not outlive it.
class StagedWeights {
 public:
  virtual ~StagedWeights() = default;
  // Prepares the bytes of a version, in the layout of Weights::wire, for batches. The bytes stay the caller's. After an
  // error the object can only be destroyed.
  virtual Status prepare(std::span<const std::byte> wire) = 0;
  // Checks that the prepared data match these bytes; kCorrupt names the first mismatch.
  virtual Status verify(std::span<const std::byte> wire) = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ModelConfig& config() const = 0;
  virtual WeightFormat format() const = 0;
  virtual std::string numerics_id() const = 0;
  virtual int max_positions() const = 0;  // of a sequence
  // How many plans may be submitted before the oldest is collected, for the device never to wait: 1 where nothing is
  // won by more.
  virtual int depth() const = 0;

  // Pages of keys and values, of all layers: 0 to pages() - 1. Who holds which is the caller's.
  virtual int pages() const = 0;
  // Must be called for a page that is handed out: what it held may be infinite, and 0 * infinity is not 0.
  virtual Status clear(std::span<const int> pages) = 0;
  // A sequence that forks has a copy of the page that it goes on in; whole pages are shared.
  virtual Status copy(int from, int to) = 0;

  // Pages to host memory and back, `page_bytes()` each, one behind the other. A page that came back has the bits that
  // went out; so has one that comes to another executor of the same model, format and kind of device.
  virtual size_t page_bytes() const = 0;
  // Waits for the plans before it.
  virtual Status save(std::span<const int> pages, std::span<std::byte> host) = 0;
  // `host` may be written again when this returns.
  virtual Status load(std::span<const std::byte> host, std::span<const int> pages) = 0;

  // For plans from then on. kInvalid where it was made for another model, or the weights have one of their own; kUnfit
  // where the device holds none; kExhausted where there are kMostAdapters.
  virtual Result<AdapterId> attach(std::shared_ptr<const LiveAdapter> adapter) = 0;
  // No plan after this one names it. kInvalid where there is none of that id.
  virtual Status detach(AdapterId adapter) = 0;

  virtual Result<Ticket> submit(Plan plan) = 0;
  // Waits for the answer. Each ticket is collected once.
  virtual Result<Answer> collect(Ticket ticket) = 0;
  // None where nothing is done by graphs.
  virtual GraphCounters graphs() const { return {}; }

  // kExhausted where there is no memory for another version. Takes that of the version before the live one.
  virtual Result<std::unique_ptr<StagedWeights>> stage() = 0;
  // `staged` is of this executor and prepared.
  virtual Status flip(std::unique_ptr<StagedWeights> staged) = 0;
  // kNotFound where nothing was flipped, or the memory of the version before was taken by `stage`.
  virtual Status roll_back() = 0;

  // Gives the memory of pages, and of the version before the live one, back to the device until `wake`; what was in it
  // is lost. No plan is under way, and none is submitted meanwhile. Nothing where pages are memory of the host.
  virtual Status sleep() { return {}; }
  // kExhausted where others have the memory now; it can be called again then.
  virtual Status wake() { return {}; }
};

struct ExecutorSettings {
  int pages = 0;
  int max_positions = 0;
};

// On the threads of `stream`; the weights are packed. Answers are there when `submit` returns.
Result<std::unique_ptr<Executor>> make_cpu_executor(std::shared_ptr<const Weights> weights, kernels::Stream stream,
                                                    const ExecutorSettings& settings);

// On a device that is not the host, as find_device gave it. `weights` are encoded (Weights::encode) and not kept. Two
// plans may be under way. kUnfit where they have an adapter of their own.
Result<std::unique_ptr<Executor>> make_device_executor(const Weights& weights, const kernels::Device& device,
                                                       const ExecutorSettings& settings);

// Where a model computes: a device, and threads of the host, for a CPU's kernels or a device's preparations.
struct Place {
  kernels::Device device = {.kind = kernels::Device::Kind::kCpu};  // as find_device gave it
  int threads = 1;

  // Threads of the host with the bits of the device: of a GPU those of AVX2.
  Result<kernels::Stream> host_stream() const;
  // Makes of `flat` what an executor there reads.
  Status ready(Weights& weights) const;
};

// Either of the above, over weights that are ready.
Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Weights> weights, const Place& place,
                                                const ExecutorSettings& settings);

}  // namespace tandem::model
