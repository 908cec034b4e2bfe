"""Is a pair lossless on this machine, and if not, which part of it is not?"""

from specdec_jax.audit.auditor import PROMPTS, audit, check_options
from specdec_jax.audit.checks import Audit, Check

__all__ = ["PROMPTS", "Audit", "Check", "audit", "check_options"]
