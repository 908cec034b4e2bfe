"""Text of models and users cannot become markup."""

import pytest

from specdec_jax.report.markup import join, tag, text

HOSTILE = (
  "<script>alert(1)</script>\"><img src=x onerror=alert(2)>]]>'&amp;"
  "\x00\x1b[31m\u202egpj.exe\ud800"
)


def test_text_is_escaped_and_made_visible():
  assert text(HOSTILE) == (
    "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&gt;&lt;img src=x "
    "onerror=alert(2)&gt;]]&gt;&#x27;&amp;amp;"
    r"\x00\x1b[31m\u202egpj.exe\ud800"
  )


@pytest.mark.parametrize("place", ["child", "attribute"])
def test_an_element_escapes(place):
  text, title = (HOSTILE, None) if place == "child" else ("", HOSTILE)
  element = tag("p", text, title=title)
  assert element.count("<") == 2
  assert element.count('"') == (0 if place == "child" else 2)


def test_markup_is_not_escaped_again():
  assert join(tag("p", tag("b", "a < b")), None, "&") == (
    "<p><b>a &lt; b</b></p>&amp;"
  )


def test_attributes():
  element = tag("a", class_="x", aria_label="y", open=True, id=None, dir=False)
  assert element == '<a class="x" aria-label="y" open></a>'
  assert tag("img", alt="") == '<img alt="">'
