"""Drafters: where the guesses come from."""

from specdec_jax.drafters.draft_model import DraftModel
from specdec_jax.drafters.no_draft import NoDraft
from specdec_jax.drafters.prompt_lookup import PromptLookup

__all__ = ["DraftModel", "NoDraft", "PromptLookup"]
