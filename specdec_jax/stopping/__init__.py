"""Where a row ends: at an EOS, a stop string, or its limit."""

from specdec_jax.stopping.automaton import StopStrings
from specdec_jax.stopping.ends import Ending, Finish, find_end
from specdec_jax.stopping.text import StoppedText, text_before

__all__ = [
  "Ending",
  "Finish",
  "StopStrings",
  "StoppedText",
  "find_end",
  "text_before",
]
