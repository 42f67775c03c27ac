// Everything that runs on a GPU, and in tests on the host.
#pragma once

#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/code_rows.cuh"
#include "kernels/cuda/digest.cuh"
#include "kernels/cuda/encoder.cuh"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/cuda/lm_head_backward.cuh"
#include "kernels/cuda/muon.cuh"
#include "kernels/cuda/mxfp8.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/cuda/sampling.cuh"
#include "kernels/cuda/tensor_attention_backward.cuh"
#include "kernels/cuda/tensor_attention_launch.cuh"
#include "kernels/cuda/tensor_gemm.cuh"
