#!/bin/sh
# What libtandem_cuda.so is compiled to: code for both architectures, and block-scaled products of the tensor cores for the
# one that has them. Ends with 77 where no cuobjdump is: it comes with CUDA, and from PyPI as nvidia-cuda-cuobjdump, which
# needs nvidia-cuda-nvdisasm beside it.
#   cuda_instructions.sh LIBRARY CUOBJDUMP
set -eu
library="$1" cuobjdump="$2"
command -v "$cuobjdump" >/dev/null || { echo "there is no cuobjdump"; exit 77; }
for architecture in sm_90 sm_100; do
  "$cuobjdump" --list-elf "$library" | grep -q "\.$architecture" || { echo "$library: no code for $architecture"; exit 1; }
done
instructions=$("$cuobjdump" -sass -arch sm_100a "$library" | grep -oE 'UTCQMMA|UTCCP|LDTM' | sort | uniq -c)
printf '%s\n' "$instructions"
for instruction in UTCQMMA UTCCP LDTM; do
  printf '%s\n' "$instructions" | grep -q "$instruction" || { echo "$library: no $instruction for sm_100a"; exit 1; }
done
