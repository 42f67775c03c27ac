/* From bf16 to E4M3 in blocks with a scale (E8M0), as kernels/quantize.h has it, and back: a part of tandem_cuda.h. */

/* A form whose two pointers are null is
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

/* What rows become by quantize and expand, without the codes. */
typedef struct TandemCudaRoundToCodes {
  const uint16_t* x; /* [rows][columns], dense */
  uint16_t* out;     /* the same; may be x */
  int rows, columns;
  int block; /* 128 or 32 */
} TandemCudaRoundToCodes;
int tandem_cuda_round_to_codes(TandemCudaStream stream, const TandemCudaRoundToCodes* arguments);

/* Rows that become E4M3 on the way: the bits of add, rms_norm and quantize by rows, one after the other. Of out and
 * codes one is given at least; codes and scales go together. */
typedef struct TandemCudaNormQuantize {
  uint16_t* x;              /* [rows][width]; becomes bf16(x + residual) where there is a residual */
  const uint16_t* residual; /* [rows][width] or null */
  const uint16_t* weight;   /* [width] */
  uint16_t* out;            /* [rows][width], the normed rows; or null */
  uint8_t* codes;           /* [rows][width] or null */
  uint8_t* scales;          /* [rows][blocks of width] */
  float epsilon;
  int rows, width;
  int block; /* 128 or 32 */
} TandemCudaNormQuantize;
int tandem_cuda_norm_quantize(TandemCudaStream stream, const TandemCudaNormQuantize* arguments);

/* The same of swiglu, or geglu where `gelu_tanh`. */
typedef struct TandemCudaGateQuantize {
  const uint16_t* gate_up; /* [rows][2 * width], gate first */
  uint16_t* out;
  uint8_t* codes;
  uint8_t* scales;
  int gelu_tanh;
  int rows, width;
  int block;
} TandemCudaGateQuantize;
int tandem_cuda_gate_quantize(TandemCudaStream stream, const TandemCudaGateQuantize* arguments);

/* Products of MXFP8 on both sides, codes and scales as tandem_cuda_quantize makes them of rows with blocks of 32. For
 * each element: sum = fp32(sum + block) over blocks of 32 of k from first to last, where block is the exact sum of 32
 * products times both scales (kernels/reference/mxfp8.h). On devices of compute capability 10 the tensor cores do it,
 * whose sums may keep fewer bits than fp32's in a way that only a device can show; elsewhere plain arithmetic does it
 * as it stands here. The order of blocks depends on k alone in both. */
typedef struct TandemCudaMxfp8Gemm {
  const uint8_t* a;        /* [m][k] */
  const uint8_t* a_scales; /* [m][blocks of k] */
  const uint8_t* b;        /* [n][k] */
  const uint8_t* b_scales; /* [n][blocks of k] */
  uint16_t* out;           /* exactly one of the two outputs */
  float* out_float;
  int64_t out_stride;
  int m, n, k;
} TandemCudaMxfp8Gemm;
int tandem_cuda_mxfp8_gemm(TandemCudaStream stream, const TandemCudaMxfp8Gemm* arguments);

/* The same by group: the bits that the one above gives for the rows of a group with its weight alone. */
typedef struct TandemCudaMxfp8GroupedGemm {
  const uint8_t* a; /* [m][k] */
  const uint8_t* a_scales;
  const int32_t* offsets; /* [groups + 1], rising from 0 to m */
  const uint8_t* b;       /* [groups][n][k] */
  const uint8_t* b_scales;
  uint16_t* out; /* [m][n] */
  int64_t out_stride;
  int groups, m, n, k;
} TandemCudaMxfp8GroupedGemm;
int tandem_cuda_mxfp8_grouped_gemm(TandemCudaStream stream, const TandemCudaMxfp8GroupedGemm* arguments);
