/* The second part of the C interface of libtandem_torch.so: a model in LibTorch's own operators, float32, against which
 * ours is held.
 *
 * The library copies the shape and reads the tensors' data where it lies, for as long as the model lives. Errors are
 * texts in the caller's buffer, cut to its size. Thread safety: one call at a time for a model.
 */
#ifndef TANDEM_TORCH_MODEL_H
#define TANDEM_TORCH_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TANDEM_TORCH_F32, TANDEM_TORCH_BF16, TANDEM_TORCH_F16, TANDEM_TORCH_F8_E4M3 };
enum { TANDEM_TORCH_ROPE_DEFAULT, TANDEM_TORCH_ROPE_LINEAR, TANDEM_TORCH_ROPE_LLAMA3, TANDEM_TORCH_ROPE_YARN };

/* By its name in the checkpoint. A tensor of F8_E4M3 has its scales of 128 x 128 blocks under NAME_scale_inv; one that
 * a LoRA adapter changes has the factors under NAME.lora_a [rank][columns] and NAME.lora_b [rows][rank]. */
typedef struct {
  const char* name;
  int dtype;
  int dims; /* 1 or 2 */
  int64_t shape[2];
  const void* data;
} TandemTorchTensor;

typedef struct {
  int kind;                       /* TANDEM_TORCH_ROPE_... */
  int interleaved;                /* pairs lie side by side, not half of what is rotated apart */
  int truncate;                   /* yarn */
  int64_t dim;                    /* elements of a head that are rotated: the first, of latent attention the last */
  int64_t original_max_positions; /* llama3, yarn */
  double theta, factor;           /* factor: linear, llama3, yarn */
  double low_frequency_factor, high_frequency_factor; /* llama3 */
  double beta_fast, beta_slow;                        /* yarn */
  double attention_factor, mscale, mscale_all_dim;    /* yarn; 0: the checkpoint does not say */
} TandemTorchRope;

/* What the names and shapes of the tensors do not say. */
typedef struct {
  int64_t layers, heads, kv_heads, head_size;
  double norm_epsilon;
  int64_t window;         /* positions that a sliding layer sees, the token's own among them */
  const uint8_t* sliding; /* [layers], or NULL: no layer slides */
  int64_t top_k;          /* of the experts, in layers that have some */
  int sigmoid;            /* routers: scores by sigmoids, chosen with the bias; else by a softmax */
  int normalise;          /* weights of the chosen are divided by their sum */
  int64_t expert_groups, top_k_groups;
  double expert_scale;                /* of the weights */
  int64_t latent_plain, latent_value; /* of latent attention: elements of a key without RoPE, of a value; 0: none */
  double lora_scale;
  TandemTorchRope rope;
} TandemTorchShape;

typedef struct TandemTorchModel TandemTorchModel;

/* NULL on an error. */
TandemTorchModel* tandem_torch_model(const TandemTorchShape* shape, const TandemTorchTensor* tensors, size_t count,
                                     char* error, size_t error_size);
/* logprobs[i] is that of tokens[i + 1] after tokens[0..i], `count` - 1 of them; likeliest[i] the token of the largest
 * logit after tokens[0..i]. Tokens are rows of the embedding. 0, or -1 on an error. */
int tandem_torch_score(const TandemTorchModel* model, const int32_t* tokens, int64_t count, int threads,
                       float* logprobs, int32_t* likeliest, char* error, size_t error_size);
void tandem_torch_free_model(TandemTorchModel* model);

#ifdef __cplusplus
}
#endif

#endif
