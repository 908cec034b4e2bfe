"""The real pair: Qwen2.5-Coder 1.5B and 0.5B in `$SPECDEC_MODELS`.

Prompts come from `$SPECDEC_HUMANEVAL`, a HumanEval `jsonl` file.
"""

import json
import os
import pathlib

import pytest

import specdec_jax as sd


def load(size: str, dtype: str) -> sd.LanguageModel:
  folder = pathlib.Path(os.environ["SPECDEC_MODELS"])
  return sd.load(folder / f"qwen2.5-coder-{size}", dtype=dtype)


@pytest.fixture(scope="session")
def humaneval() -> list[str]:
  path = os.environ.get("SPECDEC_HUMANEVAL")
  if not path:
    pytest.fail("SPECDEC_HUMANEVAL must name a HumanEval jsonl file")
  with open(path, encoding="utf-8") as file:
    return [json.loads(line)["prompt"] for line in file]


@pytest.fixture(scope="module")
def exact_draft() -> sd.LanguageModel:
  return load("0.5b", "float32")


@pytest.fixture(scope="module")
def exact_pair(
  exact_draft: sd.LanguageModel,
) -> tuple[sd.LanguageModel, sd.LanguageModel]:
  return load("1.5b", "float32"), exact_draft


@pytest.fixture(scope="module")
def fast_pair() -> tuple[sd.LanguageModel, sd.LanguageModel]:
  return load("1.5b", "bfloat16"), load("0.5b", "bfloat16")
