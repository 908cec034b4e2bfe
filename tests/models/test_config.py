"""config.json: both spellings, and what is refused."""

import pytest

from specdec_jax.models.config import RopeScaling, from_hf
from tests import tiny

LLAMA = tiny.CONFIGS["llama"]
QWEN2 = tiny.CONFIGS["qwen2"]
QWEN3 = tiny.CONFIGS["qwen3"]


def without(config, *names):
  return {name: v for name, v in config.items() if name not in names}


def test_families_differ_as_their_data_say():
  llama, qwen2, qwen3 = map(from_hf, (LLAMA, QWEN2, QWEN3))
  assert not (llama.qkv_bias or llama.out_bias or llama.mlp_bias)
  assert not llama.qk_norm
  assert qwen2.qkv_bias and not qwen2.out_bias and not qwen2.qk_norm
  assert qwen3.qk_norm and not qwen3.qkv_bias
  biased = from_hf({**LLAMA, "attention_bias": True, "mlp_bias": True})
  assert biased.qkv_bias and biased.out_bias and biased.mlp_bias


def test_both_spellings_of_rope_are_read():
  scaling = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
  }
  base = without(LLAMA, "rope_parameters")
  old = {
    **base,
    "rope_theta": 5e5,
    "rope_scaling": {"rope_type": "llama3", **scaling},
  }
  new = {
    **base,
    "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **scaling},
  }
  assert from_hf(old) == from_hf(new)
  assert from_hf(new).rope_theta == 5e5
  assert from_hf(new).rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
  oldest = {**base, "rope_scaling": {"type": "linear", "factor": 2}}
  assert from_hf(oldest).rope_scaling == RopeScaling("linear", 2.0)
  assert from_hf({**QWEN2, "rope_scaling": None}).rope_scaling is None


def test_absent_fields_mean_what_they_mean_in_the_family():
  # Llama 2 says nothing of rope; Qwen3's heads are 128 wide.
  assert from_hf(without(LLAMA, "rope_parameters")).rope_theta == 10000
  assert from_hf(without(QWEN3, "head_dim")).head_dim == 128
  assert from_hf(without(LLAMA, "head_dim")).head_dim == 4
  assert from_hf(without(LLAMA, "num_key_value_heads")).num_kv_heads == 4
  with pytest.raises(ValueError, match="rope_theta is missing"):
    from_hf(without(QWEN2, "rope_theta"))


def test_layers_that_all_see_everything_are_accepted():
  from_hf({**QWEN2, "use_sliding_window": True, "max_window_layers": 2})
  from_hf({**QWEN2, "layer_types": ["full_attention"] * 2})


@pytest.mark.parametrize(
  "change, message",
  [
    (
      {"architectures": ["GPTNeoXForCausalLM"]},
      "supported: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM",
    ),
    ({"architectures": []}, "not supported"),
    ({"hidden_act": "swiglu"}, "hidden_act is 'swiglu', expected one of silu"),
    (
      {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}},
      "'yarn', expected one of default, linear, llama3",
    ),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor other than 1"),
    (
      {"use_sliding_window": True, "max_window_layers": 1},
      "sliding windows are not supported yet",
    ),
    (
      {"layer_types": ["full_attention", "sliding_attention"]},
      r"layer_types \['sliding_attention'\]",
    ),
    ({"hidden_size": "16"}, "hidden_size is '16', expected a positive"),
    ({"num_key_value_heads": 3}, "4 query heads do not divide over 3"),
    ({"num_key_value_heads": 8}, "4 query heads do not divide over 8"),
    ({"head_dim": 3}, "even head_dim"),
    ({"head_dim": None, "hidden_size": 18}, "head_dim is missing, and hidden"),
    ({"head_dim": None, "hidden_size": 3}, "head_dim is missing, and hidden"),
    ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling differ"),
  ],
)
def test_refusals(change, message):
  with pytest.raises(ValueError, match=f"^config.json: .*{message}"):
    from_hf({**LLAMA, **change})


ROPE = {
  "rope_type": "llama3",
  "rope_theta": 500.0,
  "factor": 4.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 32,
}
NO_INTEGERS = (0, -1, 2**31, 10**400, 1.0, "1", True, [1], {})
NO_NUMBERS = (0, -1.0, float("nan"), float("inf"), 10**400, "2", [2], {}, True)
NO_FLAGS = ("false", 0, 1, [], {})
NO_TEXTS = (5, ["silu"], {}, True)
NO_LISTS = (5, "full_attention", {}, [["a"]], [5], [None])
WRONG = {
  "num_hidden_layers": NO_INTEGERS,
  "hidden_size": NO_INTEGERS,
  "num_key_value_heads": NO_INTEGERS,
  "head_dim": NO_INTEGERS,
  "max_position_embeddings": NO_INTEGERS,
  "rms_norm_eps": NO_NUMBERS,
  "partial_rotary_factor": NO_NUMBERS,
  "rope_parameters": (5, [ROPE], "linear", True),
  "tie_word_embeddings": NO_FLAGS,
  "attention_bias": NO_FLAGS,
  "mlp_bias": NO_FLAGS,
  "use_sliding_window": NO_FLAGS,
  "hidden_act": NO_TEXTS,
  "architectures": NO_LISTS,
  "layer_types": NO_LISTS,
}
WRONG_ROPE = {
  "rope_type": NO_TEXTS,
  "rope_theta": NO_NUMBERS,
  "factor": NO_NUMBERS,
  "low_freq_factor": NO_NUMBERS,
  "high_freq_factor": (*NO_NUMBERS, 1.0, 0.5),
  "original_max_position_embeddings": NO_INTEGERS,
}


@pytest.mark.parametrize("name", WRONG)
def test_fields_of_the_wrong_kind_are_named(name):
  for value in WRONG[name]:
    with pytest.raises(ValueError, match=f"^config.json: {name} is ") as error:
      from_hf({**LLAMA, name: value})
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("name", WRONG_ROPE)
def test_rope_of_the_wrong_kind_is_named(name):
  where = "rope_parameters"
  from_hf({**LLAMA, where: ROPE})
  for value in WRONG_ROPE[name]:
    with pytest.raises(ValueError, match=f"^config.json: {where}.{name} is "):
      from_hf({**LLAMA, where: {**ROPE, name: value}})
  if name == "rope_type":  # what it is called in old files
    with pytest.raises(ValueError, match=r"type is \['x'\]"):
      from_hf({**LLAMA, where: {"rope_theta": 1.0, "type": ["x"]}})
  else:
    base = without(QWEN2, "rope_theta")
    with pytest.raises(ValueError, match=f"{name} is missing"):
      from_hf({**base, where: without(ROPE, name)})


@pytest.mark.parametrize("value", ["1", [1], -1, 1.5, True])
def test_max_window_layers_of_the_wrong_kind_is_named(value):
  change = {"use_sliding_window": True, "max_window_layers": value}
  with pytest.raises(ValueError, match="max_window_layers is "):
    from_hf({**QWEN2, **change})


def test_all_faults_are_told_at_once():
  config = without(LLAMA, "hidden_size", "vocab_size")
  with pytest.raises(ValueError) as error:
    from_hf(
      {
        **config,
        "hidden_act": "tanh",
        "num_key_value_heads": 3,
        "rope_parameters": {"rope_theta": [1], "rope_type": "yarn"},
        "tie_word_embeddings": "false",
      }
    )
  message = str(error.value)
  assert message.count(";") == 6
  for part in (
    "hidden_size is missing",
    "vocab_size is missing",
    "'tanh'",
    "over 3 key-value heads",
    "rope_theta is [1]",
    "'yarn'",
    "tie_word_embeddings is 'false'",
  ):
    assert part in message
