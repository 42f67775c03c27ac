/* What an encoder of sentences computes: a part of tandem_cuda.h. */

/* LayerNorm, fp32: out = (x - mean) / sqrt(variance + epsilon) * weight + bias, as kernels/encoder_ops.h has it. `out`
 * may be x. */
typedef struct TandemCudaLayerNorm {
  const float* x;      /* [rows][width] */
  const float* weight; /* [width] */
  const float* bias;   /* [width] */
  float* out;          /* [rows][width] */
  float epsilon;
  int rows, width;
} TandemCudaLayerNorm;
int tandem_cuda_layer_norm(TandemCudaStream stream, const TandemCudaLayerNorm* arguments);

/* grad_x may be grad_out; gradients of weight and bias are added up as those of tandem_cuda_rms_norm_backward. */
typedef struct TandemCudaLayerNormBackward {
  const float* x;
  const float* weight;
  const float* grad_out;
  float* grad_x;      /* written */
  float* grad_weight; /* [width], added to */
  float* grad_bias;   /* [width], added to */
  float epsilon;
  int rows, width;
  void* workspace;
  size_t workspace_bytes;
} TandemCudaLayerNormBackward;
int tandem_cuda_layer_norm_backward(TandemCudaStream stream, const TandemCudaLayerNormBackward* arguments);
size_t tandem_cuda_layer_norm_backward_workspace(int rows, int width);

/* x = x P(normal <= x) in place. */
typedef struct TandemCudaGelu {
  float* x;
  int64_t count;
} TandemCudaGelu;
int tandem_cuda_gelu(TandemCudaStream stream, const TandemCudaGelu* arguments);

/* grad *= the derivative of gelu at x. */
typedef struct TandemCudaGeluBackward {
  const float* x; /* as it was before */
  float* grad;
  int64_t count;
} TandemCudaGeluBackward;
int tandem_cuda_gelu_backward(TandemCudaStream stream, const TandemCudaGeluBackward* arguments);

/* Every row of a sequence sees all rows of it, fp32. */
typedef struct TandemCudaBidirectionalAttention {
  const float* queries; /* [row][heads * head_size], all three with `stride` */
  const float* keys;
  const float* values;
  int64_t stride;
  float* out; /* [row][heads * head_size], none of the inputs */
  int64_t out_stride;
  const int32_t* ends; /* [sequences], rising: of each sequence the row behind its last, the last one `rows` */
  int sequences, rows, heads;
  int head_size; /* 1 to 256 */
  float scale;
} TandemCudaBidirectionalAttention;
int tandem_cuda_bidirectional_attention(TandemCudaStream stream, const TandemCudaBidirectionalAttention* arguments);
