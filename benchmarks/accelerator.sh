#!/usr/bin/env bash
# Everything that needs an accelerator, in ten minutes: its tests, and the bars of speed.
#
#   benchmarks/accelerator.sh                  tests and bars; what has a figure already is not run again
#   benchmarks/accelerator.sh experiments      the large experiments, in pieces of ten minutes that resume
#   DEVICE=cpu benchmarks/accelerator.sh --quick    a small version of all of it, to try the script on a processor
#
# Figures go into one JSON: $OUT/accelerator.json where OUT is set, else build/accelerator.json. A part that did not fit
# says so there, and is run again by the next call. SECONDS_IN_ALL (570) is what one call may take. An experiment keeps
# its runs in RUNS (build/runs), which must outlive the machine for the next piece to resume. PYTHON is the interpreter.
set -u
cd "$(dirname "$0")/.." || exit 2

DEVICE=${DEVICE:-cuda}
PYTHON=${PYTHON:-python}
OUT=${OUT:-build}
RUNS=${RUNS:-build/runs}
LIMIT=${SECONDS_IN_ALL:-570}
WHAT=bars
QUICK=
for argument in "$@"; do
  case "$argument" in
    --quick) QUICK=1 ;;
    experiments) WHAT=experiments ;;
    *) echo "accelerator.sh takes --quick and experiments; found $argument" >&2; exit 2 ;;
  esac
done
mkdir -p "$OUT" "$RUNS"
export FIGURES="$OUT/accelerator.json" LAYERWISE_TEST_DEVICE="$DEVICE" TOKENIZERS_PARALLELISM=false
"$PYTHON" -c "import layerwise" 2>/dev/null || export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"

"$PYTHON" - <<'PY' || exit 2
import json, os, platform, sys
import torch, transformers
cuda = torch.cuda.is_available()
versions = {
    "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
    "cuda": torch.version.cuda, "device": torch.cuda.get_device_name() if cuda else platform.processor() or "cpu",
}
import layerwise
versions["layerwise"] = layerwise.__file__
print(json.dumps(versions), flush=True)
if os.environ["LAYERWISE_TEST_DEVICE"] == "cuda" and not cuda:
    sys.exit("no CUDA device is seen; DEVICE=cpu runs a small version on a processor")
path = os.environ["FIGURES"]
figures = json.load(open(path)) if os.path.exists(path) else {}
figures["versions"] = versions
json.dump(figures, open(path, "w"), indent=1)
PY

# note NAME STATUS SECONDS FILE: what a part printed last, and how it ended, into the JSON, at once and whole.
note() {
  "$PYTHON" - "$@" <<'PY'
import json, os, sys
name, status, seconds, file = sys.argv[1:]
path = os.environ["FIGURES"]
figures = json.load(open(path))
lines = [line.rstrip() for line in open(file, errors="replace") if line.strip()]
figures[name] = {"status": status, "seconds": int(seconds), "output": lines[-12:]}
with open(path + ".draft", "w") as draft:
    json.dump(figures, draft, indent=1)
os.replace(path + ".draft", path)
PY
}

done_already() {
  "$PYTHON" -c 'import json, os, sys
found = json.load(open(os.environ["FIGURES"])).get(sys.argv[1], {})
sys.exit(found.get("status") not in ("done", "failed"))' "$1"
}

# part NAME SECONDS COMMAND...: run it for so long at most, unless its figure is there or the time is up.
part() {
  local name=$1 seconds=$2 left begun code status
  shift 2
  if done_already "$name"; then echo "== $name: in $FIGURES already"; return; fi
  left=$((LIMIT - SECONDS))
  if [ "$left" -lt 20 ]; then echo "== $name: no time is left; run this again"; return; fi
  if [ "$seconds" -gt "$left" ]; then seconds=$left; fi
  echo "== $name, at most $seconds s: $*"
  begun=$SECONDS
  timeout --signal=INT --kill-after=10 "$seconds" "$@" >"$OUT/part.log" 2>&1
  code=$?
  case $code in
    0) status="done" ;;
    124|130|137) status="did not fit into $seconds s" ;;
    *) status="failed" ;;
  esac
  tail -n 12 "$OUT/part.log"
  echo "== $name: $status, $((SECONDS - begun)) s"
  note "$name" "$status" $((SECONDS - begun)) "$OUT/part.log"
}

tests() {
  "$PYTHON" -c "import pytest" 2>/dev/null || { echo "== tests: pytest is not installed"; return; }
  if [ -n "$QUICK" ]; then
    part tests-engine 200 "$PYTHON" -m pytest -q -p no:cacheprovider tests/accelerator/test_engine.py -k "llama and not laws"
    part tests-training 200 "$PYTHON" -m pytest -q -p no:cacheprovider tests/accelerator/test_training.py -k "(recipes_train or pretraining_trains) and float32 and (layershuffle or elc) and not predict and not position"
  else
    part tests-engine 200 "$PYTHON" -m pytest -q -p no:cacheprovider tests/accelerator/test_engine.py
    part tests-training 150 "$PYTHON" -m pytest -q -p no:cacheprovider tests/accelerator/test_training.py
    part tests-verbs 150 "$PYTHON" -m pytest -q -p no:cacheprovider -m "not nightly" tests/accelerator/test_inputs.py \
      tests/accelerator/test_verbs.py
  fi
}

bars() {
  if [ -n "$QUICK" ]; then
    part layershuffle 120 "$PYTHON" benchmarks/layershuffle.py --rounds 1 --steps 6 --batch 4 --width 48
    part elc-step 120 "$PYTHON" benchmarks/layer_weights.py --size tiny --rounds 1 --batch 2 --length 32 --device "$DEVICE"
    part time 60 "$PYTHON" -m layerwise time demo --plan "0-3 (4|5|6|7) 8-11" --rounds 6 --device "$DEVICE" \
      --run "$RUNS/time-quick"
    return
  fi
  part layershuffle 120 "$PYTHON" benchmarks/layershuffle.py --device "$DEVICE" --precision bfloat16 --compiled \
    --batch 256 --width 768 --side 56 --rounds 3 --steps 24
  part elc-step 60 "$PYTHON" benchmarks/layer_weights.py --size small --rounds 5 --batch 64 --device "$DEVICE"
  part time 60 "$PYTHON" -m layerwise time demo --plan "0-11" --plan "0-3 (4|5|6|7) 8-11" --plan "0-3 8-11" \
    --device "$DEVICE" --run "$RUNS/time"
}

# The large experiments, by the commands of founding_papers.py: one more piece of each, as long as there is time. DATA is
# the folder that it reads.
experiments() {
  if [ -z "${DATA:-}" ]; then echo "set DATA to the folder that benchmarks/founding_papers.py describes" >&2; exit 2; fi
  local scale=accelerator left
  [ -n "$QUICK" ] && scale=cpu
  left=$((LIMIT - SECONDS))
  "$PYTHON" benchmarks/founding_papers.py all --data "$DATA" --out "$RUNS" --scale "$scale" --seconds "$((left - 70))"
  cp "$RUNS/pieces.json" "$OUT/pieces.json"
}

if [ "$WHAT" = experiments ]; then
  experiments
else
  tests
  bars
fi
echo "figures: $FIGURES"
