// The config of a transformer, read from a checkpoint's config.json into one notation.
//
// Families read: llama (Llama 2 and 3, SmolLM2), mistral, qwen2, qwen3, qwen3_moe, glm4, glm4_moe, deepseek_v3 and
// kimi_k2, which is the same. Both notations of the hub are understood (`rope_theta` with `rope_scaling`, or
// `rope_parameters`; `torch_dtype` or `dtype`; `num_experts`, `num_local_experts` or `n_routed_experts`). Whatever
// would change the computation and is not implemented (another rope type, activation, quantisation) is refused by name,
// never ignored. Values: copy, compare, write back with to_json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/dtype.h"
#include "model/rope.h"
#include "model/token.h"

namespace tandem::model {

// A mixture of experts in place of the MLP of some layers.
struct ExpertsConfig {
  int count = 0;            // 0: no layer has experts
  int top_k = 0;            // of each token
  int width = 0;            // of one expert's MLP
  bool normalise = false;   // weights of the chosen are divided by their sum
  bool sigmoid = false;     // scores by sigmoids, chosen with a bias of the checkpoint; else by a softmax
  double scale = 1;         // of the weights
  int groups = 1;           // equal parts of the experts (n_group), of sigmoids alone
  int top_k_groups = 1;     // a token's experts are of so many of them (topk_group)
  int shared_width = 0;     // of an MLP that every token goes through beside its experts; 0: none
  int first = 0;            // layers before it have none (first_k_dense_replace)
  int every = 1;            // layers every - 1, 2 every - 1, ... have experts (decoder_sparse_step)
  std::vector<int> except;  // of these (mlp_only_layers), ascending
  friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

// Multi-head latent attention (DeepSeek-AI 2024): all heads' keys and values are made of one short vector a token. A
// head's query and key are elements that say what, then elements that say where; those of the key are the same for all
// heads.
struct LatentConfig {
  int rank = 0;        // of that vector (kv_lora_rank); 0: heads have keys and values of their own
  int query_rank = 0;  // of the one that queries are made of (q_lora_rank); 0: none, they are made of the states
  int plain = 0;       // elements of a query or key that say what (qk_nope_head_dim)
  int rope_dim = 0;    // elements with RoPE (qk_rope_head_dim)
  int value = 0;       // elements of a head's value (v_head_dim)
  friend bool operator==(const LatentConfig&, const LatentConfig&) = default;
};

struct ModelConfig {
  std::string family;  // model_type, one of families.h
  int layers = 0;
  int width = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;  // of queries and keys; not always width / heads
  int mlp_width = 0;
  int vocabulary = 0;
  int max_positions = 0;
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;    // of the attention's output projection
  bool qk_norm = false;        // RMS norm of each head's query and key before RoPE
  bool post_norms = false;     // RMS norms of what attention and MLP say, before it is added to the residual stream
  bool fused_gate_up = false;  // in checkpoints: gate and up are one tensor
  RopeConfig rope;
  int window = 0;             // positions that a token of a sliding layer sees, itself among them; 0: no layer slides
  std::vector<bool> sliding;  // by layer; empty where no layer slides
  ExpertsConfig experts;
  LatentConfig latent;
  DType dtype = DType::kF32;
  std::vector<TokenId> eos_tokens;  // of generation_config.json where it says, as transformers' generate
  std::optional<TokenId> bos_token;
  std::optional<TokenId> pad_token;
  bool has_experts(int layer) const;
  int window_of(int layer) const { return window > 0 && sliding[layer] ? window : 0; }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Reads DIR/config.json, and the end tokens from DIR/generation_config.json where that exists.
Result<ModelConfig> read_config(const fs::path& directory);
Result<ModelConfig> config_from_json(const Json& json);

// A config.json that transformers and vLLM read as the same model; config_from_json(to_json(c)) == c.
Json to_json(const ModelConfig& config);
// A generation_config.json with the special tokens.
Json generation_config_json(const ModelConfig& config);

// Elements of a head that RoPE rotates.
int rope_dim(const ModelConfig& config);

// Checks the sizes against each other; the readers above have done it.
Status check(const ModelConfig& config);

int64_t parameter_count(const ModelConfig& config);
// Parameters that one token's forward pass uses: of experts only the top_k.
int64_t active_parameter_count(const ModelConfig& config);

// Names and shapes (out, in) of all tensors that the model has in a checkpoint, in checkpoint order.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<TensorSpec> tensor_specs(const ModelConfig& config);

}  // namespace tandem::model
