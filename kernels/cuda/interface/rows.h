/* The way back of row-wise operations: a part of tandem_cuda.h. */

/* grad_table[ids[r]] += grad_out[r], rows in order; ids outside [0, vocabulary) add nothing. */
typedef struct TandemCudaEmbedBackward {
  const uint16_t* grad_out;
  const int32_t* ids;
  float* grad_table;
  int rows, vocabulary, width;
} TandemCudaEmbedBackward;
int tandem_cuda_embed_backward(TandemCudaStream stream, const TandemCudaEmbedBackward* arguments);

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

/* rms_norm_backward of each head of a row by itself. */
typedef struct TandemCudaHeadNormBackward {
  const uint16_t* x; /* [row][heads][head_size], as they were before the norm */
  uint16_t* grad;    /* of the normed heads; becomes that of x */
  int64_t stride;    /* of x and grad */
  const uint16_t* weight;
  float* grad_weight; /* [head_size], added to */
  float epsilon;
  int rows, heads, head_size;
  void* workspace;
  size_t workspace_bytes;
} TandemCudaHeadNormBackward;
int tandem_cuda_head_norm_backward(TandemCudaStream stream, const TandemCudaHeadNormBackward* arguments);
size_t tandem_cuda_head_norm_backward_workspace(int rows, int heads, int head_size);

/* out += the sum of the rows of x: the gradient of a bias. */
typedef struct TandemCudaSumRows {
  const uint16_t* x;
  int64_t stride; /* from row to row */
  float* out;     /* [width] */
  int rows, width;
  void* workspace;
  size_t workspace_bytes;
} TandemCudaSumRows;
int tandem_cuda_sum_rows(TandemCudaStream stream, const TandemCudaSumRows* arguments);
size_t tandem_cuda_sum_rows_workspace(int rows, int width);

typedef struct TandemCudaSwigluBackward {
  const uint16_t* gate_up;
  const uint16_t* grad_out;
  uint16_t* grad_gate_up; /* written; may be gate_up */
  int rows, width;
} TandemCudaSwigluBackward;
int tandem_cuda_swiglu_backward(TandemCudaStream stream, const TandemCudaSwigluBackward* arguments);

typedef struct TandemCudaGegluBackward {
  const uint16_t* gate_up;
  const uint16_t* grad_out;
  uint16_t* grad_gate_up; /* written; may be gate_up */
  int rows, width;
} TandemCudaGegluBackward;
int tandem_cuda_geglu_backward(TandemCudaStream stream, const TandemCudaGegluBackward* arguments);
