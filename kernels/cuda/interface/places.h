/* What puts things where the next operation looks for them: a part of tandem_cuda.h. */

/* to[rows[i]] = from[places[i]]: tokens that were drawn become tokens of the next batch. Places and rows must be right:
 * nothing checks them. No two rows are the same. */
typedef struct TandemCudaTakeTokens {
  const int32_t* from;
  const int32_t* places; /* [count] */
  int32_t* to;
  const int32_t* rows; /* [count] */
  int count;
} TandemCudaTakeTokens;
int tandem_cuda_take_tokens(TandemCudaStream stream, const TandemCudaTakeTokens* arguments);

/* out[rows[i]] = bf16(x[i]). Rows must be right: nothing checks them. No two are the same. */
typedef struct TandemCudaPutRows {
  const float* x;      /* [count][width] */
  const int32_t* rows; /* [count] */
  uint16_t* out;       /* [..][width] */
  int count, width;
} TandemCudaPutRows;
int tandem_cuda_put_rows(TandemCudaStream stream, const TandemCudaPutRows* arguments);
