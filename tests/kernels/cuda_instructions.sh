#!/bin/sh
# What libtandem_cuda.so is compiled to: code for both architectures, the instructions of tensor cores that each is said to
# use, and kernels of warps whose registers are all registers: none of them spills to memory, and as many blocks as their
# bounds say fit a processor. Ends with 77 where no cuobjdump is: it comes with CUDA, and from PyPI as
# nvidia-cuda-cuobjdump, which needs nvidia-cuda-nvdisasm beside it.
#   cuda_instructions.sh LIBRARY CUOBJDUMP
set -eu
library="$1" cuobjdump="$2"
command -v "$cuobjdump" >/dev/null || { echo "there is no cuobjdump"; exit 77; }
for architecture in sm_90 sm_100; do
  "$cuobjdump" --list-elf "$library" | grep -q "\.$architecture" || { echo "$library: no code for $architecture"; exit 1; }
done
expect() {
  architecture="$1"; shift
  found=$("$cuobjdump" -sass -arch "$architecture" "$library" | grep -oE "$(echo "$*" | tr ' ' '|')" | sort | uniq -c)
  printf '%s:\n%s\n' "$architecture" "$found"
  for instruction in "$@"; do
    printf '%s\n' "$found" | grep -q " $instruction\$" || { echo "$library: no $instruction for $architecture"; exit 1; }
  done
}
# mma, ldmatrix and cp.async of kernels of warps; wgmma of bf16 and of E4M3, fed by TMA.
expect sm_90a HMMA LDSM LDGSTS HGMMA QGMMA UTMALDG
# Block-scaled products in tensor memory.
expect sm_100a HMMA LDSM LDGSTS UTCQMMA UTCCP LDTM
for architecture in sm_90a sm_100a; do
  "$cuobjdump" --dump-resource-usage -arch "$architecture" "$library" 2>&1 | awk -v architecture="$architecture" '
    /Function / { name = $2 }
    /REG:/ && name ~ /execute_warps|tensor_gemm/ {
      kernels++
      if ($0 !~ /STACK:0 /) { print architecture ": " name " spills: " $0; bad = 1 }
    }
    END { if (!bad) print architecture ": " kernels " kernels of warps, none spills"; exit bad || kernels == 0 }' || exit 1
done
