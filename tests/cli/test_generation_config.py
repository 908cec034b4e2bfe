import pytest

from specdec_jax.cli.generation_config import sampling_values


@pytest.mark.parametrize(
  "config, values",
  [
    ({}, {}),
    ({"do_sample": True}, {"temperature": 1.0}),
    ({"do_sample": True, "temperature": 0.7}, {"temperature": 0.7}),
    ({"do_sample": False, "temperature": 0.7}, {"temperature": 0.0}),
    ({"temperature": 1, "top_k": 20.0}, {"temperature": 1.0, "top_k": 20}),
    ({"top_p": None, "min_p": 0.1}, {"min_p": 0.1}),
    ({"repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
  ],
)
def test_values_that_the_file_decides(config, values):
  assert sampling_values(config) == values


@pytest.mark.parametrize(
  "config",
  [
    {"top_p": "0.5"},
    {"top_k": 1.5},
    {"top_k": float("inf")},
    {"temperature": True},
    {"temperature": 10**400},
    {"top_k": 1e18},
  ],
)
def test_a_value_of_another_kind_is_refused(config):
  with pytest.raises(ValueError, match=next(iter(config))):
    sampling_values(config)
