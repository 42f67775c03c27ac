// The weights of one version of a model: one flat array, bf16 or in float32 fp32, what is sent of it, and the panels
// that products read.
//
// `flat` is what is stored; `pack` derives all else from it. In bf16 `flat` is also what is sent. In fp8 and mxfp8 that
// is `wire`: matrices of the layers are quantised once, there, and the panels hold their codes, for training what the
// codes stand for, at the sender and, after `pack_received`, at the receiver alike. A Weights is written by one owner
// and may then be read by many.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/digest.h"
#include "base/file.h"
#include "kernels/gemm.h"
#include "model/parameters.h"
#include "model/safetensors.h"
#include "model/slice.h"
#include "model/weight_format.h"

namespace tandem::model {

class LiveAdapter;

class Weights {
 public:
  // All zeros. `for_training` also keeps the transposed panels that the backward pass reads; kInvalid in float32.
  static Result<Weights> create(const ModelConfig& config, bool for_training,
                                WeightFormat format = WeightFormat::kBf16);

  // Bytes: of `flat`; of `wire`, where that is apart; of all panels; and how much of the first `give_back_flat` gives
  // back.
  struct Memory {
    size_t flat = 0, wire = 0, panels = 0, returned = 0;
    size_t all() const { return flat + wire + panels; }
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // Memory that `create` and `pack` of such weights would allocate.
  static Result<Memory> memory_of(const ModelConfig& config, bool for_training,
                                  WeightFormat format = WeightFormat::kBf16);
  // Memory that these have allocated.
  Memory memory() const;

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  bool for_training() const { return for_training_; }
  WeightFormat format() const { return format_; }
  // The format of products with this parameter: format() for matrices of the layers, bf16 for all others.
  WeightFormat format_of(int parameter) const { return quantized_[parameter] ? format_ : WeightFormat::kBf16; }

  // In float32 it is the one of float, else that of bf16; the other is empty, as are its values and panels.
  template <typename T = kernels::bf16>
  std::span<T> flat() {
    Buffer<T>& all = in<T>().flat;
    return {all.data(), all.size()};
  }
  template <typename T = kernels::bf16>
  std::span<const T> flat() const {
    return const_cast<Weights*>(this)->flat<T>();
  }
  // `flat` as the slice "weights", of the format that these have.
  Slice slice();
  ConstSlice slice() const { return const_cast<Weights*>(this)->slice(); }

  // The fp32 numbers of a parameter that is split into three.
  std::vector<float> split_values(int parameter) const;

  // The published bytes: `flat`, or parameter by parameter the codes and then the scales of what is quantised (each
  // expert in blocks of its own), bf16 of the rest.
  std::span<std::byte> wire();
  std::span<const std::byte> wire() const { return const_cast<Weights*>(this)->wire(); }

  // Where in `wire` a parameter begins, and its scales where it is quantised: group after group, each of whole blocks.
  struct WirePlace {
    size_t values = 0, scales = 0;  // bytes from the start
  };
  WirePlace wire_place(int parameter) const;

  // A stretch of `wire`: the values of a parameter, or the scales of one that is quantised. What lies between two of
  // them is zero.
  struct WirePart {
    std::string name;  // of the parameter; of scales with " scales"
    uint64_t begin = 0, bytes = 0;
    uint32_t element_bytes = 0;  // 1, 2 or 4
    friend bool operator==(const WirePart&, const WirePart&) = default;
  };
  // All of them, in the order of `wire`.
  std::vector<WirePart> wire_parts() const;

  // Another one after each of the calls below; the same one means the same bytes of `wire`.
  using Edition = std::shared_ptr<const int>;
  const Edition& edition() const { return edition_; }
  // `wire` was written by the owner, who reads no panels.
  void mark_received() { edition_ = std::make_shared<const int>(); }

  // Rebuilds `wire` alone from `flat`: for devices, which read it and no panels.
  Status encode(kernels::Stream& stream);
  // Rebuilds `wire` and all panels from `flat`. Must follow every change of it.
  Status pack(kernels::Stream& stream);
  // Rebuilds all panels from bytes as `wire` has them, and of `flat` what is not read as panels only; where this is for
  // training, all that is not quantised. kInvalid where there are more or fewer.
  Status pack_received(kernels::Stream& stream, std::span<const std::byte> wire);
  // Whether what products and lookups read is what `pack_received` makes of these bytes: kCorrupt names the first
  // parameter of which it is not.
  Status verify(kernels::Stream& stream, std::span<const std::byte> wire) const;
  // Gives back the memory of values that are read as panels only. From then on flat() and digest() mean nothing, until
  // all of `flat` or `wire` has been written again.
  void give_back_flat();

  // An adapter that products with these weights are followed by (live_adapter.h); null: none. It is not stored.
  const LiveAdapter* live_adapter() const { return live_adapter_.get(); }
  void attach(std::shared_ptr<const LiveAdapter> adapter) { live_adapter_ = std::move(adapter); }

  Digest digest() const {
    return digest_of(format_ == WeightFormat::kFloat32 ? std::as_bytes(flat<float>()) : std::as_bytes(flat()));
  }

 private:
  friend class Panels;
  template <typename T>
  struct Numbers {
    Buffer<T> flat;
    std::vector<Buffer<T>> packed;  // by parameter
  };
  template <typename T>
  Numbers<T>& in() {
    if constexpr (sizeof(T) == sizeof(float))
      return float32_;
    else
      return bf16_;
  }
  template <typename T>
  const Numbers<T>& in() const {
    return const_cast<Weights*>(this)->in<T>();
  }

  ModelConfig config_;
  ParameterLayout layout_;
  // All but the memory.
  static Result<Weights> lay_out(const ModelConfig& config, bool for_training, WeightFormat format);
  void lay_out_wire();
  // The panels of a parameter: elements of its panels and of those of its transpose, or bytes of panels of codes.
  struct Panels {
    size_t elements = 0, transposed = 0, codes = 0;
  };
  Panels panels_of(size_t parameter) const;
  size_t element_bytes() const { return format_ == WeightFormat::kFloat32 ? sizeof(float) : sizeof(kernels::bf16); }
  bool is_given_back(size_t parameter) const;
  Status quantize(kernels::Stream& stream);
  // The panels of a parameter, of one kind, and room for them.
  template <typename T>
  struct Built {
    Buffer<T> packed;
    Buffer<kernels::bf16> transposed;
    Buffer<std::byte> codes;
  };
  template <typename T>
  Status build_panels(kernels::Stream& stream, std::span<const std::byte> wire);
  // Packs one parameter into `to`, whose buffers are taken where they are empty, and let go where they are not used.
  template <typename T>
  Status build(kernels::Stream& stream, std::span<const std::byte> wire, size_t parameter, Built<T>& to) const;
  template <typename T>
  Status build_split(kernels::Stream& stream, const T* rows, size_t parameter, Built<T>& to) const;
  // Elements of the two kinds of panels of a group.
  std::pair<size_t, size_t> split_sizes(size_t parameter) const;
  std::pair<size_t, size_t> transposed_split_sizes(size_t parameter) const;
  Result<bool> build_codes(kernels::Stream& stream, std::span<const std::byte> wire, size_t parameter,
                           Buffer<std::byte>& to) const;
  template <typename T>
  Status verify_as(kernels::Stream& stream, std::span<const std::byte> wire) const;
  // Whether the panels of a parameter are those of `wire`. `scratch` is memory for some of them.
  template <typename T>
  Result<bool> verify_panels(kernels::Stream& stream, std::span<const std::byte> wire, size_t parameter,
                             std::vector<std::byte>& scratch) const;
  // The codes and scales of one matrix of a parameter, in `wire`.
  const kernels::e4m3* codes(const std::byte* wire, size_t parameter, int group) const;
  const kernels::e8m0* scales(const std::byte* wire, size_t parameter, int group) const;
  size_t scales_of_group(const Parameter& parameter) const;

  bool for_training_ = false;
  WeightFormat format_ = WeightFormat::kBf16;
  std::vector<bool> quantized_;  // by parameter
  std::vector<size_t> wire_at_;  // of each parameter, bytes from the start; empty in bf16
  size_t wire_bytes_ = 0;
  Buffer<std::byte> wire_;  // empty in bf16
  Numbers<kernels::bf16> bf16_;
  Numbers<float> float32_;
  std::vector<Buffer<std::byte>> packed_codes_;  // by parameter
  std::vector<Buffer<kernels::bf16>> transposed_;
  std::shared_ptr<const LiveAdapter> live_adapter_;
  Edition edition_ = std::make_shared<const int>();
};

// Whether the checkpoint has the model's tensors: kNotFound names all that are missing, kCorrupt all of other shapes.
Status require_tensors(const Safetensors& checkpoint, const ModelConfig& config, const fs::path& directory);

// Reads a Hugging Face directory; but in float32, F32 and F16 tensors are rounded to bf16. E4M3 with a scale for each
// 128 x 128 block (`*_scale_inv`, as DeepSeek publishes it) is multiplied out. All missing tensors are named at once;
// those with NaN or infinite numbers are logged.
Result<Weights> load_weights(const fs::path& directory, bool for_training, WeightFormat format = WeightFormat::kBf16);

// Writes config.json, generation_config.json and the tensors in bf16, f16 or f32, of which the last takes twice the
// memory of the weights meanwhile; the tokenizer's files are copied from `source` unchanged where it has them. kInvalid
// of weights in float32, and where a number is too large for f16.
Status save_weights(const Weights& weights, const fs::path& directory, const fs::path& source,
                    DType dtype = DType::kBF16);

// Rounds what f16 has no number for, as `save_weights` does, so that these are the weights that f16 gives when it is
// read; those too large are left. How many changed: only numbers below 2^-16 may.
size_t round_to_float16(Weights& weights);

// Normal draws of deviation 0.02 (norms one, biases zero), as a model is born; a function of the seed. Not in float32.
void randomise(Weights& weights, uint64_t seed);

}  // namespace tandem::model
