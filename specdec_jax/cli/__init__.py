"""The command line: one module per command, and the only place with flags."""
