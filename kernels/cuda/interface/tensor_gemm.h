/* Products of bf16, and of E4M3 with scales, on the tensor cores of Hopper: a part of tandem_cuda.h. */

/* out = a b^T. For each element: 16 of k after the other from first to last (what the last lacks is 0), each added to
 * the sum as kernels/reference/tensor_cores.h defines it (kHopperBf16); so the order depends on k alone. Devices of
 * compute capability 9.0 do it by wgmma, others by plain arithmetic with the same bits, but for NaN, infinities and
 * sums beyond fp32, which only the tensor cores define. kTandemCudaShape where k is no multiple of 8, or `a` or `b`
 * does not lie at a multiple of 16 bytes. */
typedef struct TandemCudaTensorGemm {
  const uint16_t* a; /* [m][k] */
  const uint16_t* b; /* [n][k] */
  uint16_t* out;     /* exactly one of the two outputs */
  float* out_float;
  int64_t out_stride;
  int m, n, k;
} TandemCudaTensorGemm;
int tandem_cuda_tensor_gemm(TandemCudaStream stream, const TandemCudaTensorGemm* arguments);

/* The same of E4M3 with scales in E8M0, as tandem_cuda_quantize (rows, blocks of 128) and tandem_cuda_quantize_weight
 * make them. For each element: sum = fma(block, scale of a * scale of b, sum) over blocks of 128 of k from first to
 * last, where block is 32 of k after the other from 0, as kHopperE4m3 defines it. kTandemCudaShape where k is no
 * multiple of 16. */
typedef struct TandemCudaTensorGemmFp8 {
  const uint8_t* a;        /* [m][k] */
  const uint8_t* a_scales; /* [m][blocks of k] */
  const uint8_t* b;        /* [n][k] */
  const uint8_t* b_scales; /* [blocks of n][blocks of k] */
  uint16_t* out;           /* exactly one of the two outputs */
  float* out_float;
  int64_t out_stride;
  int m, n, k;
} TandemCudaTensorGemmFp8;
int tandem_cuda_tensor_gemm_fp8(TandemCudaStream stream, const TandemCudaTensorGemmFp8* arguments);
