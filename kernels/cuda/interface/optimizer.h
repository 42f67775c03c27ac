/* Optimizers, the norm of gradients, and a digest of what came out: a part of tandem_cuda.h. */

/* AdamW over one tensor, as kernels/optimizer.h has it. The moments are fp32 or bf16: exactly one pair is given. */
typedef struct TandemCudaAdamw {
  const float* grad;
  float* master;
  float* first_moment;
  float* second_moment;
  uint16_t* first_moment_bf16; /* with a beta2 of at most 0.996 */
  uint16_t* second_moment_bf16;
  uint16_t* weight;
  int64_t count;
  float grad_scale, learning_rate, beta1, beta2, epsilon, weight_decay;
  int64_t step;    /* counts from 1 */
  uint8_t* codes;  /* [count] or null: the new weight, in blocks of 128 x 128 as tandem_cuda_quantize_weight has it */
  uint8_t* scales; /* with codes */
  int columns;     /* of the weight, with codes; divides count */
} TandemCudaAdamw;
int tandem_cuda_adamw(TandemCudaStream stream, const TandemCudaAdamw* arguments);

/* Muon over one matrix, as kernels/muon.h has it. */
typedef struct TandemCudaMuon {
  const float* grad; /* [rows][columns], as all below */
  float* master;
  float* momentum;
  uint16_t* weight;
  int rows, columns; /* at least 1 */
  float grad_scale, learning_rate, beta, weight_decay, epsilon;
  int nesterov;
  int iterations; /* 1 to 20 */
  int like_adamw; /* the scale: Moonshot's, else Jordan's */
  void* workspace;
  size_t workspace_bytes;
} TandemCudaMuon;
int tandem_cuda_muon(TandemCudaStream stream, const TandemCudaMuon* arguments);
size_t tandem_cuda_muon_workspace(int rows, int columns);

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

/* The digest of kernels/digest.h: XXH3 (128 bits) over those of pieces of 1 MiB. */
typedef struct TandemCudaDigest {
  const uint8_t* bytes; /* or null, where count is 0 */
  int64_t count;
  uint64_t* result; /* [2], written: low, high */
  void* workspace;
  size_t workspace_bytes;
} TandemCudaDigest;
int tandem_cuda_digest(TandemCudaStream stream, const TandemCudaDigest* arguments);
size_t tandem_cuda_digest_workspace(int64_t count);
