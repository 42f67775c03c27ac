/* The gradient of log-probabilities, and tokens drawn from them: a part of tandem_cuda.h. */

size_t tandem_cuda_lm_head_workspace(int rows, int vocabulary);

/* Picks are sorted by row and lie inside; grad_logprobs[i] is dLoss / dlogprob of picks[i]. */
typedef struct TandemCudaLmHeadBackward {
  const uint16_t* hidden;
  const uint16_t* head;
  const float* log_sum; /* [rows], from the forward pass */
  const TandemCudaPick* picks;
  const float* grad_logprobs;
  int64_t pick_count;
  float* grad_hidden;        /* [rows][width], added to */
  float* grad_head;          /* [vocabulary][width], added to; or null: not computed */
  float* entropy;            /* [rows] in nats, or null */
  const float* logit_scales; /* those of the forward pass */
  int rows, width, vocabulary;
  void* workspace;
  size_t workspace_bytes;
  const uint64_t* kept; /* those of the forward pass */
} TandemCudaLmHeadBackward;
int tandem_cuda_lm_head_backward(TandemCudaStream stream, const TandemCudaLmHeadBackward* arguments);
size_t tandem_cuda_lm_head_backward_workspace(int rows, int vocabulary);

/* One token for each row by Philox of (seed, position), as kernels/sampling.h draws it: temperature, then top_k, top_p
 * and min_p in this order; temperature 0 takes the largest logit, ties to the lowest id. A row may be held to the
 * tokens of a mask; where its mask has none, its token is -1. */
typedef struct TandemCudaSample {
  const float* logits; /* what tandem_cuda_lm_head wrote, all three */
  const float* panel_sums;
  const float* log_sum;
  const float* temperatures; /* [rows], >= 0 */
  const int32_t* top_k;      /* [rows], 0: all; or null: 0 */
  const float* top_p;        /* [rows], above 0 and at most 1; or null: 1 */
  const float* min_p;        /* [rows], 0 to below 1; or null: 0 */
  const uint64_t* masks;     /* [masks][(vocabulary + 63) / 64], a bit for each token that is allowed; or null */
  const int32_t* mask_of;    /* [rows]: which of the masks a row is held to, -1: none; null where masks is */
  const uint64_t* seeds;     /* [rows] */
  const uint64_t* positions; /* [rows] */
  int32_t* tokens;           /* [rows] */
  float* logprobs;           /* [rows]: of the model itself, temperature 1 */
  float* sampling_logprobs;  /* [rows]: of the distribution that was drawn from */
  int rows, vocabulary;
  void* workspace;
  size_t workspace_bytes;
  /* [rows][(vocabulary + 63) / 64], or null: gets a bit for each token that a row was drawn from, all where top_k,
   * top_p and min_p cut nothing off. Logprobs are then those among these tokens, as lm_head has them. */
  uint64_t* kept;
} TandemCudaSample;
int tandem_cuda_sample(TandemCudaStream stream, const TandemCudaSample* arguments);
size_t tandem_cuda_sample_workspace(int rows, int vocabulary);
