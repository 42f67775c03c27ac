/* Mixtures of experts: formulas, ties and orders are those of kernels/experts.h. A pair is row * top_k + rank. A part
 * of tandem_cuda.h. */

typedef struct TandemCudaRoute {
  const float* logits; /* [rows][experts] */
  int32_t* ids;        /* [rows][top_k] */
  float* weights;      /* [rows][top_k] */
  const float* bias;   /* [experts] or null; only with sigmoids */
  float scale;
  int sigmoid, normalise;
  int rows, experts, top_k;
  int groups, top_k_groups; /* as kernels/experts.h has them, at most 64 groups; 0 groups: one */
  const int32_t* given; /* [rows][top_k] or null: experts that rows take; an id out of range first: the row chooses */
  int32_t* changed;     /* [rows] or null; written where `given` is: 1 where the row would choose other experts */
} TandemCudaRoute;
int tandem_cuda_route(TandemCudaStream stream, const TandemCudaRoute* arguments);

/* Ids are read as route gave them: one outside [0, experts) reads and writes out of bounds. */
typedef struct TandemCudaRouteBackward {
  const float* logits;       /* [rows][experts] */
  const int32_t* ids;        /* [rows][top_k] */
  const float* weights;      /* [rows][top_k] */
  const float* grad_weights; /* [rows][top_k] */
  uint16_t* grad_logits;     /* [rows], `grad_stride` from row to row, written to the stride */
  int64_t grad_stride;
  float scale;
  int sigmoid, normalise;
  int rows, experts, top_k;
} TandemCudaRouteBackward;
int tandem_cuda_route_backward(TandemCudaStream stream, const TandemCudaRouteBackward* arguments);

/* A pair whose id is outside [0, experts) has the place -1, and what follows leaves it out. */
typedef struct TandemCudaGroupByExpert {
  const int32_t* ids; /* [rows][top_k] */
  int32_t* offsets;   /* [experts + 1] */
  int32_t* places;    /* [rows][top_k] */
  int rows, experts, top_k;
} TandemCudaGroupByExpert;
int tandem_cuda_group_by_expert(TandemCudaStream stream, const TandemCudaGroupByExpert* arguments);

typedef struct TandemCudaPermuteBackward {
  const uint16_t* grad_out; /* [rows * top_k][width] */
  const int32_t* places;
  uint16_t* grad_x; /* [rows][width], written */
  int rows, top_k, width;
} TandemCudaPermuteBackward;
int tandem_cuda_permute_backward(TandemCudaStream stream, const TandemCudaPermuteBackward* arguments);

typedef struct TandemCudaCombineBackward {
  const uint16_t* y;
  const int32_t* places;
  const float* weights;
  const uint16_t* grad_out; /* [rows][width] */
  uint16_t* grad_y;         /* [rows * top_k][width], written */
  float* grad_weights;      /* [rows][top_k], written */
  int rows, top_k, width;
} TandemCudaCombineBackward;
int tandem_cuda_combine_backward(TandemCudaStream stream, const TandemCudaCombineBackward* arguments);

/* out[g] += (rows of group g of a) transposed times (the same rows of b). */
typedef struct TandemCudaKGroupedGemm {
  const uint16_t* a;      /* [rows][m] */
  const uint16_t* b;      /* [rows][n] */
  const int32_t* offsets; /* [groups + 1] */
  float* out;             /* [groups][m][n] */
  int groups, rows, m, n;
} TandemCudaKGroupedGemm;
int tandem_cuda_k_grouped_gemm(TandemCudaStream stream, const TandemCudaKGroupedGemm* arguments);
