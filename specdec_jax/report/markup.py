"""HTML that cannot be written by a model: all text is escaped here."""

import html

from specdec_jax.visible import sanitize


class Html(str):
  """Finished markup. Any other string is text and gets escaped.

  Made by `tag`, `text` and `join` only, and from what is part of the source.
  """

  __slots__ = ()


def text(value: str) -> Html:
  """Escaped text, in which invisible and control characters are visible."""
  if isinstance(value, Html):
    return value
  return Html(html.escape(sanitize(value), quote=True))


def join(*children: str | None) -> Html:
  """Children one after the other; None is left out."""
  return Html("".join(text(it) for it in children if it is not None))


def tag(
  name: str, /, *children: str | None, **attributes: str | bool | None
) -> Html:
  """An element.

  Args:
    name: of the element.
    children: text, or markup made here; None is left out.
    attributes: their values. Of the names a trailing _ is dropped, and other _
      are hyphens. True is an attribute without a value; None and False are
      none at all.
  """
  written = [name]
  for key, value in attributes.items():
    key = key.rstrip("_").replace("_", "-")
    if value is True:
      written.append(key)
    elif value is not None and value is not False:
      written.append(f'{key}="{text(value)}"')
  opening = f"<{' '.join(written)}>"
  if name in _VOID:
    return Html(opening)
  return Html(f"{opening}{join(*children)}</{name}>")


_VOID = {"br", "img", "link", "meta", "source", "wbr"}
