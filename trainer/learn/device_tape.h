// The tape of a device: the records of tape_ops.h, computed there. Gradients are added up on the device, over passes
// and over slots; the host gets their sum.
//
// The operations and their arguments are the CPU's, so the bits are those of its AVX2 kernels. Forward in
// device_tape.cpp, backward in device_tape_backward.cpp, of latent attention in device_tape_latent.cpp.
//
// Thread safety: none.
#pragma once

#include "kernels/cuda/library.h"
#include "model/device/device_layer_ops.h"
#include "trainer/learn/tape_ops.h"

namespace tandem::trainer {

// A bump allocator in device memory; everything is freed at once.
class DeviceArena {
 public:
  Result<kernels::OnDevice<bf16>*> take(kernels::DeviceStream& stream, size_t count);
  void reset() { chunk_ = used_ = taken_ = 0; }
  size_t taken() const { return taken_; }  // elements

 private:
  std::vector<kernels::DeviceBuffer<bf16>> chunks_;
  size_t chunk_ = 0, used_ = 0, taken_ = 0;
};

// A base class, so that it is initialised before the operations, which keep a pointer to it.
struct DeviceTapeStream {
  explicit DeviceTapeStream(kernels::DeviceStream stream) : own(std::move(stream)) {}
  kernels::DeviceStream own;
};

class Tape::DevicePass final : private DeviceTapeStream, public model::DeviceLayerOps<bf16>, public Tape::Pass {
 public:
  using Element = kernels::OnDevice<bf16>;
  using Tensor = model::BasicTensor<Element>;

  static Result<std::unique_ptr<DevicePass>> create(const kernels::Device& device, const model::Weights& like,
                                                    int max_positions);

  Result<std::vector<float>> forward(kernels::Stream& stream, const model::Weights& weights, const TokenTree& tree,
                                     std::span<const TokenPick> picks, const TreeRoutes* routes, float logit_scale,
                                     std::span<const KeptTokens> kept) override;
  GivenRoutes given_routes() const override { return counts_; }
  Status backward(std::span<const float> grad_logprobs, const model::Slice& gradients, std::vector<float>* entropies,
                  std::span<const uint8_t> learned) override;
  Result<std::vector<float>> states() override;
  void add_to_states(std::span<const float> gradient) override { more_grad_states_ = gradient; }
  Result<std::vector<int32_t>> argmax(std::span<const int> rows) override;
  size_t kept_bytes() const override;
  std::unique_ptr<SlotMemory> slot_memory(size_t bytes) override;

  Result<Tensor> embed() override;
  Result<Tensor> norm(const Tensor& x, int weight) override;
  Result<Tensor> linear(const Tensor& x, int weight, int bias) override;
  Result<Tensor> linear_onto(const Tensor& x, int weight, int bias, const Tensor& residual) override;
  Result<Tensor> norm_onto(const Tensor& x, int weight, const Tensor& residual) override;
  Result<Tensor> head_norm(const Tensor& qkv, int query_weight, int key_weight) override;
  Result<Tensor> attention(const Tensor& qkv, int layer) override;
  Result<Tensor> expand_latents(const Tensor& compressed, int layer) override;
  Result<Tensor> project_values(const Tensor& gathered, int layer) override;
  Result<Tensor> swiglu(const Tensor& gate_up) override;
  Result<Tensor> dispatch(const Tensor& x, int router, int router_bias) override;
  Result<Tensor> grouped_linear(const Tensor& x, int weights) override;
  Result<Tensor> combine(const Tensor& y, const Tensor& residual) override;

 private:
  using enum TapeKind;
  using Record = TapeRecord<Tensor>;
  // A copy of a host array in device memory, valid until the next upload.
  template <typename T>
  class Sent {
   public:
    Result<kernels::OnDevice<T>*> send(kernels::DeviceStream& stream, std::span<const T> values) {
      auto* const at = TRY(model::grown(stream, memory_, values.size(), "a batch"));
      host_.assign(values.begin(), values.end());
      TRY(stream.upload(at, std::span<const T>(host_)));
      return at;
    }
    kernels::OnDevice<T>* data() const { return memory_.data(); }

   private:
    std::vector<T> host_;
    kernels::DeviceBuffer<T> memory_;
  };
  // A version of weights that was uploaded, by its edition.
  struct Uploaded {
    model::Weights::Edition edition;
    std::unique_ptr<model::DeviceWeights> weights;
    uint64_t used = 0;
  };

  DevicePass(kernels::DeviceStream stream, const model::Weights& like, int max_positions);

  Result<const model::DeviceWeights*> on_device(const model::Weights& weights);
  Status send_tree(const TokenTree& tree);
  Status send_runs();
  Status send_routes(const TreeRoutes* routes);
  Status count_routes(const TreeRoutes& routes);
  Result<std::vector<float>> head(std::span<const TokenPick> picks, std::span<const KeptTokens> kept);
  Result<Element*> head_states(std::span<const int> rows);

  bool learns(int parameter) const { return learned_.empty() || learned_[parameter] != 0; }
  kernels::OnDevice<float>* grad_of(int parameter) const {
    return kernels::beyond(gradients_, layout_.parameters[parameter].offset);
  }
  // The gradient of a norm, whose kernel has no way to leave it out.
  Result<kernels::OnDevice<float>*> grad_of_norm(int parameter);
  Result<Tensor> record(Record entry, int rows, int columns);
  Result<Element*> recompute(const Record& record);
  Result<Element*> input_of(const Record& record);
  Result<Element*> multiplied_input_of(const Record& record);
  Status compute(const Record& record, Element* in, Element* out);
  kernels::DeviceBuffer<bf16>& scratch_of(const Record& record) {
    return record.kind == kDispatch ? dispatched_ : scratch_;
  }
  class DeviceSlotMemory;
  // Sets floats, and elements, to 0.
  Status clear(kernels::OnDevice<float>* values, int rows, int columns);
  Status clear(Element* values, int rows, int columns);
  // The bf16 matrix of a parameter, expanded where it is quantised.
  Result<Element*> matrix_of(int parameter);

  Status backward(const Record& record);
  Status head_backward(std::span<const float> grad_logprobs, std::vector<float>* entropies);
  // How many rows of the tree have gradients of states, which lie in front then: those of a row that comes several
  // times are added up.
  Result<int> add_up_states();
  // Adds what add_to_states() has to the gradients of `rows` rows of the head, on the host.
  Status add_more_grad_states(int rows);
  Status norm_backward(const Record& record, Element* grad_out, Element* grad_x, bool accumulate);
  Status linear_backward(const Record& record, Element* grad_out);
  // Columns of all rows of a matrix.
  struct Columns {
    Element* data = nullptr;
    int64_t stride = 0;
    int count = 0;
  };
  // target [outputs][inputs] += the transpose of grad_out times x.
  Status add_gradient(kernels::OnDevice<float>* target, const Columns& x, const Columns& grad_out);
  Status add_weight_gradient(int weight, Element* x, int inputs, Element* grad_out, int stride);
  Status input_gradient(int weight, Element* grad_out, int stride, Element* residual, const Columns& out);
  // Columns of rows, of one group after the other.
  Status copy_columns(const Columns& from, size_t from_group, Element* to, size_t to_stride, size_t to_group,
                      int groups);
  Status head_norm_backward(const Record& record);
  Status head_norm_backward(int weight, Element* x, Element* grad, int64_t stride, float epsilon, int heads,
                            int head_size);
  Status attention_backward(const Record& record);
  Status project_values_backward(const Record& record);
  Status expand_latents_backward(const Record& record);
  Status combine_backward(const Record& record);
  Status grouped_linear_backward(const Record& record);
  Status dispatch_backward(const Record& record);

  std::vector<Uploaded> uploaded_;
  uint64_t uses_ = 0;
  const TokenTree* tree_ = nullptr;
  std::span<const uint8_t> learned_;
  int rows_ = 0;
  bool have_residual_grad_ = false;
  DeviceArena arena_;
  std::vector<Record> records_;
  std::vector<kernels::DeviceBuffer<float>> log_sums_;     // of each layer
  std::vector<model::DeviceLatentQueries<bf16>> latents_;  // of each layer, where attention is latent
  std::vector<model::DeviceRoutes> routes_;                // of each layer with experts
  size_t routes_used_ = 0;
  Sent<int32_t> given_ids_;                       // of the pass at hand, where experts are given
  kernels::DeviceBuffer<int32_t> given_changed_;  // [layers][rows]
  model::DeviceGivenRoutes given_;                // of all layers
  GivenRoutes counts_;
  Tensor hidden_;

  // Rows of the tree, and rows of ancestors at the start of a page.
  Sent<int32_t> tokens_, positions_, pages_table_, first_page_, copied_rows_, copied_positions_, copied_first_page_;
  int copied_ = 0;
  std::optional<model::DevicePages<bf16>> pages_;
  kernels::DeviceBuffer<bf16> copied_columns_;
  Sent<TandemCudaTreeRun> runs_;
  Sent<int32_t> row_run_, paths_;
  TreePaths tree_paths_;

  HeadRows head_;
  std::vector<TandemCudaPick> head_picks_;
  Sent<int32_t> head_rows_sent_;
  Sent<TandemCudaPick> head_picks_sent_;
  float logit_scale_ = 1;           // of the pass at hand
  std::vector<float> head_scales_;  // of the picked rows; empty: 1
  Sent<float> head_scales_sent_;
  Sent<uint64_t> head_kept_sent_;
  Sent<float> grad_logprobs_;
  kernels::DeviceBuffer<float> head_log_sum_, head_logprobs_, head_entropy_, grad_states_;
  kernels::DeviceBuffer<int32_t> head_argmax_;
  kernels::DeviceBuffer<bf16> head_states_;
  std::span<const float> more_grad_states_;  // for the next way back

  kernels::DeviceBuffer<float> grads_, unwanted_, grad_weights_;
  kernels::OnDevice<float>* gradients_ = nullptr;  // of the pass at hand
  kernels::DeviceBuffer<bf16> scratch_, dispatched_, matrix_, transposed_;
  kernels::DeviceBuffer<bf16> grad_residual_, grad_branch_, grad_wide_, grad_dispatched_, grad_logits_;
  kernels::DeviceBuffer<bf16> grad_spare_, grad_queries_, grad_latents_;
};

}  // namespace tandem::trainer
