"""Runs notebooks from top to bottom, and keeps what they print.

  python colab/run.py [NAME ...]

NAME is quickstart, for example; all of them if none is named. Needs the extra
`notebook`. One that fails stays as it was.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parent
_CELL_SECONDS = 600
# The same whatever wrote the notebook, so that only outputs differ.
_METADATA = {
  "kernelspec": {
    "display_name": "Python 3",
    "language": "python",
    "name": "python3",
  },
  "language_info": {"name": "python"},
}


def execute(path: Path) -> nbformat.NotebookNode:
  """Runs a notebook in a fresh kernel, on CPU, in an empty folder.

  Args:
    path: the notebook; it is not written.

  Returns:
    The notebook with its outputs.

  Raises:
    nbclient.exceptions.CellExecutionError: a cell failed; it says which.
  """
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  with tempfile.TemporaryDirectory() as folder:
    client = nbclient.NotebookClient(
      notebook,
      timeout=_CELL_SECONDS,
      kernel_name="python3",
      record_timing=False,
      coalesce_streams=True,
      resources={"metadata": {"path": folder}},
    )
    return client.execute(env=_environment())


def _environment() -> dict[str, str]:
  """What a reader has, and this checkout of the package."""
  ours = ("JAX_", "XLA_", "MPLBACKEND")
  kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
  return {**kept, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(FOLDER.parent)}


def main(names: list[str]) -> None:
  """Runs the notebooks of these names, or all, and writes them back."""
  for name in names or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
    path = FOLDER / f"{name}.ipynb"
    begin = time.perf_counter()
    notebook = execute(path)
    notebook.metadata = nbformat.from_dict(_METADATA)
    nbformat.write(notebook, path)
    print(f"{name}: {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
  main(sys.argv[1:])
