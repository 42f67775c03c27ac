/* What goes forward, for one type of elements: a part of tandem_cuda.h, which includes it twice, for bf16 (uint16_t)
 * and for fp32, whose names end in Float and _float. In fp32 nothing is rounded on the way: bf16(.) below is bf16's
 * alone. */

/* out[m][n] = sum over k of a(m, k) * b(n, k), one fused chain over k = 0, 1, 2, ... for each element.
 * a(m, k) = a[m * a_row_stride + k * a_k_stride], and b alike; of the two strides of each one is 1, the other at least
 * the length that it strides over. So a Linear's weight [n][k] serves forward (b_k_stride 1) and for the gradient of
 * its input (b_row_stride 1), and both sides of a weight gradient are taken as they lie. A side of bf16 may be given as
 * codes instead, which are multiplied as what tandem_cuda_expand makes of them. After the sum, once: + bias[n], +
 * residual[m][n], or the old value of out_float where `accumulate`; then rounded to bf16 once. */
typedef struct TANDEM_CUDA_NAME(Gemm) {
  const TANDEM_CUDA_T* a; /* or null, with a_codes */
  int64_t a_row_stride, a_k_stride;
  const TANDEM_CUDA_T* b; /* or null, with b_codes */
  int64_t b_row_stride, b_k_stride;
  TandemCudaCodes a_codes, b_codes; /* [m][k] and [n][k], dense: strides are not looked at; of bf16 alone */
  const TANDEM_CUDA_T* bias;        /* [n] or null; only with out */
  const TANDEM_CUDA_T* residual;    /* or null; only with out, may be out itself */
  TANDEM_CUDA_T* out;               /* exactly one of the two outputs */
  float* out_float;                 /* the sums as they are */
  int64_t out_stride;               /* of the output and the residual */
  int accumulate;                   /* only with out_float */
  int m, n, k;
} TANDEM_CUDA_NAME(Gemm);
int TANDEM_CUDA_FUNCTION(gemm)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Gemm) * arguments);

/* As many products of one shape as there are groups: the bits that tandem_cuda_gemm gives for each alone. */
typedef struct TANDEM_CUDA_NAME(BatchedGemm) {
  const TANDEM_CUDA_T* a; /* group g is a + g * a_group, [m][k], `a_stride` from row to row */
  int64_t a_stride, a_group;
  const TANDEM_CUDA_T* b; /* as in gemm; `b_group` from one to the next */
  int64_t b_row_stride, b_k_stride, b_group;
  TANDEM_CUDA_T* out; /* as a, [m][n] */
  int64_t out_stride, out_group;
  int groups, m, n, k;
} TANDEM_CUDA_NAME(BatchedGemm);
int TANDEM_CUDA_FUNCTION(batched_gemm)(TandemCudaStream stream, const TANDEM_CUDA_NAME(BatchedGemm) * arguments);

/* out[i] = a[i] times the weight of the group that row i lies in: the bits that tandem_cuda_gemm gives with that weight
 * alone. Offsets must rise from 0 to m. */
typedef struct TANDEM_CUDA_NAME(GroupedGemm) {
  const TANDEM_CUDA_T* a; /* [m][k] */
  int64_t a_stride;
  const int32_t* offsets;  /* [groups + 1]: group g is rows offsets[g] to offsets[g + 1] */
  const TANDEM_CUDA_T* b;  /* [groups][n][k], or null, with b_codes */
  TandemCudaCodes b_codes; /* group after group, each with whole blocks of rows; of bf16 alone */
  TANDEM_CUDA_T* out;      /* [m][n] */
  int64_t out_stride;
  int groups, m, n, k;
} TANDEM_CUDA_NAME(GroupedGemm);
int TANDEM_CUDA_FUNCTION(grouped_gemm)(TandemCudaStream stream, const TANDEM_CUDA_NAME(GroupedGemm) * arguments);

/* out[r] = table[ids[r]], a row of NaN where the id is outside [0, vocabulary). */
typedef struct TANDEM_CUDA_NAME(Embed) {
  const TANDEM_CUDA_T* table; /* [vocabulary][width] */
  const int32_t* ids;         /* [rows] */
  TANDEM_CUDA_T* out;         /* [rows][width] */
  int rows, vocabulary, width;
} TANDEM_CUDA_NAME(Embed);
int TANDEM_CUDA_FUNCTION(embed)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Embed) * arguments);

/* out = bf16(bf16(x / sqrt(mean(x^2) + epsilon)) * weight). The mean's sum runs in 16 lanes, lane i over elements i,
 * i + 16, ..., joined 8 with 8, 4 with 4, 2 with 2, 1 with 1. `out` may be x. */
typedef struct TANDEM_CUDA_NAME(RmsNorm) {
  const TANDEM_CUDA_T* x; /* [rows][width] */
  const TANDEM_CUDA_T* weight;
  TANDEM_CUDA_T* out;
  float epsilon;
  int rows, width;
} TANDEM_CUDA_NAME(RmsNorm);
int TANDEM_CUDA_FUNCTION(rms_norm)(TandemCudaStream stream, const TANDEM_CUDA_NAME(RmsNorm) * arguments);

/* rms_norm of each head of a row by itself, in place. */
typedef struct TANDEM_CUDA_NAME(HeadNorm) {
  TANDEM_CUDA_T* x; /* [row][heads][head_size], `stride` from row to row */
  int64_t stride;
  const TANDEM_CUDA_T* weight; /* [head_size] */
  float epsilon;
  int rows, heads, head_size;
} TANDEM_CUDA_NAME(HeadNorm);
int TANDEM_CUDA_FUNCTION(head_norm)(TandemCudaStream stream, const TANDEM_CUDA_NAME(HeadNorm) * arguments);

/* Rotates pairs of each head's first elements in place by the angle of the row's position: (x[i], x[i + rope_dim / 2]),
 * or (x[2 i], x[2 i + 1]) where `interleaved`; `inverse` turns back. A position outside the table makes the
 * rotated elements NaN. */
typedef struct TANDEM_CUDA_NAME(Rope) {
  TANDEM_CUDA_T* x; /* [row][heads][head_size], `stride` from row to row */
  int64_t stride;
  const int32_t* positions; /* [rows] */
  const float* table;       /* [table_positions][rope_dim / 2][2]: cosine, sine */
  int rows, heads, head_size, table_positions, inverse;
  int rope_dim; /* of a head's elements, even; 0: all */
  int interleaved;
} TANDEM_CUDA_NAME(Rope);
int TANDEM_CUDA_FUNCTION(rope)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Rope) * arguments);

/* gate_up is [row][2 * width], gate first. swiglu: out = bf16(gate / (1 + e^-gate) * up); geglu: out = bf16(gate / (1 +
 * e^-u) * up), u = sqrt(8 / pi) (gate + 0.044715 gate^3). */
typedef struct TANDEM_CUDA_NAME(Swiglu) {
  const TANDEM_CUDA_T* gate_up;
  TANDEM_CUDA_T* out; /* [rows][width] */
  int rows, width;
} TANDEM_CUDA_NAME(Swiglu);
int TANDEM_CUDA_FUNCTION(swiglu)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Swiglu) * arguments);

typedef struct TANDEM_CUDA_NAME(Geglu) {
  const TANDEM_CUDA_T* gate_up;
  TANDEM_CUDA_T* out; /* [rows][width] */
  int rows, width;
} TANDEM_CUDA_NAME(Geglu);
int TANDEM_CUDA_FUNCTION(geglu)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Geglu) * arguments);

/* x += y, rounded once. */
typedef struct TANDEM_CUDA_NAME(Add) {
  TANDEM_CUDA_T* x;
  const TANDEM_CUDA_T* y;
  int64_t count;
} TANDEM_CUDA_NAME(Add);
int TANDEM_CUDA_FUNCTION(add)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Add) * arguments);

/* out[r][g][i] = x[r][g][i] for i below `columns`, 0 for the rest up to `width`. */
typedef struct TANDEM_CUDA_NAME(PlaceColumns) {
  const TANDEM_CUDA_T* x; /* `stride` from row to row, `group` from one to the next */
  int64_t stride, group;
  TANDEM_CUDA_T* out;
  int64_t out_stride, out_group;
  int rows, groups, columns, width;
} TANDEM_CUDA_NAME(PlaceColumns);
int TANDEM_CUDA_FUNCTION(place_columns)(TandemCudaStream stream, const TANDEM_CUDA_NAME(PlaceColumns) * arguments);

/* out = bf16(parts[0] + parts[1] + ...), the sum in fp32 in this order: what ranks sent, added up (collectives/). */
typedef struct TANDEM_CUDA_NAME(SumParts) {
  const TANDEM_CUDA_T* parts; /* [count_of_parts][count] */
  TANDEM_CUDA_T* out;         /* [count] */
  int64_t count;
  int count_of_parts;
} TANDEM_CUDA_NAME(SumParts);
int TANDEM_CUDA_FUNCTION(sum_parts)(TandemCudaStream stream, const TANDEM_CUDA_NAME(SumParts) * arguments);

/* Keys and values of one layer in pages of 64 positions, each [kv_head][64][head_size] and [kv_head][64][value_size],
 * in two large arrays of them. Row r of an operation belongs to a sequence whose position p lies in page
 * table[first[r] + p / 64]. Page numbers and offsets must be right: nothing checks them. A row with a position below 0
 * is left alone: nothing is read or written. */
typedef struct TANDEM_CUDA_NAME(Pages) {
  TANDEM_CUDA_T* keys;   /* [pages][kv_heads][64][head_size] */
  TANDEM_CUDA_T* values; /* [pages][kv_heads][64][value_size] */
  const int32_t* table;
  const int32_t* first;     /* [rows] */
  const int32_t* positions; /* [rows] */
} TANDEM_CUDA_NAME(Pages);

/* Writes the keys and values of each row at its position. No two rows share page and position. */
typedef struct TANDEM_CUDA_NAME(WritePages) {
  const TANDEM_CUDA_T* keys; /* [row][kv_heads * head_size] */
  int64_t key_stride;
  const TANDEM_CUDA_T* values; /* [row][kv_heads * value_size]; may be the first columns of the keys */
  int64_t value_stride;
  TANDEM_CUDA_NAME(Pages) pages;
  int rows, kv_heads, head_size;
  int value_size; /* 0: as keys */
} TANDEM_CUDA_NAME(WritePages);
int TANDEM_CUDA_FUNCTION(write_pages)(TandemCudaStream stream, const TANDEM_CUDA_NAME(WritePages) * arguments);

/* Causal attention of each row over the keys at positions 0 .. its own, or over the last `window` of them: formula and
 * order of kernels/attention.h. Of a page only what the row sees is read. */
typedef struct TANDEM_CUDA_NAME(Attention) {
  const TANDEM_CUDA_T* queries; /* [row][heads * head_size] */
  int64_t query_stride;
  TANDEM_CUDA_NAME(Pages) pages;
  TANDEM_CUDA_T* out; /* [row][heads * value_size] */
  int64_t out_stride;
  float* log_sum; /* [rows][heads] or null: what the backward pass needs */
  int rows, heads, kv_heads;
  int head_size; /* of queries and keys: even, at most 576; value_size alike */
  float scale;
  int window;     /* 0: all */
  int value_size; /* 0: as keys */
} TANDEM_CUDA_NAME(Attention);
int TANDEM_CUDA_FUNCTION(attention)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Attention) * arguments);

/* Log-sums, likeliest tokens and log-probabilities, by panels of 64 columns of the vocabulary and slabs of 64 panels:
 * order of kernels/lm_head.h. `logits` and `panel_sums` (maximum, sum of e^(logit - maximum)) go by whole panels, the
 * logits behind the vocabulary's end are -infinity. A pick outside gets NaN. */
typedef struct TANDEM_CUDA_NAME(LmHead) {
  const TANDEM_CUDA_T* hidden; /* [rows][width] */
  const TANDEM_CUDA_T* head;   /* [vocabulary][width] */
  float* logits;               /* [rows][panels][64] or null */
  float* log_sum;              /* [rows] */
  int32_t* argmax;             /* [rows] or null; ties go to the lowest id */
  float* panel_sums;           /* [rows][panels][2] or null */
  const float* logit_scales;   /* [rows], above 0: what the logits are multiplied by; or null: 1 */
  const TandemCudaPick* picks;
  float* logprobs; /* [pick_count] */
  int64_t pick_count;
  int rows, width, vocabulary;
  void* workspace; /* tandem_cuda_lm_head_workspace */
  size_t workspace_bytes;
  /* [rows][panels], a bit for each column of a panel, one at least in a row: logits of the others are -infinity, and so
   * is the logprob of a pick that is none of them. Or null: all. Goes without logits and panel_sums. */
  const uint64_t* kept;
} TANDEM_CUDA_NAME(LmHead);
int TANDEM_CUDA_FUNCTION(lm_head)(TandemCudaStream stream, const TANDEM_CUDA_NAME(LmHead) * arguments);

/* out[place of the pair] = x[row of the pair]; a pair whose place is -1 is left out. */
typedef struct TANDEM_CUDA_NAME(Permute) {
  const TANDEM_CUDA_T* x; /* [rows][width] */
  const int32_t* places;  /* [rows][top_k] */
  TANDEM_CUDA_T* out;     /* [rows * top_k][width] */
  int rows, top_k, width;
} TANDEM_CUDA_NAME(Permute);
int TANDEM_CUDA_FUNCTION(permute)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Permute) * arguments);

/* out[row] = bf16(residual[row] + sum over the row's pairs, in order of rank, of weight * y[place]). */
typedef struct TANDEM_CUDA_NAME(Combine) {
  const TANDEM_CUDA_T* y; /* [rows * top_k][width] */
  const int32_t* places;
  const float* weights;          /* [rows][top_k] */
  const TANDEM_CUDA_T* residual; /* [rows][width] */
  TANDEM_CUDA_T* out;            /* [rows][width]; may be the residual */
  int rows, top_k, width;
} TANDEM_CUDA_NAME(Combine);
int TANDEM_CUDA_FUNCTION(combine)(TandemCudaStream stream, const TANDEM_CUDA_NAME(Combine) * arguments);
