// The operations of a transformer on a device, put on a stream with the arguments that the CPU's have (layer_ops.h), so
// that engine and trainer make the same calls. They differ in where results lie and what is remembered, which is in
// those who derive from this.
//
// Thread safety: none. Between `begin` and the end of the pass stream, weights and batch must live.
#pragma once

#include "kernels/device_stream.h"
#include "model/device/device_pages.h"
#include "model/device/device_weights.h"
#include "model/rotation.h"
#include "model/transformer.h"

namespace tandem::model {

// The arguments of an operation for elements of this type.
template <typename T, typename OfBf16, typename OfFloat>
using DeviceArguments = std::conditional_t<std::is_same_v<T, float>, OfFloat, OfBf16>;

// Where the rows of a batch write and read keys and values.
struct DevicePlaces {
  kernels::OnDevice<int32_t>* positions = nullptr;
  kernels::OnDevice<int32_t>* pages = nullptr;       // of all sequences
  kernels::OnDevice<int32_t>* first_page = nullptr;  // of a row's sequence, in `pages`
};

// Memory that grows: what was in it is lost then.
template <typename T>
Result<kernels::OnDevice<T>*> grown(kernels::DeviceStream& stream, kernels::DeviceBuffer<T>& buffer, size_t count,
                                    const char* purpose = "activations") {
  if (buffer.size() < count) {
    TRY(stream.wait());
    buffer = {};
    buffer = TRY(stream.allocate<T>(count, purpose));
  }
  return buffer.data();
}

// Which experts the rows of one layer go to (routes.h).
struct DeviceRoutes {
  kernels::DeviceBuffer<float> logits, weights;
  kernels::DeviceBuffer<int32_t> ids, offsets, places;
  int rows = 0;
};

// Experts that rows are given in place of their router's choice: [rows][top_k], -1 first where a row has none.
// `changed`
// ([rows]) becomes 1 where the router would choose others.
struct DeviceGivenRoutes {
  kernels::OnDevice<int32_t>* ids = nullptr;  // null: all rows choose
  kernels::OnDevice<int32_t>* changed = nullptr;
};

// What the expansion of latents made of queries on its way (LatentQueries), which the backward pass reads.
template <typename T>
struct DeviceLatentQueries {
  kernels::DeviceBuffer<T> normed;   // [rows][query_rank]
  kernels::DeviceBuffer<T> queries;  // [rows][heads * head_size]
};

template <typename T>
class DeviceLayerOps : public BasicOps<kernels::OnDevice<T>> {
 public:
  using Element = kernels::OnDevice<T>;
  using Tensor = BasicTensor<Element>;

  int max_positions() const { return rotation_.max_positions(); }

 protected:
  // `like` has the layout and the formats of all weights that follow.
  DeviceLayerOps(kernels::DeviceStream& stream, const Weights& like, int max_positions);
  // To be called before all else.
  Status prepare();
  void begin(const DeviceWeights& weights) { weights_ = &weights; }

  Status embed_rows(kernels::OnDevice<int32_t>* tokens, const Tensor& out);
  // Row ids[i] of x to row i of `out`.
  Status pick_rows(const Tensor& x, kernels::OnDevice<int32_t>* ids, const Tensor& out);
  // Normalizes rows [x.rows][x.columns] at `in`, as `x` describes them, to `out`.
  Status norm_rows(const Tensor& x, Element* in, int weight, Element* out);
  Status gate_rows(const Tensor& gate_up, Element* in, Element* out);
  Status add(Element* x, Element* y, size_t count);
  // out = x W + bias + residual. Bias -1: none; residual null: none.
  Status multiply(const Tensor& x, int weight, int bias, Element* residual, const Tensor& out);
  // Rows as the products with a parameter see them; valid until the next.
  Result<Element*> multiplied_by(int weight, const Tensor& x);
  Status norm_heads(const Tensor& qkv, int query_weight, int key_weight);
  Status norm_some(Element* x, size_t stride, int weight, float epsilon, int rows, int heads, int head_size);
  Status turn(Element* qkv, int64_t stride, kernels::OnDevice<int32_t>* positions, int rows, bool inverse = false);
  // Writes the keys and values of rows of [queries | keys | values] at `qkv`.
  Status write_pages(const DevicePages<T>& pages, int slot, Element* qkv, int64_t stride, int rows,
                     const DevicePlaces& places);
  Status attend(const DevicePages<T>& pages, int slot, int layer, const Tensor& qkv, const DevicePlaces& places,
                const Tensor& out, kernels::OnDevice<float>* log_sum = nullptr);
  Status expand(const Tensor& compressed, int layer, DeviceLatentQueries<T>& latents, const Tensor& out);
  Status project(const Tensor& gathered, int layer, const Tensor& out);
  Status choose(const Tensor& x, int router, int router_bias, DeviceRoutes& routes,
                const DeviceGivenRoutes& given = {});
  Status send(const DeviceRoutes& routes, const Tensor& x, Element* in, Element* out);
  Status multiply_groups(const DeviceRoutes& routes, int weight, const Tensor& x, const Tensor& out);
  Status gather_routes(const DeviceRoutes& routes, const Tensor& y, const Tensor& residual, const Tensor& out);

  kernels::DeviceStream* stream_;
  const ModelConfig config_;
  const ParameterLayout layout_;
  const WeightFormat format_;
  const kernels::AttentionShape shape_;
  const AttentionColumns columns_;
  const Rotation rotation_;
  const DeviceWeights* weights_ = nullptr;

 private:
  kernels::DeviceBuffer<float> turns_;  // cosines and sines
  kernels::DeviceBuffer<T> rounded_;
};

extern template class DeviceLayerOps<kernels::bf16>;
extern template class DeviceLayerOps<float>;

}  // namespace tandem::model
