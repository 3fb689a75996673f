#!/usr/bin/env bash
# Checks and measures the GPU part on a machine with a GPU, in under ten minutes.
#
#   bench/gpu.sh prepare            where Go and gcc are: builds into build/gpu
#   bench/gpu.sh run MODEL.gguf     where the GPU is; it needs build/gpu and this file
#
# Results come under $OUT, or build/gpu/results: correctness first, then speed.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/gpu

prepare() {
  eval "$(internal/cudrv/build)"
  mkdir -p $bin
  go build -tags cuda,grpcnotrace -trimpath -ldflags "-s -w" -o $bin/forebay .
  go test -tags cuda -c -o $bin/kernels.test ./kernels/cuda
  go test -tags cuda -c -o $bin/gpu.test ./engine/gpu
  sed -nE 's/^X\((.*)\)$/\1/p' internal/cudrv/shim/names.h >$bin/names
  ls -l $bin
}

run() {
  local model=$1 out=${OUT:-$bin/results}
  unset FOREBAY_CUDA_DRIVER
  mkdir -p "$out"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv >"$out/gpu.csv"
  # Names of 12.x that this driver no longer has; those that are called would fail by name.
  local driver
  driver=$(ldconfig -p | awk '/libcuda\.so\.1/ {print $NF; exit}')
  { nm -D --defined-only "$driver" | awk '{print $3}' | sed 's/@.*//' | sort -u | comm -13 - <(sort -u $bin/names) || true; } >"$out/missing-names"
  echo "== correctness"
  local failed=0
  (cd kernels/cuda && ../../$bin/kernels.test -test.timeout 180s) >"$out/kernels.txt" 2>&1 || failed=1
  (cd engine/gpu && ../../$bin/gpu.test -test.timeout 180s -test.skip 'TestRefusals|TestNoDevice') >"$out/gpu.txt" 2>&1 || failed=1
  tail -n 2 "$out/kernels.txt" "$out/gpu.txt"
  [ $failed = 0 ] || { echo "kernels are wrong on this GPU: times would say nothing"; exit 1; }
  echo "== speed"
  for streams in 1 8 64; do
    timeout 60 $bin/forebay bench engine "$model" --device cuda --prefill 0 --depth 1024 --streams $streams --runs 3 --steps 48 --json
  done >"$out/decode.jsonl"
  for prompt in 512 8192; do
    timeout 60 $bin/forebay bench engine "$model" --device cuda --prefill $prompt --depth none --batch 512 --runs 2 --json
  done >"$out/prefill.jsonl"
  echo "== start"
  { time timeout 60 $bin/forebay model logits "$model" --ids 1 -o /dev/null --device cuda; } 2>"$out/start.txt"
  cat "$out/decode.jsonl" "$out/prefill.jsonl" "$out/start.txt"
}

case "${1:-} $#" in
"prepare 1") prepare ;;
"run 2") run "$2" ;;
*) sed -n '2,8p' "$0"; exit 2 ;;
esac
