"""Pages and pictures of what was generated and measured.

Each page is one file that needs no network, no script and no font.
"""

from specdec_jax.report.bench import bench_page, write_pngs
from specdec_jax.report.tokens import Generated, token_page, token_view

__all__ = [
  "Generated",
  "bench_page",
  "token_page",
  "token_view",
  "write_pngs",
]
