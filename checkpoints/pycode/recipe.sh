#!/usr/bin/env bash
# Remakes the pycode pair: corpus, tokenizer, target, and the draft from the
# target.
#
#   checkpoints/pycode/recipe.sh WORK
#
# WORK is a folder for what lies between, of about 1 GB. Needs Python 3.13.0
# with specdec_jax installed, and about four hours on two cores. Killed? The
# same command goes on where it stopped.
set -euo pipefail

work=${1:?usage: recipe.sh WORK, a folder for what lies between}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$work"

python "$here/corpus.py" --out "$work/corpus"
python "$here/make_tokenizer.py" \
  --corpus "$work/corpus" --out "$work/tokenizer"

data=(
  --data="$work/corpus/train.jsonl" --held_out="$work/corpus/heldout.jsonl"
  --optimizer=muon
)
specdec train --output="$work/target" "${data[@]}" \
  --config="$here/target.json" --tokenizer="$work/tokenizer" \
  --steps=900 --batch_size=16 --sequence_length=512 \
  --learning_rate=4e-3 --warmup_steps=40 --evaluate_every=50

# compare_losses.py compares this loss with the others. The draft was good after
# one training already, and became better by a second.
draft=("${data[@]}" --teacher="$work/target" --loss=forward_kl
  --batch_size=8 --sequence_length=512 --evaluate_every=50)
specdec train --output="$work/beginner" "${draft[@]}" \
  --config="$here/draft.json" --tokenizer="$work/tokenizer" \
  --steps=700 --learning_rate=1e-2 --warmup_steps=40
specdec train --output="$work/draft" "${draft[@]}" \
  --student="$work/beginner" --seed=1 \
  --steps=800 --learning_rate=5e-3 --warmup_steps=20

for model in target draft; do
  rm -rf "${here:?}/$model"
  specdec convert --source="$work/$model" --output="$here/$model" \
    --dtype=bfloat16
done
