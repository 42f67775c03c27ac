/* The operations of kernels/ on NVIDIA GPUs: the C interface of libtandem_cuda.so. This file has devices, streams and
 * their memory; the operations lie by topic in interface/, which it includes.
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
#define TANDEM_CUDA_VERSION 9

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
/* What adds up products of bf16 on a stream. Exact: one chain of fused multiply-adds over k an element, the bits of
 * AVX2. Tensor: tensor cores, 16 of k after the other from first to last (the last is filled with 0), each added to the
 * sum as kernels/reference/tensor_cores.h says of mma.sync; where "one fused chain" is written below it is this one,
 * and all else stays. Products of fp32 are exact on both. */
enum TandemCudaKernels { kTandemCudaExact = 0, kTandemCudaTensor = 1 };
int tandem_cuda_stream_create(int device, int kernels, TandemCudaStream* stream);
int tandem_cuda_stream_destroy(TandemCudaStream stream);
/* Waits until everything on the stream is done, and reports what went wrong there. */
int tandem_cuda_synchronize(TandemCudaStream stream);
int tandem_cuda_allocate(TandemCudaStream stream, size_t bytes, void** memory);
int tandem_cuda_free(TandemCudaStream stream, void* memory);
/* In the order of the stream; host memory stays untouched by the caller until the stream has passed. */
int tandem_cuda_copy_to_device(TandemCudaStream stream, void* device, const void* host, size_t bytes);
int tandem_cuda_copy_to_host(TandemCudaStream stream, void* host, const void* device, size_t bytes);
int tandem_cuda_copy_on_device(TandemCudaStream stream, void* to, const void* from, size_t bytes);
/* Host memory that copies read and write while the host goes on; other host memory makes them wait. */
int tandem_cuda_allocate_host(TandemCudaStream stream, size_t bytes, void** memory);
int tandem_cuda_free_host(TandemCudaStream stream, void* memory);
/* Bytes of the stream's device that nobody has, and all. */
int tandem_cuda_memory(TandemCudaStream stream, size_t* free, size_t* all);
/* 1 where everything on the stream is done, else 0: what a wait with a deadline asks. */
int tandem_cuda_done(TandemCudaStream stream, int* done);
/* A mark in a stream's work. Recorded again, it means the later place. `done` is 1 where the work before it is done, or
 * where it was never recorded; `stream_wait` holds up what is put on `stream` from then on until it is. */
typedef struct TandemCudaEventState* TandemCudaEvent;
int tandem_cuda_event_create(TandemCudaStream stream, TandemCudaEvent* event);
int tandem_cuda_event_destroy(TandemCudaEvent event);
int tandem_cuda_event_record(TandemCudaStream stream, TandemCudaEvent event);
int tandem_cuda_event_done(TandemCudaEvent event, int* done);
int tandem_cuda_stream_wait(TandemCudaStream stream, TandemCudaEvent event);
/* Work that was put on a stream once and can be put on it again by one call. Between `capture_begin` and `capture_end`
 * operations and copies that are put on the stream are collected and not done. A thread that captures may neither
 * allocate, free, wait nor ask for events: such a call is an error, and `capture_end` then fails too. After
 * `capture_end` the stream captures no more, whatever it returned; `graph` null lets what was collected go. A graph
 * holds addresses and sizes as they were: memory must live, and host memory stay, until the stream has passed the last
 * launch. A graph that is destroyed ends what it has under way. */
typedef struct TandemCudaGraphState* TandemCudaGraph;
int tandem_cuda_capture_begin(TandemCudaStream stream);
int tandem_cuda_capture_end(TandemCudaStream stream, TandemCudaGraph* graph);
int tandem_cuda_graph_launch(TandemCudaStream stream, TandemCudaGraph graph);
int tandem_cuda_graph_destroy(TandemCudaGraph graph);
/* The cudaStream_t itself, for libraries such as NCCL; the stream stays its owner. */
void* tandem_cuda_raw_stream(TandemCudaStream stream);

/* A side of a product in E4M3: `codes` [rows][k], dense, and their scales [blocks of rows][blocks of k], in blocks of
 * block_rows x block. None where `codes` is null. */
typedef struct TandemCudaCodes {
  const uint8_t* codes;
  const uint8_t* scales;
  int block;      /* 128 or 32 */
  int block_rows; /* 1 or 128 */
} TandemCudaCodes;

/* A row and a token whose log-probability is wanted. */
typedef struct TandemCudaPick {
  int32_t row, token;
} TandemCudaPick;

#define TANDEM_CUDA_T uint16_t
#define TANDEM_CUDA_NAME(name) TandemCuda##name
#define TANDEM_CUDA_FUNCTION(name) tandem_cuda_##name
#include "kernels/cuda/interface/elements.h"
#undef TANDEM_CUDA_T
#undef TANDEM_CUDA_NAME
#undef TANDEM_CUDA_FUNCTION
#define TANDEM_CUDA_T float
#define TANDEM_CUDA_NAME(name) TandemCuda##name##Float
#define TANDEM_CUDA_FUNCTION(name) tandem_cuda_##name##_float
#include "kernels/cuda/interface/elements.h"
#undef TANDEM_CUDA_T
#undef TANDEM_CUDA_NAME
#undef TANDEM_CUDA_FUNCTION

#include "kernels/cuda/interface/attention.h"
#include "kernels/cuda/interface/encoder.h"
#include "kernels/cuda/interface/experts.h"
#include "kernels/cuda/interface/lm_head.h"
#include "kernels/cuda/interface/optimizer.h"
#include "kernels/cuda/interface/places.h"
#include "kernels/cuda/interface/quantize.h"
#include "kernels/cuda/interface/rows.h"
#include "kernels/cuda/interface/tensor_gemm.h"

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
