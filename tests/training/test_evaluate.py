"""What is measured on held-out texts, against numpy and the decoder."""

import math

import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax.training import state
from specdec_jax.training.data import PackedTexts, prompt_length
from specdec_jax.training.evaluate import Examination
from tests.decode import toys

TEACHER = toys.tiny(seed=1)
STUDENT = toys.perturbed(TEACHER, 0.2, seed=2)
T = 12
BYTES_PER_TOKEN = 3.5
TEXTS = PackedTexts(
  np.random.default_rng(0).integers(0, toys.TINY_VOCAB, (20, T + 1), np.int32),
  BYTES_PER_TOKEN,
)
# All but every fourth or so, and of the batches of three the last one is short.
ROWS = [0, 3, 6, 9, 12, 15, 19]
EXAMINATION = Examination(
  TEXTS, rows=7, batch_size=3, prompts=2, num_draft_tokens=3
)


def _log_law(model, row):
  logits = np.asarray(model.logits(row[:-1].tolist()), np.float64)
  return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def _scores(teacher):
  objective = state.Objective(
    STUDENT.network, teacher and teacher.network, "cross_entropy"
  )
  return EXAMINATION(objective, STUDENT.params, STUDENT, teacher)


def test_scores_are_those_of_numpy():
  losses, kept, same = [], [], []
  for row in TEXTS.row_NT[ROWS]:
    log_p_TV, log_q_TV = _log_law(TEACHER, row), _log_law(STUDENT, row)
    losses += (-log_q_TV[np.arange(T), row[1:]]).tolist()
    kept += np.exp(np.minimum(log_p_TV, log_q_TV)).sum(axis=-1).tolist()
    same += (log_p_TV.argmax(axis=-1) == log_q_TV.argmax(axis=-1)).tolist()
  scores = _scores(TEACHER)
  assert scores.loss == pytest.approx(np.mean(losses), rel=1e-5)
  bits = np.mean(losses) / math.log(2) / BYTES_PER_TOKEN
  assert scores.bits_per_byte == pytest.approx(bits, rel=1e-5)
  assert scores.acceptance == pytest.approx(np.mean(kept), rel=1e-5)
  assert scores.agreement == pytest.approx(np.mean(same))
  assert 0 < scores.agreement < 1


def test_tau_is_that_of_the_decoder():
  decoder = sd.SpeculativeDecoder(
    TEACHER, sd.DraftModel(STUDENT, num_draft_tokens=3)
  )
  length = prompt_length(T)
  result = decoder.generate(
    TEXTS.row_NT[[0, 19], :length].tolist(), max_new_tokens=length
  )
  tau = float(result.stats.tokens_per_target_pass)
  assert _scores(TEACHER).tokens_per_target_pass == tau


def test_without_a_teacher_there_is_nothing_to_compare():
  scores = _scores(None)
  assert scores.acceptance is scores.agreement is None
  assert scores.tokens_per_target_pass is None
  assert scores.score == -scores.loss
