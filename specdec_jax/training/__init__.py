"""Training of drafts, and of the models they draft for."""
