#!/usr/bin/env bash
# What to run on a machine with a GPU that is at hand for minutes and has nothing of this repository
# but this folder and lab, python3 with numpy, and wheels in FOLDER: hushtable, where NVRTC is not installed
# nvidia-cuda-nvrtc, and for plots matplotlib.
#
#   bench/gpu_session.sh FOLDER [OUT] [SECONDS_MAX] [ARGUMENT OF bench/gpu.py ...]
#
# The wheel is `maturin build --release --compatibility linux --out FOLDER`. Correctness first, then figures in order of importance; the file in OUT is
# whole after each of them, and what is under way after SECONDS_MAX is given up.
set -euo pipefail
wheels=${1:?which folder has the wheels?}
out=${2:-gpu-session}
seconds_max=${3:-540}
shift $(($# < 3 ? $# : 3))
here=$(cd "$(dirname "$0")" && pwd)
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
mkdir -p "$out"

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv \
    | tee "$out/nvidia-smi.csv" || echo "no nvidia-smi" >&2
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" \
    "$wheels"/*.whl
export PYTHONPATH="$site:$here/../lab${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

# First that it runs at all, on few shapes, so that a fault in the first minute is seen in it.
code=0
timeout "$seconds_max" python3 "$here/gpu.py" --stages check --quick --prgs chacha20,aes128 \
    --out "$out/first.json" \
    2>&1 | tee "$out/first.log" || code=$?
if [ "$code" != 0 ]; then
    echo "the first check ended with $code: nothing is timed" >&2
    exit "$code"
fi
left=$((seconds_max - SECONDS))
timeout --signal=INT --kill-after=10 "$left" \
    python3 "$here/gpu.py" --out "$out/gpu.json" --plots "$out" --seconds 0.3 \
    --stages check,engine,one,sizes,factors,tunings,table_iii,table_v,table_iv,table_ii,large,figure_10,figure_11,figure_9,sanitize \
    "$@" \
    2>&1 | tee "$out/gpu.log" || code=$?
# Whether it was cut off or not: what was measured, as tables.
if [ "$code" = 124 ] || [ "$code" = 137 ] || [ "$code" = 130 ]; then
    echo "cut off after $seconds_max s" >&2
    python3 "$here/gpu.py" --report "$out/gpu.json" --plots "$out" | tee "$out/report.md"
    exit 0
fi
exit "$code"
