"""The token view, as HTML."""

from html.parser import HTMLParser

import pytest

from specdec_jax.report.tokens import Generated, token_page, token_view
from tests.report.made import Vocabulary, block, completion
from tests.report.test_markup import HOSTILE

VOCABULARY = Vocabulary(b"def", b" f", b"\n\t", b"(", b"x", b")")
DEF, F, BREAK, OPEN, X, CLOSE = range(1, 7)
BLOCKS = [
  block([DEF, F, OPEN, X], kept=2, token=BREAK),
  block([X, CLOSE], kept=2, token=X),
  block([DEF, F], kept=1, token=None),
  block([], kept=0, token=0),
]
VOID = {"br", "img", "link", "meta", "source", "wbr"}


class Tree(HTMLParser):
  """Elements with a class, and their text without that of tooltips."""

  def __init__(self, html):
    super().__init__()
    self.open, self.found, self.names = [], [], set()
    self.feed(html)
    assert self.open == []

  def handle_starttag(self, tag, attrs):
    self.names.add(tag)
    if tag not in VOID:
      element = [tag, dict(attrs), ""]
      self.open.append(element)
      self.found.append(element)

  def handle_endtag(self, tag):
    assert self.open.pop()[0] == tag

  def handle_data(self, data):
    tips = [it[1].get("class") == "tip" for it in self.open]
    for element in self.open[tips.index(True) if True in tips else 0 :]:
      element[2] += data

  def classes(self, name):
    return [
      text
      for _, attributes, text in self.found
      if name in (attributes.get("class") or "").split()
    ]


def view(blocks=BLOCKS, prompt="p", **options):
  made = completion(VOCABULARY, blocks, **options)
  return Tree(token_view(made, VOCABULARY, prompt=prompt))


def shown(tree, look):
  """Tokens of this look; those of the legend apart."""
  return [text for text in tree.classes(look) if text not in ("draft", "token")]


def test_every_token_has_its_look():
  tree = view()
  assert shown(tree, "kept") == ["def", "·f", "x", ")", "def"]
  assert shown(tree, "rejected") == ["("]
  # Behind a rejected one; behind the end.
  assert shown(tree, "behind") == ["x", "·f"]
  assert shown(tree, "own") == ["↵⇥", "x", "<eos>"]
  assert tree.classes("count") == ["2/4", "2/2", "1/2", ""]


def test_a_rejected_draft_shows_p_and_q():
  assert view().classes("odds") == ["p .250 q .500"]
  picked = [block([DEF, F], kept=0, token=X, q=None, p=1e-6)]
  assert view(picked).classes("odds") == ["p <0.001"]


def test_a_tip_tells_all():
  (tip, *_) = view().classes("tip")
  assert tip == (
    "Draft 1 of 4, keptp, target0.2500q, draft0.5000min(1, p/q)0.5000"
    f"Σ min(p, q)0.7500token {DEF}"
  )


def test_an_excluded_draft_has_probability_0():
  excluded = [block([DEF], kept=0, token=X, p=1.0)]
  object.__setattr__(excluded[0], "target_log_probs", (-float("inf"),))
  tree = view(excluded)
  assert tree.classes("odds") == ["p 0 q .500"]
  assert "min(1, p/q)0" in tree.classes("tip")[0]


def test_figures_and_acceptance():
  tree = view()
  (figures,) = tree.classes("figures")
  assert "tokens per pass, τ2.00" in figures
  assert "new tokens8ended by the length limit" in figures
  assert "passes of the target4" in figures
  assert "drafts kept62%5 of 8" in figures
  (table,) = tree.classes("scroll")
  assert table.endswith("1100%3 of 3267%2 of 330%0 of 140%0 of 1")


def test_the_text_is_marked_by_its_author():
  tree = view()
  written = "def f\n\tx)xdef"
  assert tree.classes("written") == [written]
  assert tree.classes("by-draft") == ["def f", "x)", "def", "underlined"]
  assert tree.classes("by-target") == ["x", "bold"]


def test_half_characters_of_rejected_drafts_stay_their_own():
  euro = "€".encode()
  vocabulary = Vocabulary(euro[:1], euro[1:], b"a")
  blocks = [
    block([1, 3], kept=1, token=2),
    block([1], kept=0, token=3),
    block([3], kept=1, token=3),
  ]
  made = completion(vocabulary, blocks)
  tree = Tree(token_view(made, vocabulary, prompt=""))
  assert shown(tree, "kept") == ["E2", "a"]
  assert shown(tree, "rejected") == ["a", "E2"]
  assert shown(tree, "own") == ["€", "a", "a"]


@pytest.mark.parametrize("count", [1, 3])
def test_hostile_text_adds_no_element(count):
  def page(words):
    vocabulary = Vocabulary(*[words.encode(errors="surrogatepass")] * 6)
    made = completion(vocabulary, BLOCKS)
    generated = [Generated(words, words, made)] * count
    return token_page(generated, vocabulary, {words: words})

  hostile, harmless = Tree(page(HOSTILE)), Tree(page("text"))
  assert hostile.names == harmless.names
  assert "script" not in hostile.names
  raw = {chr(i) for i in range(32)} - {"\n", "\t"} | {"\u202e"}
  assert not raw & set(page(HOSTILE))
  page(HOSTILE).encode()  # no half of a pair is left


def test_several_texts_fold_up():
  made = completion(VOCABULARY, BLOCKS)
  generated = [Generated(f"text {i}", "p " * 99, made) for i in range(3)]
  tree = Tree(token_page(generated, VOCABULARY, {"rule": "token"}))
  opened = [
    "open" in attributes
    for tag, attributes, _ in tree.found
    if attributes.get("class") == "generation"
  ]
  assert opened == [True, False, False]
  links = [it[1]["href"] for it in tree.found if it[0] == "a"]
  ids = [it[1].get("id") for it in tree.found]
  assert [link.removeprefix("#") for link in links] == ["g1", "g2", "g3"]
  assert {"g1", "g2", "g3"} <= set(ids)
  assert "new tokens24" in tree.classes("figures")[0]


def test_plain_decoding_and_an_interrupt():
  tree = view([block([], kept=0, token=DEF)], finish_reason=None)
  (figures,) = tree.classes("figures")
  assert "drafts kept-none drafted" in figures
  assert "interrupted" in figures
  assert tree.classes("scroll") == []


def test_without_a_tokenizer_there_are_ids():
  made = completion(VOCABULARY, BLOCKS)
  tree = Tree(token_view(made, None, prompt=""))
  assert shown(tree, "rejected") == [str(OPEN)]


def test_without_a_trace_it_is_refused():
  made = completion(VOCABULARY, BLOCKS)
  object.__setattr__(made, "blocks", None)
  with pytest.raises(ValueError, match="trace=True"):
    token_view(made, VOCABULARY, prompt="")
