#!/bin/sh
# Instructions of AVX-512 stand only in functions of the namespaces that are chosen for machines that have it. A template of the
# standard library that was compiled beside them could be taken by the linker for everybody, and end the program elsewhere.
#   instruction_sets.sh PROGRAM
set -eu
found=$(objdump -d --no-show-raw-insn "$1" | awk '
  /^[0-9a-f]+ <.*>:$/ { function_name = $2 }
  /%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])/ { counts[function_name ~ /avx512|amx_bf16/ ? "inside" : function_name]++ }
  END { for (name in counts) print name, counts[name] }')
printf '%s\n' "$found" | grep -q '^inside ' || { echo "no AVX-512 instruction at all was found in $1: is it the right file?"; exit 1; }
strays=$(printf '%s\n' "$found" | grep -v '^inside ' || true)
[ -z "$strays" ] || { printf 'AVX-512 instructions outside of its namespaces, and how many:\n%s\n' "$strays" | c++filt; exit 1; }
