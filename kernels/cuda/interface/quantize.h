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
