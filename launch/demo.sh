#!/usr/bin/env bash
# Writes code with a model pair and compares its speed with plain decoding, in
# a virtual environment that it makes if there is none.
#
#   launch/demo.sh [TARGET [DRAFT]]
#
# Without arguments it is the small pair that comes with the package; nothing
# but Python packages is downloaded. Each model is a folder with a Hugging Face
# checkpoint, or a hub id. With a target alone, drafts are looked up in the text
# so far.
#
# PYTHON, VENV     see README.md
set -euo pipefail

if [[ $# -gt 2 || ${1:-} == -* ]]; then
  cat >&2 <<'USAGE'
usage: launch/demo.sh [TARGET [DRAFT]]

Without arguments it is the small pair that comes with the package.

Each is a folder with a Hugging Face checkpoint (config.json, *.safetensors,
tokenizer files) or the id of one on the hub. The two must share a tokenizer;
the draft should be several times smaller. For example:

  launch/demo.sh Qwen/Qwen2.5-Coder-1.5B-Instruct Qwen/Qwen2.5-Coder-0.5B-Instruct
USAGE
  exit 2
fi

# Folders are named relative to where the caller stands, not to the checkout.
models=()
for model in "$@"; do
  if [[ -d $model ]]; then
    model=$(cd "$model" && pwd)
  fi
  models+=("$model")
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/environment.sh
use_environment

# title TEXT: what comes now.
title() {
  local bold='' plain=''
  if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
    bold=$'\e[1m' plain=$'\e[0m'
  fi
  printf '\n%s### %s%s\n\n' "$bold" "$1" "$plain"
}

if [[ $# -eq 0 ]]; then
  prompts=launch/demo_prompts.jsonl
  each=(--max_new_tokens 96)
  title "Plain decoding, one token a pass: the first prompt"
  head -n 1 "$prompts" |
    specdec generate --drafter none "${each[@]}" --prompts_file -
  title "Speculative decoding: the same text, several tokens a pass"
  specdec generate --num_draft_tokens 4 "${each[@]}" \
    --prompts_file "$prompts" --compare
  title "Sampled at temperature 0.8: other text, of the target's distribution"
  specdec generate --num_draft_tokens 3 "${each[@]}" --temperature 0.8 \
    --prompts_file "$prompts" --compare
  title "Your turn: $(dirname "$(command -v specdec)")/specdec chat"
  exit
fi

if [[ ${#models[@]} -eq 2 ]]; then
  drafter=(--draft "${models[1]}")
else
  drafter=(--drafter lookup)
fi

prompt='from typing import List


def has_close_elements(numbers: List[float], threshold: float) -> bool:
    """ Check if in given list of numbers, are any two numbers closer to each
    other than given threshold.
    >>> has_close_elements([1.0, 2.0, 3.0], 0.5)
    False
    >>> has_close_elements([1.0, 2.8, 3.0, 4.0, 5.0, 2.0], 0.3)
    True
    """
'

exec specdec generate \
  --target "${models[0]}" "${drafter[@]}" \
  --num_draft_tokens 5 \
  --max_new_tokens 128 \
  --dtype bfloat16 \
  --prompt "$prompt" \
  --compare
