/* The gradient of attention: a part of tandem_cuda.h. */

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
  const uint16_t* queries; /* all with `stride`: columns of one fused [q | k | v] matrix, or [q | k] */
  const uint16_t* keys;
  const uint16_t* values;
  int64_t stride;
  const uint16_t* out;      /* the forward's result, [rows][heads * value_size] */
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
  int window;     /* 0: all */
  int value_size; /* 0: as keys */
  void* workspace;
  size_t workspace_bytes;
} TandemCudaAttentionBackward;
int tandem_cuda_attention_backward(TandemCudaStream stream, const TandemCudaAttentionBackward* arguments);
size_t tandem_cuda_attention_backward_workspace(int rows, int heads);
