#!/usr/bin/env bash
# Writes code with a model pair and compares its speed with plain decoding, in
# a virtual environment that it makes if there is none.
#
#   launch/demo.sh TARGET [DRAFT]
#
# Each is a folder with a Hugging Face checkpoint, or a hub id. Without a
# draft, drafts are looked up in the text so far.
#
# PYTHON, VENV     see README.md
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 || $1 == -* ]]; then
  cat >&2 <<'USAGE'
usage: launch/demo.sh TARGET [DRAFT]

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
