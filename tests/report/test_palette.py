"""Everybody can read the page."""

import pytest

from specdec_jax.report.palette import DARK, LIGHT

# Text by what it may stand on.
TEXT = {
  "ground": ("ink", "muted", "draft", "target", "rejected"),
  "surface": ("ink", "muted", "draft", "target"),
  "draft_tint": ("ink", "muted"),
  "target_tint": ("ink", "muted"),
}


def _luminance(colour):
  """WCAG 2.2, of sRGB."""
  parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
  r, g, b = (
    x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
  )
  return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
  low, high = sorted(map(_luminance, (a, b)))
  return (high + 0.05) / (low + 0.05)


def test_the_measure():
  assert contrast("#FFFFFF", "#000000") == pytest.approx(21)
  assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast(palette):
  poor = {
    (text, ground): round(found, 2)
    for ground, texts in TEXT.items()
    for text in texts
    if (found := contrast(getattr(palette, text), getattr(palette, ground)))
    < 4.5
  }
  assert poor == {}


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_the_first_curves_have_contrast(palette):
  # WCAG asks 3 of graphics. The paler ones come last, and have markers.
  for colour in palette.series[:3]:
    assert contrast(colour, palette.ground) >= 3


def test_light_is_light_and_dark_is_dark():
  assert _luminance(LIGHT.ground) > 0.9
  assert _luminance(DARK.ground) < 0.02


def test_each_colour_has_one_for_the_dark():
  pairs = set(zip(LIGHT.colours, DARK.colours, strict=True))
  assert len({light for light, _ in pairs}) == len(pairs)
