/* The C interface of libtandem_torch.so: losses and advantages of the user's own, computed by LibTorch.
 *
 * Everything is float64 and row-major; the library copies what it is given before the user's code sees it. Errors are
 * texts in the caller's buffer, cut to its size. Thread safety: one call at a time for a function.
 */
#ifndef TANDEM_TORCH_H
#define TANDEM_TORCH_H

#include <stddef.h>
#include <stdint.h>

#define TANDEM_TORCH_VERSION 4 /* also of tandem_torch_model.h */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TandemTorchFunction TandemTorchFunction;

typedef struct {
  int64_t rows, length; /* of every [rows, length] below */
  int64_t step;
  const double *logprobs, *old_logprobs, *rollout_logprobs;
  const double* advantages;    /* NULL: they are to be made */
  const double* ref_logprobs;  /* NULL: none */
  const double* token_rewards; /* NULL: none */
  const uint8_t* mask;
  const int64_t* turns;
  const int64_t* groups; /* [rows] */
  const double* weights; /* [rows]: of a row's sum of token losses */
  const char* const* metric_names;
  const double* metrics; /* [metric_count, rows]: of the episode; NaN: it has none of this name */
  size_t metric_count;
  double* grad_logprobs; /* written, of a loss */
  double loss;           /* the same */
  double* made;          /* [rows, length], written: the advantages */
} TandemTorchBatch;

typedef void (*TandemTorchMetric)(void* context, const char* name, double value);

int tandem_torch_version(void);
/* Such as "2.11.0". */
const char* tandem_torch_release(void);
/* Reads a script or a library; `name` is loss or advantages, `options` are NAME=VALUE. NULL on an error. */
TandemTorchFunction* tandem_torch_load(const char* file, int is_library, const char* name, const char* const* options,
                                       size_t count, char* error, size_t error_size);
/* Whether the function takes ref_logprobs. */
int tandem_torch_takes_reference(const TandemTorchFunction* function);
/* Of the name that the function was read by. 0, or -1 on an error. */
int tandem_torch_compute(TandemTorchFunction* function, TandemTorchBatch* batch, TandemTorchMetric on_metric,
                         void* context, char* error, size_t error_size);
void tandem_torch_free(TandemTorchFunction* function);

#ifdef __cplusplus
}
#endif

#endif
