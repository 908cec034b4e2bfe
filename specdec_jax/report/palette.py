"""Colours of pages and pictures, on light and on dark.

Those that carry meaning are Okabe and Ito's, which differ for every kind of
colour vision, darker or lighter where they are text. None says anything alone:
a line, a shape or a word says it too.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Palette:
  """What things are coloured with.

  Attributes:
    ground: behind everything.
    surface: of boxes on it.
    line: of borders and grids.
    ink: of text.
    muted: of text that matters less.
    draft: of what a draft wrote.
    draft_tint: behind it.
    target: of what the target wrote.
    target_tint: behind it.
    rejected: of drafts that were rejected.
    series: of curves, one after another.
  """

  ground: str
  surface: str
  line: str
  ink: str
  muted: str
  draft: str
  draft_tint: str
  target: str
  target_tint: str
  rejected: str
  series: tuple[str, ...]

  @property
  def colours(self) -> tuple[str, ...]:
    """All of them."""
    *named, series = dataclasses.astuple(self)
    return (*named, *series)


LIGHT = Palette(
  ground="#FCFCFA",
  surface="#FFFFFF",
  line="#DCDFE3",
  ink="#1C2126",
  muted="#59616B",
  draft="#0072B2",
  draft_tint="#E3F0F8",
  target="#8A5A00",
  target_tint="#FDF0D0",
  rejected="#B04A00",
  series=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
)

DARK = Palette(
  ground="#14171A",
  surface="#1B1F24",
  line="#363C44",
  ink="#E6E8EB",
  muted="#9DA6B0",
  draft="#56B4E9",
  draft_tint="#17344A",
  target="#F0B429",
  target_tint="#40320C",
  rejected="#F2935C",
  series=("#56B4E9", "#E8743B", "#2BB58A", "#CC79A7", "#E69F00", "#0F8AD1"),
)
