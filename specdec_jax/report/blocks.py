"""The blocks of a generation, a line each, with the odds of every token."""

import math
from collections.abc import Iterator, Sequence

from specdec_jax.report import page
from specdec_jax.report.markup import Html, join, tag
from specdec_jax.report.spelling import Part, Speller
from specdec_jax.trace import Block

# Each has a class of its own, a look that differs in more than colour, and a
# name in the legend.
_KEPT, _REJECTED, _BEHIND, _OWN = "kept", "rejected", "behind", "own"
_LEGEND = {
  _KEPT: ("draft", "kept"),
  _REJECTED: ("draft", "rejected, with its p and q"),
  _BEHIND: ("draft", "behind the rejected one or the end: has no say"),
  _OWN: ("token", "the target's own"),
}
_SPACES = {" ": "·", "\t": "⇥", "\n": "↵"}
_NARROW = 0.001


def legend(blocks: Sequence[Block]) -> Html:
  """What the looks of tokens mean, and what p and q are."""
  drawn = any(block.draft_log_probs for block in blocks)
  looks = (
    tag("li", tag("span", name, class_=f"t {look}"), " ", meaning)
    for look, (name, meaning) in _LEGEND.items()
  )
  q = (
    "q: of the draft's law that it was drawn from. Token verification "
    "keeps a draft with probability min(1, p/q), and one yet to be drawn with "
    "Σ min(p, q), the overlap of both laws; block verification looks at all "
    "drafts of a block together."
    if drawn
    else "There is no q here: the drafts were picked, or drawn with noise that "
    "the target shares."
  )
  return join(
    tag("ul", *looks, class_="legend"),
    tag(
      "p",
      "p: a token's probability under the target's law at its place. ",
      q,
      " Spaces are shown as ",
      tag("span", "·", class_="space"),
      ", new lines as ",
      tag("span", "↵", class_="space"),
      ", parts of characters as ",
      tag("span", "E2 82", class_="bytes"),
      ".",
      class_="note",
    ),
  )


def block_list(blocks: Sequence[Block], speller: Speller) -> Html:
  """All blocks, one below the other.

  Args:
    blocks: of one row, from its first.
    speller: of the target's tokens.
  """
  lines, before = list[Html](), b""
  for number, block in enumerate(blocks, 1):
    drafts, before = _drafts(block, speller, before)
    own = None
    if block.token is not None:
      own, before = _own(block, speller, before)
    count = f"{block.kept}/{len(block.drafts)}" if block.drafts else ""
    lines.append(
      tag(
        "li",
        tag("span", str(number), class_="number"),
        tag("span", count, class_="count", title="drafts kept, of those made"),
        tag("span", *drafts, own, class_="line"),
      )
    )
  return tag("ol", *lines, class_="blocks")


def _drafts(
  block: Block, speller: Speller, before: bytes
) -> tuple[list[Html], bytes]:
  """The drafts of a block, and what half a character the kept ones leave."""
  shown, after = list[Html](), before
  for place, token in enumerate(block.drafts):
    parts, before = speller.spell(token, before)
    if place < block.kept:
      look, after = _KEPT, before
    elif place == block.kept and block.token is not None:
      look = _REJECTED
    else:
      look = _BEHIND
    q = block.draft_log_probs[place] if block.draft_log_probs else None
    overlap = block.overlaps[place] if block.overlaps else None
    p = block.target_log_probs[place]
    head = f"Draft {place + 1} of {len(block.drafts)}, {_FATE[look]}"
    shown.append(_token(look, parts, _tip(head, token, p, q, overlap)))
    if look == _REJECTED:
      shown.append(_odds(p, q))
  return shown, after


_FATE = {_KEPT: "kept", _REJECTED: "rejected", _BEHIND: "without a say"}


def _own(block: Block, speller: Speller, before: bytes) -> tuple[Html, bytes]:
  """The target's own token."""
  assert block.token is not None
  parts, before = speller.spell(block.token, before)
  head = "The target's own token"
  if block.drafts:
    rejected = block.kept < len(block.drafts)
    head += ", in place of the rejected" if rejected else ", after all drafts"
  tip = _tip(head, block.token, block.token_log_prob)
  return _token(_OWN, parts, tip), before


def _token(look: str, parts: Sequence[Part], tip: Html) -> Html:
  """A token that shows its odds when pointed at or focused."""
  return tag("span", *map(_part, parts), tip, class_=f"t {look}", tabindex="0")


def _part(part: Part) -> Html:
  if part.kind != "text":
    return tag("span", part.text, class_=part.kind)
  return join(*_runs(part.text))


def _runs(text: str) -> Iterator[Html | str]:
  """Text with its spaces made visible."""
  run, invisible = "", False
  for char in text:
    if (char in _SPACES) != invisible:
      yield tag("span", run, class_="space") if invisible else run
      run, invisible = "", not invisible
    run += _SPACES.get(char, char)
  yield tag("span", run, class_="space") if invisible else run


def _odds(p: float, q: float | None) -> Html:
  """p and q of a rejected draft, beside it."""
  said = f"p {_short(p)}" if q is None else f"p {_short(p)} q {_short(q)}"
  return tag("small", said, class_="odds")


def _tip(
  head: str,
  token: int,
  p: float | None,
  q: float | None = None,
  overlap: float | None = None,
) -> Html:
  """All about a token; p and q are logarithms."""
  rows = []
  if p is not None:
    rows.append(_share("p, target", p))
  if q is not None:
    rows.append(_share("q, draft", q))
  if p is not None and q is not None:
    rows.append(_share("min(1, p/q)", min(0.0, p - q)))
  if overlap is not None:
    rows.append(_share("Σ min(p, q)", math.log(max(overlap, 1e-300))))
  return tag(
    "span",
    tag("b", head),
    *rows,
    tag("small", f"token {token}"),
    class_="tip",
    role="tooltip",
  )


def _share(name: str, log_share: float) -> Html:
  share = math.exp(log_share)
  return tag(
    "span",
    tag("span", name),
    page.bar(share),
    tag("span", f"{share:.3g}" if share < _NARROW else f"{share:.4f}"),
    class_="share",
  )


def _short(log_share: float) -> str:
  """A probability in few characters."""
  share = math.exp(log_share)
  if 0 < share < _NARROW:
    return f"<{_NARROW}"
  return f"{share:.3f}".removeprefix("0") if 0 < share < 1 else f"{share:g}"
