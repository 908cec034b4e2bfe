"""Text in which every character can be seen, and none acts on what shows it."""

import unicodedata

_KEPT = {"\n", "\t"}
_JOINERS = {"\u200c", "\u200d"}  # letters of many scripts, and emoji, need them
# Controls, halves of characters, and what is invisible: formatting (with the
# overrides of the writing direction) and the separators of lines.
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def sanitize(text: str) -> str:
  r"""Text with every character that could act on a reader made visible.

  ESC becomes the four characters `\x1b`; new lines and tabs stay.
  """

  def shown(char: str) -> str:
    if char in _KEPT or char in _JOINERS:
      return char
    if unicodedata.category(char) in _UNSAFE:
      return char.encode("unicode_escape").decode("ascii")
    return char

  return "".join(map(shown, text))
