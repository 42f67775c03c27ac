// The block formats of ggml, each written as ggml's own reference (`dequantize_row_*`) computes it, so that an imported
// model has the weights that llama.cpp runs.
#include <cstring>

#include "model/dtype.h"
#include "model/gguf.h"

namespace tandem::model {
namespace {

float half_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return f16_to_float(bits);
}

uint32_t word_at(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Blocks of 32: a scale, a minimum where the format has one, a fifth bit where it has one, then nibbles: the low ones
// are elements 0 to 15, the high ones 16 to 31.
template <bool kMinimum, bool kFifthBit>
void small_block(const uint8_t* in, float* out) {
  const float scale = half_at(in);
  in += 2;
  float minimum = 0;
  if (kMinimum) {
    minimum = half_at(in);
    in += 2;
  }
  uint32_t fifth = 0;
  if (kFifthBit) {
    fifth = word_at(in);
    in += 4;
  }
  constexpr int kOffset = kMinimum ? 0 : (kFifthBit ? 16 : 8);
  for (int i = 0; i < 16; ++i) {
    const int low = (in[i] & 0xf) | static_cast<int>(((fifth >> i) & 1) << 4);
    const int high = (in[i] >> 4) | static_cast<int>(((fifth >> (i + 16)) & 1) << 4);
    out[i] = static_cast<float>(low - kOffset) * scale + minimum;
    out[i + 16] = static_cast<float>(high - kOffset) * scale + minimum;
  }
}

void q8_block(const uint8_t* in, float* out) {
  const float scale = half_at(in);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(in[2 + i])) * scale;
}

// Six-bit scale and minimum of sub-block `index` of 8, packed into 12 bytes.
void packed_scale(const uint8_t* packed, int index, int& scale, int& minimum) {
  if (index < 4) {
    scale = packed[index] & 63;
    minimum = packed[index + 4] & 63;
  } else {
    scale = (packed[index + 4] & 0xf) | ((packed[index - 4] >> 6) << 4);
    minimum = (packed[index + 4] >> 4) | ((packed[index] >> 6) << 4);
  }
}

template <bool kFifthBit>
void k_block(const uint8_t* in, float* out) {
  const float super_scale = half_at(in);
  const float super_minimum = half_at(in + 2);
  const uint8_t* scales = in + 4;
  const uint8_t* fifth = in + 16;
  const uint8_t* nibbles = in + (kFifthBit ? 48 : 16);
  for (int part = 0; part < 8; ++part) {
    int scale = 0;
    int minimum = 0;
    packed_scale(scales, part, scale, minimum);
    const float d = super_scale * static_cast<float>(scale);
    const float m = super_minimum * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      const uint8_t pair = nibbles[part / 2 * 32 + i];
      int value = part % 2 == 0 ? pair & 0xf : pair >> 4;
      if (kFifthBit) value |= ((fifth[i] >> part) & 1) << 4;
      out[part * 32 + i] = d * static_cast<float>(value) - m;
    }
  }
}

void q6_k_block(const uint8_t* in, float* out) {
  const float super_scale = half_at(in + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = in + half * 64;
    const uint8_t* high = in + 128 + half * 32;
    const auto* scales = reinterpret_cast<const int8_t*>(in + 192 + half * 8);
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const uint8_t pair = low[(quarter % 2) * 32 + i];
        const int value = ((quarter < 2 ? pair & 0xf : pair >> 4) | (((high[i] >> (2 * quarter)) & 3) << 4)) - 32;
        const float scale = super_scale * static_cast<float>(scales[quarter * 2 + i / 16]);
        out[half * 128 + quarter * 32 + i] = scale * static_cast<float>(value);
      }
    }
  }
}

void each_block(const GgufTensor& tensor, std::span<float> out, size_t elements, size_t bytes,
                void (*convert)(const uint8_t*, float*)) {
  const auto* in = reinterpret_cast<const uint8_t*>(tensor.bytes.data());
  for (size_t i = 0; i < out.size() / elements; ++i) convert(in + i * bytes, out.data() + i * elements);
}

}  // namespace

void dequantise(const GgufTensor& tensor, std::span<float> out) {
  const auto one = [&](size_t bytes, auto convert) { each_block(tensor, out, 1, bytes, convert); };
  switch (tensor.type) {
    case GgmlType::kF32:
      return one(4, [](const uint8_t* in, float* to) { std::memcpy(to, in, 4); });
    case GgmlType::kF16:
      return one(2, [](const uint8_t* in, float* to) { *to = half_at(in); });
    case GgmlType::kBF16:
      return one(2,
                 [](const uint8_t* in, float* to) { *to = bf16_to_float(static_cast<uint16_t>(in[0] | in[1] << 8)); });
    case GgmlType::kQ4_0:
      return each_block(tensor, out, 32, 18, small_block<false, false>);
    case GgmlType::kQ4_1:
      return each_block(tensor, out, 32, 20, small_block<true, false>);
    case GgmlType::kQ5_0:
      return each_block(tensor, out, 32, 22, small_block<false, true>);
    case GgmlType::kQ5_1:
      return each_block(tensor, out, 32, 24, small_block<true, true>);
    case GgmlType::kQ8_0:
      return each_block(tensor, out, 32, 34, q8_block);
    case GgmlType::kQ4_K:
      return each_block(tensor, out, 256, 144, k_block<false>);
    case GgmlType::kQ5_K:
      return each_block(tensor, out, 256, 176, k_block<true>);
    case GgmlType::kQ6_K:
      return each_block(tensor, out, 256, 210, q6_k_block);
  }
}

}  // namespace tandem::model
