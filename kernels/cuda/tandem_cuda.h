/* The operations of kernels/ on NVIDIA GPUs: the C interface of libtandem_cuda.so.
 *
 * Numbers. bf16 travels as uint16_t, the upper half of an IEEE binary32. Sums are fp32 and fused only where a formula
 * says so. The order in which an output element adds up depends on K, or the length of its row, alone: never on other
 * rows, on the grid or on the device. It is the order of the AVX2 kernels of kernels/cpu, so bits are the same but for
 * logarithms (see arithmetic.cuh). Matrices lie row by row; nothing is packed. Strides count elements.
 *
 * Memory. Every pointer inside an argument struct is device memory of the stream's device; the struct itself is host
 * memory and may go when the call returns. `workspace` is scratch memory of the caller, at least as large as the
 * function tandem_cuda_OPERATION_workspace says, aligned to 256 bytes, free to be used again once the stream has
 * passed the call. Nothing is allocated by an operation.
 *
 * Errors. Every function returns 0 or a code that tandem_cuda_error_text turns into words. Arguments that the host can
 * see are checked before anything is launched; what lies in device memory (ids, positions, page numbers) is not read
 * by the host, and each struct says what a wrong one does. Faults while a kernel runs show up at a later call, most
 * often at tandem_cuda_synchronize.
 *
 * Thread safety: calls on different streams may run at once; calls on one stream come from one thread at a time.
 */
#ifndef TANDEM_CUDA_H
#define TANDEM_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* all that the library shows */

/* Raised with every change of this interface; a library of another version is refused by its loader. */
#define TANDEM_CUDA_VERSION 2

enum TandemCudaError {
  kTandemCudaOk = 0,
  kTandemCudaNull = 1,      /* a pointer that must be given is null */
  kTandemCudaSize = 2,      /* a size is negative, zero where it must not be, or too large for one launch */
  kTandemCudaStride = 3,    /* a stride is shorter than what it strides over */
  kTandemCudaShape = 4,     /* heads, head size, or two arguments that exclude each other */
  kTandemCudaWorkspace = 5, /* the workspace is too small */
  kTandemCudaRuntime = 1000 /* this and a cudaError_t */
};

/* Words for a code of any function; static memory. */
const char* tandem_cuda_error_text(int code);
int tandem_cuda_version(void);

typedef struct TandemCudaDevice {
  char name[256];
  int major, minor; /* compute capability */
  uint64_t memory_bytes;
} TandemCudaDevice;
/* No driver or no device is no error: the count is 0. */
int tandem_cuda_device_count(int* count);
int tandem_cuda_device(int index, TandemCudaDevice* device);

typedef struct TandemCudaStreamState* TandemCudaStream;
int tandem_cuda_stream_create(int device, TandemCudaStream* stream);
int tandem_cuda_stream_destroy(TandemCudaStream stream);
/* Waits until everything on the stream is done, and reports what went wrong there. */
int tandem_cuda_synchronize(TandemCudaStream stream);
int tandem_cuda_allocate(TandemCudaStream stream, size_t bytes, void** memory);
int tandem_cuda_free(TandemCudaStream stream, void* memory);
/* In the order of the stream; host memory stays untouched by the caller until the stream has passed. */
int tandem_cuda_copy_to_device(TandemCudaStream stream, void* device, const void* host, size_t bytes);
int tandem_cuda_copy_to_host(TandemCudaStream stream, void* host, const void* device, size_t bytes);

/* out[m][n] = sum over k of a(m, k) * b(n, k), one fused chain over k = 0, 1, 2, ... for each element.
 * a(m, k) = a[m * a_row_stride + k * a_k_stride], and b alike; of the two strides of each one is 1, the other at least
 * the length that it strides over. So a Linear's weight [n][k] serves forward (b_k_stride 1) and for the gradient of
 * its input (b_row_stride 1), and both sides of a weight gradient are taken as they lie. After the sum, once: +
 * residual[m][n], or the old value of out_float where `accumulate`; then rounded to bf16 once. */
typedef struct TandemCudaGemm {
  const uint16_t* a;
  int64_t a_row_stride, a_k_stride;
  const uint16_t* b;
  int64_t b_row_stride, b_k_stride;
  const uint16_t* residual; /* or null; only with out_bf16, may be out_bf16 itself */
  uint16_t* out_bf16;       /* exactly one of the two outputs */
  float* out_float;
  int64_t out_stride; /* of the output and the residual */
  int accumulate;     /* only with out_float */
  int m, n, k;
} TandemCudaGemm;
int tandem_cuda_gemm(TandemCudaStream stream, const TandemCudaGemm* arguments);

/* out[r] = table[ids[r]], a row of NaN where the id is outside [0, vocabulary). */
typedef struct TandemCudaEmbed {
  const uint16_t* table; /* [vocabulary][width] */
  const int32_t* ids;    /* [rows] */
  uint16_t* out;         /* [rows][width] */
  int rows, vocabulary, width;
} TandemCudaEmbed;
int tandem_cuda_embed(TandemCudaStream stream, const TandemCudaEmbed* arguments);

/* grad_table[ids[r]] += grad_out[r], rows in order; ids outside [0, vocabulary) add nothing. */
typedef struct TandemCudaEmbedBackward {
  const uint16_t* grad_out;
  const int32_t* ids;
  float* grad_table;
  int rows, vocabulary, width;
} TandemCudaEmbedBackward;
int tandem_cuda_embed_backward(TandemCudaStream stream, const TandemCudaEmbedBackward* arguments);

/* out = bf16(bf16(x / sqrt(mean(x^2) + epsilon)) * weight). The mean's sum runs in 16 lanes, lane i over elements i,
 * i + 16, ..., joined 8 with 8, 4 with 4, 2 with 2, 1 with 1. `out` may be x. */
typedef struct TandemCudaRmsNorm {
  const uint16_t* x; /* [rows][width] */
  const uint16_t* weight;
  uint16_t* out;
  float epsilon;
  int rows, width;
} TandemCudaRmsNorm;
int tandem_cuda_rms_norm(TandemCudaStream stream, const TandemCudaRmsNorm* arguments);

/* The gradient of the weight is added up over rows in pieces of 64, each fused from 0, and the pieces are added to what
 * is there in order. grad_x may be grad_out. */
typedef struct TandemCudaRmsNormBackward {
  const uint16_t* x;
  const uint16_t* weight;
  const uint16_t* grad_out;
  uint16_t* grad_x;   /* added to where `accumulate`, else written */
  float* grad_weight; /* [width], added to */
  int accumulate;
  float epsilon;
  int rows, width;
  void* workspace;
  size_t workspace_bytes;
} TandemCudaRmsNormBackward;
int tandem_cuda_rms_norm_backward(TandemCudaStream stream, const TandemCudaRmsNormBackward* arguments);
size_t tandem_cuda_rms_norm_backward_workspace(int rows, int width);

/* Rotates the pairs (x[i], x[i + head_size / 2]) of each head in place by the angle of its position; `inverse` turns
 * back. A position outside the table makes the row NaN. */
typedef struct TandemCudaRope {
  uint16_t* x; /* [row][heads][head_size], `stride` from row to row */
  int64_t stride;
  const int32_t* positions; /* [rows] */
  const float* table;       /* [table_positions][head_size / 2][2]: cosine, sine */
  int rows, heads, head_size, table_positions, inverse;
} TandemCudaRope;
int tandem_cuda_rope(TandemCudaStream stream, const TandemCudaRope* arguments);

/* gate_up is [row][2 * width], gate first; out = bf16(gate / (1 + e^-gate) * up). */
typedef struct TandemCudaSwiglu {
  const uint16_t* gate_up;
  uint16_t* out; /* [rows][width] */
  int rows, width;
} TandemCudaSwiglu;
int tandem_cuda_swiglu(TandemCudaStream stream, const TandemCudaSwiglu* arguments);

typedef struct TandemCudaSwigluBackward {
  const uint16_t* gate_up;
  const uint16_t* grad_out;
  uint16_t* grad_gate_up; /* written; may be gate_up */
  int rows, width;
} TandemCudaSwigluBackward;
int tandem_cuda_swiglu_backward(TandemCudaStream stream, const TandemCudaSwigluBackward* arguments);

/* x += y, rounded once. */
typedef struct TandemCudaAdd {
  uint16_t* x;
  const uint16_t* y;
  int64_t count;
} TandemCudaAdd;
int tandem_cuda_add(TandemCudaStream stream, const TandemCudaAdd* arguments);

/* Keys and values of one layer in pages of 64 positions, each [kv_head][64][head_size], in two large arrays of them.
 * Row r of an operation belongs to a sequence whose position p lies in page table[first[r] + p / 64]. Page numbers and
 * offsets must be right: nothing checks them. A row with a position below 0 is left alone: nothing is read or written.
 */
typedef struct TandemCudaPages {
  uint16_t* keys; /* [pages][kv_heads][64][head_size] */
  uint16_t* values;
  const int32_t* table;
  const int32_t* first;     /* [rows] */
  const int32_t* positions; /* [rows] */
} TandemCudaPages;

/* Writes the keys and values of each row at its position. No two rows share page and position. */
typedef struct TandemCudaWritePages {
  const uint16_t* keys; /* [row][kv_heads * head_size] */
  int64_t key_stride;
  const uint16_t* values;
  int64_t value_stride;
  TandemCudaPages pages;
  int rows, kv_heads, head_size;
} TandemCudaWritePages;
int tandem_cuda_write_pages(TandemCudaStream stream, const TandemCudaWritePages* arguments);

/* Causal attention of each row over the keys at positions 0 .. its own: formula and order of kernels/attention.h. What
 * lies in a page behind the row's position is not read. head_size is 64, 128, 192 or 256. */
typedef struct TandemCudaAttention {
  const uint16_t* queries; /* [row][heads * head_size] */
  int64_t query_stride;
  TandemCudaPages pages;
  uint16_t* out; /* [row][heads * head_size] */
  int64_t out_stride;
  float* log_sum; /* [rows][heads] or null: what the backward pass needs */
  int rows, heads, kv_heads, head_size;
  float scale;
} TandemCudaAttention;
int tandem_cuda_attention(TandemCudaStream stream, const TandemCudaAttention* arguments);

/* A run of tokens of a prefix tree: rows row .. row + rows - 1, which end the path paths[path_begin ...] of row numbers
 * at positions 0, 1, .... Its tree is runs[tree_begin] .. runs[tree_end - 1], parents before children. */
typedef struct TandemCudaTreeRun {
  int32_t row, rows;
  int32_t path_begin, path_length;
  int32_t tree_begin, tree_end;
} TandemCudaTreeRun;

/* The gradient of attention over prefix trees: order of additions of kernels/attention.h. Rows of no run are neither
 * read nor written. Runs and paths must be right: nothing checks them (kernels/cuda/tree_runs.h makes them). */
typedef struct TandemCudaAttentionBackward {
  const uint16_t* queries; /* all with `stride`: columns of one fused [q | k | v] matrix */
  const uint16_t* keys;
  const uint16_t* values;
  int64_t stride;
  const uint16_t* out;      /* the forward's result, [rows][heads * head_size] */
  const uint16_t* grad_out; /* as out */
  const float* log_sum;     /* [rows][heads] */
  uint16_t* grad_queries;   /* written, all with `grad_stride` */
  uint16_t* grad_keys;
  uint16_t* grad_values;
  int64_t grad_stride;
  const TandemCudaTreeRun* runs;
  const int32_t* row_run; /* [rows]: the run that a row belongs to, or -1 */
  const int32_t* paths;
  int rows, heads, kv_heads, head_size;
  float scale;
  void* workspace;
  size_t workspace_bytes;
} TandemCudaAttentionBackward;
int tandem_cuda_attention_backward(TandemCudaStream stream, const TandemCudaAttentionBackward* arguments);
size_t tandem_cuda_attention_backward_workspace(int rows, int heads);

/* A row and a token whose log-probability is wanted. */
typedef struct TandemCudaPick {
  int32_t row, token;
} TandemCudaPick;

/* Log-sums, likeliest tokens and log-probabilities, by panels of 64 columns of the vocabulary and slabs of 64 panels:
 * order of kernels/lm_head.h. `logits` and `panel_sums` (maximum, sum of e^(logit - maximum)) go by whole panels, the
 * logits behind the vocabulary's end are -infinity. A pick outside gets NaN. */
typedef struct TandemCudaLmHead {
  const uint16_t* hidden; /* [rows][width] */
  const uint16_t* head;   /* [vocabulary][width] */
  float* logits;          /* [rows][panels][64] or null */
  float* log_sum;         /* [rows] */
  int32_t* argmax;        /* [rows] or null; ties go to the lowest id */
  float* panel_sums;      /* [rows][panels][2] or null */
  const TandemCudaPick* picks;
  float* logprobs; /* [pick_count] */
  int64_t pick_count;
  int rows, width, vocabulary;
  void* workspace;
  size_t workspace_bytes;
} TandemCudaLmHead;
int tandem_cuda_lm_head(TandemCudaStream stream, const TandemCudaLmHead* arguments);
size_t tandem_cuda_lm_head_workspace(int rows, int vocabulary);

/* Picks are sorted by row and lie inside; grad_logprobs[i] is dLoss / dlogprob of picks[i]. */
typedef struct TandemCudaLmHeadBackward {
  const uint16_t* hidden;
  const uint16_t* head;
  const float* log_sum; /* [rows], from the forward pass */
  const TandemCudaPick* picks;
  const float* grad_logprobs;
  int64_t pick_count;
  float* grad_hidden; /* [rows][width], added to */
  float* grad_head;   /* [vocabulary][width], added to; or null: not computed */
  float* entropy;     /* [rows] in nats, or null */
  int rows, width, vocabulary;
  void* workspace;
  size_t workspace_bytes;
} TandemCudaLmHeadBackward;
int tandem_cuda_lm_head_backward(TandemCudaStream stream, const TandemCudaLmHeadBackward* arguments);
size_t tandem_cuda_lm_head_backward_workspace(int rows, int vocabulary);

/* One token for each row by Philox of (seed, position): kernels/sampling.h without top_k, top_p and min_p. Temperature
 * 0 takes the largest logit, ties to the lowest id. */
typedef struct TandemCudaSample {
  const float* logits; /* what tandem_cuda_lm_head wrote, all three */
  const float* panel_sums;
  const float* log_sum;
  const float* temperatures; /* [rows], >= 0 */
  const uint64_t* seeds;     /* [rows] */
  const uint64_t* positions; /* [rows] */
  int32_t* tokens;           /* [rows] */
  float* logprobs;           /* [rows]: of the model itself, temperature 1 */
  float* sampling_logprobs;  /* [rows]: of the distribution that was drawn from */
  int rows, vocabulary;
} TandemCudaSample;
int tandem_cuda_sample(TandemCudaStream stream, const TandemCudaSample* arguments);

/* AdamW over one tensor, as kernels/optimizer.h has it. */
typedef struct TandemCudaAdamw {
  const float* grad;
  float* master;
  float* first_moment;
  float* second_moment;
  uint16_t* weight;
  int64_t count;
  float grad_scale, learning_rate, beta1, beta2, epsilon, weight_decay;
  int64_t step; /* counts from 1 */
} TandemCudaAdamw;
int tandem_cuda_adamw(TandemCudaStream stream, const TandemCudaAdamw* arguments);

/* Squares added up in double: in pieces of 65536 elements of 16 lanes each, lanes in order, pieces in order. */
typedef struct TandemCudaSumOfSquares {
  const float* values;
  int64_t count;
  double* result; /* one, written */
  void* workspace;
  size_t workspace_bytes;
} TandemCudaSumOfSquares;
int tandem_cuda_sum_of_squares(TandemCudaStream stream, const TandemCudaSumOfSquares* arguments);
size_t tandem_cuda_sum_of_squares_workspace(int64_t count);

/* From bf16 to E4M3 in blocks with a scale (E8M0), as kernels/quantize.h has it. A form whose two pointers are null is
 * left out; the scales of rows are [rows][blocks of columns], those of columns [columns][blocks of rows]. */
typedef struct TandemCudaQuantize {
  const uint16_t* x; /* [rows][columns], `stride` from row to row */
  int64_t stride;
  uint8_t* by_row; /* [rows][columns] */
  uint8_t* row_scales;
  uint8_t* by_column; /* [columns][rows] */
  uint8_t* column_scales;
  int rows, columns;
  int block; /* 128 or 32 */
} TandemCudaQuantize;
int tandem_cuda_quantize(TandemCudaStream stream, const TandemCudaQuantize* arguments);

/* A weight in blocks of 128 x 128. */
typedef struct TandemCudaQuantizeWeight {
  const uint16_t* weight; /* [rows][columns] */
  uint8_t* out;           /* [rows][columns] */
  uint8_t* scales;        /* [blocks of rows][blocks of columns] */
  int rows, columns;
} TandemCudaQuantizeWeight;
int tandem_cuda_quantize_weight(TandemCudaStream stream, const TandemCudaQuantizeWeight* arguments);

/* The way back. */
typedef struct TandemCudaExpand {
  const uint8_t* codes;  /* [rows][columns] */
  const uint8_t* scales; /* [blocks of rows][blocks of columns] */
  uint16_t* out;         /* [rows][columns] */
  int rows, columns;
  int block;      /* columns of a block: 128 or 32 */
  int block_rows; /* 1 or 128 */
} TandemCudaExpand;
int tandem_cuda_expand(TandemCudaStream stream, const TandemCudaExpand* arguments);

/* Mixtures of experts: formulas, ties and orders are those of kernels/experts.h. A pair is row * chosen + rank. */
typedef struct TandemCudaRoute {
  const float* logits; /* [rows][experts] */
  int32_t* ids;        /* [rows][chosen] */
  float* weights;      /* [rows][chosen] */
  const float* bias;   /* [experts] or null; only with sigmoids */
  float scale;
  int sigmoid, normalise;
  int rows, experts, chosen;
} TandemCudaRoute;
int tandem_cuda_route(TandemCudaStream stream, const TandemCudaRoute* arguments);

/* Ids are read as route gave them: one outside [0, experts) reads and writes out of bounds. */
typedef struct TandemCudaRouteBackward {
  const float* logits;       /* [rows][experts] */
  const int32_t* ids;        /* [rows][chosen] */
  const float* weights;      /* [rows][chosen] */
  const float* grad_weights; /* [rows][chosen] */
  uint16_t* grad_logits;     /* [rows], `grad_stride` from row to row, written to the stride */
  int64_t grad_stride;
  float scale;
  int sigmoid, normalise;
  int rows, experts, chosen;
} TandemCudaRouteBackward;
int tandem_cuda_route_backward(TandemCudaStream stream, const TandemCudaRouteBackward* arguments);

/* A pair whose id is outside [0, experts) has the place -1, and what follows leaves it out. */
typedef struct TandemCudaGroupByExpert {
  const int32_t* ids; /* [rows][chosen] */
  int32_t* offsets;   /* [experts + 1] */
  int32_t* places;    /* [rows][chosen] */
  int rows, experts, chosen;
} TandemCudaGroupByExpert;
int tandem_cuda_group_by_expert(TandemCudaStream stream, const TandemCudaGroupByExpert* arguments);

typedef struct TandemCudaPermute {
  const uint16_t* x;     /* [rows][width] */
  const int32_t* places; /* [rows][chosen] */
  uint16_t* out;         /* [rows * chosen][width] */
  int rows, chosen, width;
} TandemCudaPermute;
int tandem_cuda_permute(TandemCudaStream stream, const TandemCudaPermute* arguments);

typedef struct TandemCudaPermuteBackward {
  const uint16_t* grad_out; /* [rows * chosen][width] */
  const int32_t* places;
  uint16_t* grad_x; /* [rows][width], written */
  int rows, chosen, width;
} TandemCudaPermuteBackward;
int tandem_cuda_permute_backward(TandemCudaStream stream, const TandemCudaPermuteBackward* arguments);

typedef struct TandemCudaCombine {
  const uint16_t* y; /* [rows * chosen][width] */
  const int32_t* places;
  const float* weights;     /* [rows][chosen] */
  const uint16_t* residual; /* [rows][width] */
  uint16_t* out;            /* [rows][width]; may be the residual */
  int rows, chosen, width;
} TandemCudaCombine;
int tandem_cuda_combine(TandemCudaStream stream, const TandemCudaCombine* arguments);

typedef struct TandemCudaCombineBackward {
  const uint16_t* y;
  const int32_t* places;
  const float* weights;
  const uint16_t* grad_out; /* [rows][width] */
  uint16_t* grad_y;         /* [rows * chosen][width], written */
  float* grad_weights;      /* [rows][chosen], written */
  int rows, chosen, width;
} TandemCudaCombineBackward;
int tandem_cuda_combine_backward(TandemCudaStream stream, const TandemCudaCombineBackward* arguments);

/* out[i] = a[i] times the weight of the group that row i lies in: the bits that tandem_cuda_gemm gives with that weight
 * alone. Offsets must rise from 0 to m. */
typedef struct TandemCudaGroupedGemm {
  const uint16_t* a; /* [m][k] */
  int64_t a_stride;
  const int32_t* offsets; /* [groups + 1]: group g is rows offsets[g] to offsets[g + 1] */
  const uint16_t* b;      /* [groups][n][k] */
  uint16_t* out;          /* [m][n] */
  int64_t out_stride;
  int groups, m, n, k;
} TandemCudaGroupedGemm;
int tandem_cuda_grouped_gemm(TandemCudaStream stream, const TandemCudaGroupedGemm* arguments);

/* out[g] += (rows of group g of a) transposed times (the same rows of b). */
typedef struct TandemCudaKGroupedGemm {
  const uint16_t* a;      /* [rows][m] */
  const uint16_t* b;      /* [rows][n] */
  const int32_t* offsets; /* [groups + 1] */
  float* out;             /* [groups][m][n] */
  int groups, rows, m, n;
} TandemCudaKGroupedGemm;
int tandem_cuda_k_grouped_gemm(TandemCudaStream stream, const TandemCudaKGroupedGemm* arguments);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
