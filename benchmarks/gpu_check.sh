#!/usr/bin/env bash
# Builds, tests and times jax_rtopk on the NVIDIA GPU of this machine, without a network, in less than eight minutes:
#
#     bash benchmarks/gpu_check.sh               # installs into python3's environment
#     bash benchmarks/gpu_check.sh --rehearse    # the same steps in small on a CPU, with the package as it is installed
#
# Needs jax for CUDA, nvcc, a C++ compiler, cmake, ninja, nanobind, scikit-build-core and pytest; uses pytest-xdist,
# hypothesis, flax, torch and compute-sanitizer where they are. PYTHON names another python3.
#
# The report is written to $OUT, a file or a folder, else to benchmarks/results/gpu-<device>.json. In a folder, the whole
# log is put beside it. Each stage has a time limit; one that fails does not keep the next from running. Exits 1 if a
# stage that checks something failed or did not get to its end.
set -uo pipefail
cd "$(dirname "$0")/.."

rehearse=
case "${1:-}" in
  --rehearse) rehearse=--rehearse ;;
  "") ;;
  *) echo "usage: bash benchmarks/gpu_check.sh [--rehearse]" >&2 && exit 2 ;;
esac
python=${PYTHON:-python3}
total=460 # seconds, of which the timings take what the checks leave
[ "$rehearse" ] && total=120

if [ -z "$rehearse" ] && ! nvidia-smi >/dev/null; then
  echo "no NVIDIA GPU here; --rehearse runs the same steps in small on the CPU" >&2
  exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PYTHONUNBUFFERED=1
if [ "$rehearse" ]; then
  export JAX_PLATFORMS=cpu
  OUT=${OUT:-$work} # no report among the results of GPUs
fi

record() { # record <stage> <result> <seconds>
  printf '=== %s: %s, %d s\n' "$1" "$2" "$3"
  printf '%s\t%s\t%d\n' "$1" "$2" "$3" >>"$work/stages.tsv"
}

# stage <name> <seconds> <command>...: runs it under that limit; prints the end of what it says, and keeps all of it.
stage() {
  local name=$1 limit=$2 start=$SECONDS status=0 result
  shift 2
  printf '\n=== %s (at most %d s)\n' "$name" "$limit" | tee -a "$work/log"
  # INT: pytest then says how far it got.
  timeout --signal=INT --kill-after=8 "$limit" "$@" >"$work/output" 2>&1 </dev/null || status=$?
  cat "$work/output" >>"$work/log"
  tail -n 12 "$work/output" | cut -c 1-300
  case $status in
    0) result=passed ;;
    124 | 137) result="not done within $limit s" ;;
    *) result="failed ($status)" ;;
  esac
  record "$name" "$result" $((SECONDS - start))
  return "$status"
}

check() { stage "$@" || failed=1; }

has() { "$python" -P -c "import $1" 2>/dev/null; }

seconds_left() { # seconds_left <percent>: that share of what is left of the total, at least 8
  local left=$(((total - SECONDS) * $1 / 100))
  echo $((left > 8 ? left : 8))
}

# --- install

if [ "$rehearse" ]; then
  record install "skipped: a rehearsal" 0
else
  archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  check install 140 env JAX_RTOPK_CUDA=ON JAX_RTOPK_CUDA_ARCHS="$archs" \
    "$python" -m pip install --no-build-isolation --no-deps --force-reinstall .
fi

# --- tests

pytest=("$python" -P -m pytest -q --maxfail 20) # -P: not the source folder jax_rtopk
gpu_tests=("${pytest[@]}" --backends=gpu -m gpu) # -m: the others need no GPU
optional=()
if has xdist; then
  optional+=(--numprocesses auto --maxprocesses 12)
else
  echo "no pytest-xdist: the tests run in one process, and may not all get their turn"
fi
if ! has hypothesis; then
  mapfile -t without < <(grep -l '^from hypothesis' tests/test_*.py)
  echo "no hypothesis: left out are ${without[*]}"
  optional+=("${without[@]/#/--ignore=}")
fi
if ! has flax; then
  mapfile -t without < <(grep -lE '^(from|import) flax' tests/test_*.py)
  echo "no flax: left out are ${without[*]}"
  # The layers hold docstring examples, for which they would be imported.
  optional+=("${without[@]/#/--ignore=}" --doctest-ignore-import-errors)
fi
if [ "$rehearse" ]; then
  check tests 60 "${pytest[@]}" "${optional[@]}" --backends=native tests/test_regimes.py
else
  check tests 100 env XLA_PYTHON_CLIENT_PREALLOCATE=false "${gpu_tests[@]}" "${optional[@]}"
fi

# --- compute-sanitizer: each of the kernels on a few rows

by_length="256-1-float32 or 768-64 or 1023-100 or 4096-1 or 16384-300 or 40000-100"
by_buckets="more_candidates or (every_length and (2-float32 or 16-float32))"
by_many_blocks="across_parts or many_blocks"
sanitized=(tests/test_{regimes,buckets,parts,digits}.py)
sanitized+=(-k "more_rows or $by_many_blocks or (float32 and ($by_length or $by_buckets))")
if [ "$rehearse" ]; then
  check memcheck 30 "${pytest[@]}" --backends=native "${sanitized[@]}"
  record racecheck "skipped: a rehearsal" 0
elif ! command -v compute-sanitizer >/dev/null; then
  record memcheck "skipped: no compute-sanitizer" 0
  record racecheck "skipped: no compute-sanitizer" 0
else
  # Only our kernels, not XLA's; every buffer an allocation of its own, so that memcheck knows where it ends; and no
  # reports of CUDA calls that fail, since XLA tries out some that do.
  sanitizer=(env XLA_PYTHON_CLIENT_ALLOCATOR=platform compute-sanitizer --error-exitcode 9 --kernel-name kns=jax_rtopk)
  check memcheck 40 "${sanitizer[@]}" --tool memcheck --report-api-errors no "${gpu_tests[@]}" "${sanitized[@]}"
  check racecheck 40 "${sanitizer[@]}" --tool racecheck "${gpu_tests[@]}" "${sanitized[@]}"
fi

# --- CUDA graphs

# XLA makes a graph of no fewer calls than the second flag says.
graph_flags="--xla_gpu_enable_command_buffer=+CUSTOM_CALL --xla_gpu_graph_min_graph_size=1 --xla_dump_to=$work/dump"
check graph 30 env XLA_FLAGS="$graph_flags" XLA_PYTHON_CLIENT_PREALLOCATE=false \
  "$python" benchmarks/gpu_graph.py "$work/dump" $rehearse

# --- timings; a process gets a few seconds beyond its own to end the case that it is at

time_jax() { # time_jax <name> <seconds> <XLA flags> <argument>...
  local name=$1 seconds=$2 flags=$3
  shift 3
  # Without CUDA graphs; see gpu_time_jax.py.
  stage "$name" $((seconds + 10)) env XLA_FLAGS="--xla_gpu_enable_command_buffer= $flags" \
    XLA_PYTHON_CLIENT_MEM_FRACTION=.9 "$python" benchmarks/gpu_time_jax.py --seconds "$seconds" \
    --output "$work/$name.json" $rehearse "$@"
}

# The flag that has XLA take RAFT's top-k: of jaxlib from 0.11 on, and of those before. XLA refuses flags unknown to it.
raft_flag=
for flag in --xla_gpu_experimental_enable_raft_for_stable_topk=true --xla_gpu_experimental_use_raft_select_k=true; do
  if JAX_PLATFORMS=cpu XLA_FLAGS=$flag "$python" -P -c "import jax; jax.devices()" >/dev/null 2>&1; then
    raft_flag=$flag
    break
  fi
done

time_jax time_jax "$(seconds_left 50)" "" || [ $? -ge 124 ] || failed=1 # wrong answers or errors, not out of time
if [ "$raft_flag" ]; then
  time_jax time_raft "$(seconds_left 35)" "$raft_flag" --only-lax "lax.top_k, RAFT flag"
else
  record time_raft "skipped: this jaxlib has no flag for RAFT's top-k" 0
fi
if has torch; then
  seconds=$(seconds_left 80)
  stage time_torch $((seconds + 10)) "$python" benchmarks/gpu_time_torch.py --seconds "$seconds" \
    --output "$work/time_torch.json" $rehearse
else
  record time_torch "skipped: no torch" 0
fi

# --- report

if [ -d "${OUT:-}" ]; then
  cp "$work/log" "$OUT/gpu_check.log"
fi
"$python" benchmarks/gpu_report.py "$work" ${OUT:+--output "$OUT"} $rehearse || failed=1
printf 'GPU check %s in %d s\n' "$([ $failed = 0 ] && echo passed || echo FAILED)" "$SECONDS"
exit $failed
