"""config.json: both spellings, and what is refused."""

import pytest

from specdec_jax.models.config import from_hf
from specdec_jax.models.rope import Linear, Llama3, Yarn
from tests import tiny

LLAMA = tiny.CONFIGS["llama"]
QWEN2 = tiny.CONFIGS["qwen2"]
QWEN3 = tiny.CONFIGS["qwen3"]
MISTRAL = tiny.CONFIGS["mistral"]
GEMMA2 = tiny.CONFIGS["gemma2"]
GEMMA3 = tiny.CONFIGS["gemma3"]
GPT2 = tiny.CONFIGS["gpt2"]


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
  assert from_hf(new).rope_scaling == Llama3(8.0, 1.0, 4.0, 8192)
  oldest = {**base, "rope_scaling": {"type": "linear", "factor": 2}}
  assert from_hf(oldest).rope_scaling == Linear(2.0)
  assert from_hf({**QWEN2, "rope_scaling": None}).rope_scaling is None


def test_absent_fields_mean_what_they_mean_in_the_family():
  # Llama 2 says nothing of rope; Qwen3's heads are 128 wide.
  assert from_hf(without(LLAMA, "rope_parameters")).rope_theta == 10000
  assert from_hf(without(QWEN3, "head_dim")).head_dim == 128
  assert from_hf(without(LLAMA, "head_dim")).head_dim == 4
  assert from_hf(without(LLAMA, "num_key_value_heads")).num_kv_heads == 4
  with pytest.raises(ValueError, match="rope_theta is missing"):
    from_hf(without(QWEN2, "rope_theta"))


def test_null_says_that_there_is_none_even_where_absence_means_some():
  assert from_hf(without(MISTRAL, "sliding_window")).window == 4096
  assert from_hf({**MISTRAL, "sliding_window": None}).window == 0
  cap = "final_logit_softcapping"
  assert from_hf(without(GEMMA2, cap)).logit_cap == 30
  assert from_hf({**GEMMA2, cap: None}).logit_cap is None


def test_dynamic_scaling_changes_nothing_up_to_the_longest_text():
  rope = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}
  assert from_hf({**LLAMA, "rope_parameters": rope}) == from_hf(LLAMA)


def test_yarn_is_read_with_what_its_absent_fields_mean():
  rope = {"type": "yarn", "factor": 4.0}
  scaling = from_hf({**QWEN2, "rope_scaling": rope}).rope_scaling
  assert scaling == Yarn(4.0, 64, pytest.approx(1.1386294), 32, 1, True)
  rope["original_max_position_embeddings"] = 16
  rope["attention_factor"] = 1.0
  scaling = from_hf({**QWEN2, "rope_scaling": rope}).rope_scaling
  assert scaling == Yarn(4.0, 16, 1.0, 32, 1, True)


def windows(config, **change):
  read = from_hf({**config, "num_hidden_layers": 7, **change})
  return [read.window_of(layer) for layer in range(7)]


def test_windows_are_where_the_family_has_them():
  assert windows(MISTRAL) == [5] * 7
  assert windows(GEMMA2) == [4, 0, 4, 0, 4, 0, 4]
  six = without(GEMMA3, "sliding_window_pattern")
  assert windows(six) == [4, 4, 4, 4, 4, 0, 4]
  assert windows(GEMMA3, sliding_window_pattern=3) == [4, 4, 0, 4, 4, 0, 4]
  # Fields of other families mean nothing.
  assert windows(GEMMA2, sliding_window_pattern=3) == windows(GEMMA2)
  assert windows(MISTRAL, use_sliding_window=False) == windows(MISTRAL)
  assert windows(LLAMA, use_sliding_window=True, sliding_window=4) == [0] * 7


def test_windows_of_qwen():
  on = {"use_sliding_window": True, "sliding_window": 4}
  assert windows(QWEN2, sliding_window=4) == [0] * 7
  assert windows(QWEN2, **on) == [0] * 7  # the first 28 layers see everything
  assert windows(QWEN2, **on, max_window_layers=5) == [0] * 5 + [4] * 2
  assert windows(QWEN3, **on, max_window_layers=0) == [4] * 7
  on["sliding_window"] = None
  assert windows(QWEN3, **on, max_window_layers=0) == [0] * 7


def test_layer_types_decide_where_they_are_given():
  kinds = ["sliding_attention", "full_attention", "sliding_attention"]
  kinds = {"layer_types": [*kinds, *kinds, "full_attention"]}
  expected = [4, 0, 4, 4, 0, 4, 0]
  assert windows(GEMMA3, **kinds) == expected
  on = {"use_sliding_window": True, "sliding_window": 4}
  assert windows(QWEN2, **kinds, **on, max_window_layers=2) == expected
  all_full = {"layer_types": ["full_attention"] * 7}
  assert windows(QWEN2, **all_full, use_sliding_window=False) == [0] * 7


def test_gemma3_has_another_base_in_layers_with_a_window():
  old = {**GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
  rope = {
    "full_attention": {
      "rope_type": "linear",
      "rope_theta": 1000.0,
      "factor": 8.0,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
  }
  new = without(old, "rope_theta", "rope_local_base_freq", "rope_scaling")
  new["rope_parameters"] = rope
  assert from_hf(new) == from_hf(old)
  assert from_hf(new).rope_theta == 1000
  assert from_hf(new).local_rope_theta == 20
  assert from_hf(new).rope_scaling == Linear(8.0)
  del new["rope_parameters"]
  with pytest.raises(ValueError, match="rope_local_base_freq is missing"):
    from_hf(new)


def test_gpt2_calls_things_otherwise():
  config = from_hf(GPT2)
  assert (config.num_layers, config.hidden_size, config.num_heads) == (2, 16, 4)
  assert config.max_length == 64 and config.rope_theta is None
  assert config.mlp_size == 64 and from_hf({**GPT2, "n_inner": 9}).mlp_size == 9
  assert from_hf({**GPT2, "n_inner": None}).mlp_size == 64
  assert from_hf({**GPT2, "n_head": 16}).head_dim == 1  # nothing is rotated
  with pytest.raises(ValueError, match=r"n_layer is .*; n_embd is missing$"):
    from_hf({**without(GPT2, "n_embd"), "n_layer": "2"})


def test_models_of_more_than_text_are_refused():
  config = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": GEMMA3,
  }
  with pytest.raises(ValueError, match=r"not supported \(a model of more than"):
    from_hf(config)


@pytest.mark.parametrize(
  "change, message",
  [
    (
      {"architectures": ["FalconForCausalLM"]},
      "supported: GPT2LMHeadModel, Gemma2ForCausalLM, .*Qwen3ForCausalLM",
    ),
    ({"architectures": []}, "not supported"),
    ({"hidden_act": "swiglu"}, "hidden_act is 'swiglu', expected one of silu"),
    (
      {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0}},
      "'longrope', expected one of default, linear, dynamic, llama3, yarn",
    ),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor other than 1"),
    (
      {"layer_types": ["full_attention", "sliding_attention"]},
      "layer_types is .*, expected only full_attention without a sliding_w",
    ),
    (
      {"layer_types": ["full_attention"]},
      "layer_types is .*, expected one for each of 2 layers",
    ),
    (
      {"layer_types": ["full_attention", "chunked_attention"]},
      "expected a list of full_attention or sliding_attention",
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
YARN = {
  "rope_type": "yarn",
  "rope_theta": 500.0,
  "factor": 4.0,
  "original_max_position_embeddings": 32,
  "attention_factor": 1.0,
  "mscale": 1.0,
  "mscale_all_dim": 1.0,
  "beta_fast": 32,
  "beta_slow": 1,
  "truncate": True,
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
WRONG_YARN = {
  "attention_factor": NO_NUMBERS,
  "mscale": NO_NUMBERS,
  "mscale_all_dim": NO_NUMBERS,
  "beta_fast": (*NO_NUMBERS, 1, 0.5),
  "beta_slow": NO_NUMBERS,
  "truncate": NO_FLAGS,
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
  elif name != "original_max_position_embeddings":
    base = without(QWEN2, "rope_theta")
    with pytest.raises(ValueError, match=f"{name} is missing"):
      from_hf({**base, where: without(ROPE, name)})


@pytest.mark.parametrize("name", WRONG_YARN)
def test_yarn_of_the_wrong_kind_is_named(name):
  where = "rope_parameters"
  from_hf({**LLAMA, where: YARN})
  for value in WRONG_YARN[name]:
    with pytest.raises(ValueError, match=f"^config.json: {where}.{name} is "):
      from_hf({**LLAMA, where: {**YARN, name: value}})


def test_a_base_without_a_logarithm_is_no_base_of_yarn():
  with pytest.raises(ValueError, match="rope_theta is 1"):
    from_hf({**LLAMA, "rope_parameters": {**YARN, "rope_theta": 1.0}})


@pytest.mark.parametrize(
  "config, name, values",
  [
    (QWEN2, "use_sliding_window", NO_FLAGS),
    (MISTRAL, "sliding_window", NO_INTEGERS),
    (GEMMA2, "attn_logit_softcapping", NO_NUMBERS),
    (GEMMA2, "final_logit_softcapping", NO_NUMBERS),
    (GEMMA2, "query_pre_attn_scalar", NO_NUMBERS),
    (GEMMA2, "hidden_activation", NO_TEXTS),
    (GEMMA3, "sliding_window_pattern", NO_INTEGERS),
    (GEMMA3, "rope_local_base_freq", NO_NUMBERS),
    (GPT2, "n_inner", NO_INTEGERS),
    (GPT2, "layer_norm_epsilon", NO_NUMBERS),
    (GPT2, "activation_function", NO_TEXTS),
  ],
)
def test_fields_of_some_families_of_the_wrong_kind_are_named(
  config, name, values
):
  for value in values:
    with pytest.raises(ValueError, match=f"^config.json: {name} is "):
      from_hf({**config, name: value})


@pytest.mark.parametrize(
  "config, change",
  [
    (GEMMA2, {"use_bidirectional_attention": True}),
    (GEMMA3, {"use_bidirectional_attention": True}),
    (GPT2, {"add_cross_attention": True}),
    (GPT2, {"reorder_and_upcast_attn": True}),
    (GPT2, {"scale_attn_by_inverse_layer_idx": True}),
    (GPT2, {"scale_attn_weights": False}),
  ],
)
def test_flags_with_one_value_that_is_supported(config, change):
  ((name, value),) = change.items()
  from_hf({**config, name: not value})
  message = f"^config.json: {name} is {value}, expected {not value}$"
  with pytest.raises(ValueError, match=message):
    from_hf({**config, **change})


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
        "rope_parameters": {"rope_theta": [1], "rope_type": "su"},
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
    "'su'",
    "tie_word_embeddings is 'false'",
  ):
    assert part in message
