"""Pages as a browser shows them."""

import re

import pytest

from specdec_jax.report import Generated, bench_page, token_page
from specdec_jax.report.palette import DARK, LIGHT
from tests.report import made
from tests.report.made import Vocabulary, block, completion
from tests.report.test_markup import HOSTILE
from tests.report.test_palette import contrast
from tests.report.test_tokens import BLOCKS, VOCABULARY

pytestmark = pytest.mark.browser

PHONE, DESK = 390, 1280
LONG = "x" * 300
TOKENS = sum(len(it.drafts) + (it.token is not None) for it in BLOCKS)

# What sticks out of the window to the side. What a box cuts or scrolls does
# not; nor does what is not shown.
STICKS_OUT = """
(() => {
  const out = [], wide = document.documentElement.clientWidth;
  const boxed = (it) => it && it !== document.body &&
    (getComputedStyle(it).overflowX !== 'visible' || boxed(it.parentElement));
  for (const it of document.body.querySelectorAll('*')) {
    const box = it.getBoundingClientRect();
    if (box.width && (box.right > wide + 0.5 || box.left < -0.5) &&
        !boxed(it.parentElement))
      out.push(it.outerHTML.slice(0, 200));
  }
  if (document.documentElement.scrollWidth > wide) out.push('the page');
  return out;
})()
"""

# Colour of each text, and of what is behind it.
COLOURS = """
(() => {
  const pairs = {};
  const behind = (it) => {
    const colour = it ? getComputedStyle(it).backgroundColor : 'none';
    return colour === 'rgba(0, 0, 0, 0)' ? behind(it.parentElement) : colour;
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const it = walk.currentNode.parentElement;
    if (walk.currentNode.data.trim() && it.checkVisibility())
      pairs[getComputedStyle(it).color + ' on ' + behind(it)] = it.outerHTML
        .slice(0, 120);
  }
  return pairs;
})()
"""
# After two frames: places follow a scroll in the next one.
TIP = """
(async () => {
  for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
  const tips = [...document.querySelectorAll('.tip')]
    .filter((it) => it.checkVisibility());
  return tips.map((it) => {
    const box = it.getBoundingClientRect();
    return [it.innerText, box.left, box.top, box.right, box.bottom];
  });
})()
"""


def _tokens():
  """Pages of every kind of token, some of them long and hostile."""
  words = Vocabulary(
    *(
      HOSTILE.encode(errors="surrogatepass"),
      LONG.encode(),
      b"\n" + b" " * 200,
      "€".encode()[:1],
      "مرحبا 漢字 👩".encode(),
      b"ok",
    )
  )
  blocks = [
    block([1, 2, 3, 4, 5], kept=2, token=6),
    block([6, 5], kept=2, token=2),
    block([4, 3], kept=0, token=3),
    block([2], kept=1, token=None),
  ]
  hostile = Generated(HOSTILE, f"{HOSTILE} {LONG}", completion(words, blocks))
  settings = {"target": LONG, HOSTILE: HOSTILE}
  plain = Generated("plain", "p", completion(VOCABULARY, BLOCKS))
  yield "hostile", token_page([hostile], words, settings)
  yield "several", token_page([hostile, hostile], words, settings)
  yield "plain", token_page([plain], VOCABULARY, {"rule": "token"})
  yield (
    "long",
    token_page(
      [Generated("long", "p", completion(VOCABULARY, BLOCKS * 250))],
      VOCABULARY,
      {},
    ),
  )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
  """Paths by name."""
  folder = tmp_path_factory.mktemp("pages")
  bench = made.summary(
    temperatures=(0.8,),
    tasks=(HOSTILE, "b" * 24, "qa"),
    note=f"{LONG} {HOSTILE}",
  )
  written = {}
  for name, page in (*_tokens(), ("bench", bench_page(bench))):
    written[name] = folder / f"{name}.html"
    written[name].write_text(page, encoding="utf-8")
  return written


each_page = pytest.mark.parametrize(
  "name", ["hostile", "several", "plain", "long", "bench"]
)


@each_page
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_sticks_out(chromium, pages, name, width, dark):
  chromium.open(pages[name], width, dark=dark)
  unfold(chromium)
  assert chromium.run(STICKS_OUT) == []


def unfold(chromium):
  chromium.run("document.querySelectorAll('details').forEach(d => d.open = 1)")


def test_the_check_sees_what_sticks_out(chromium, pages):
  chromium.open(pages["plain"], PHONE)
  chromium.run("document.querySelector('h1').style.cssText = 'width:500px'")
  assert len(chromium.run(STICKS_OUT)) >= 1


@each_page
def test_nothing_is_fetched_and_nothing_complains(chromium, pages, name):
  for dark in (False, True):
    chromium.open(pages[name], DESK, dark=dark)
    unfold(chromium)
    chromium.run("document.fonts.ready.then(() => 0)")
    asked = [
      event["params"]["request"]["url"]
      for event in chromium.events_of("Network.requestWillBeSent")
    ]
    page = pages[name].as_uri()
    assert [url for url in asked if not url.startswith("data:")] == [page]
    complaints = chromium.events_of(
      "Log.entryAdded",
      "Runtime.consoleAPICalled",
      "Runtime.exceptionThrown",
      "Audits.issueAdded",
      "Page.javascriptDialogOpening",
    )
    assert complaints == []


@pytest.mark.parametrize(
  "markup",
  [
    "<img src=http://localhost:9/x.png>",
    "<img src=x.png>",
    "<script>document.title = 'ran'</script>",
    "<link rel=stylesheet href=http://localhost:9/x.css>",
    "<h1 onclick='0'>",
    "<iframe src=http://localhost:9/></iframe>",
  ],
)
def test_the_policy_forbids_what_escaping_should_have(
  chromium, pages, tmp_path, markup
):
  path = tmp_path / "page.html"
  page = pages["plain"].read_text().replace("<main>", f"<main>{markup}")
  path.write_text(page)
  chromium.open(path)
  assert chromium.run("document.title") != "ran"
  chromium.run("0")
  said = str(chromium.events_of("Log.entryAdded", "Audits.issueAdded"))
  assert "ContentSecurityPolicyIssue" in said


def test_hostile_text_is_shown_as_text(chromium, pages):
  chromium.open(pages["hostile"])
  unfold(chromium)
  assert chromium.run("document.scripts.length") == 0
  assert chromium.run("document.images.length") == 0
  text = chromium.run("document.body.innerText")
  for part in (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "]]>'&amp;",
    r"\x00\x1b[31m\u202egpj.exe",
  ):
    # As a setting's name and value, in the prompt, and in the text.
    assert text.count(part) >= 4
  raw = {chr(i) for i in range(32)} - {"\n", "\t"} | {"\u202e"}
  assert not raw & set(text)


@pytest.mark.parametrize("name", ["plain", "bench", "several"])
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast_on_what_is_behind_it(chromium, pages, name, palette):
  chromium.open(pages[name], dark=palette is DARK)
  unfold(chromium)
  ground = chromium.run("getComputedStyle(document.body).backgroundColor")
  assert _hex(ground) == palette.ground
  pairs = chromium.run(COLOURS)
  assert len(pairs) > 2
  for pair, where in pairs.items():
    front, back = map(_hex, pair.split(" on "))
    assert contrast(front, back) >= 4.5, (pair, where)


def _hex(colour):
  parts = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()
  return "#" + "".join(f"{int(part):02X}" for part in parts)


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_keyboard_reaches_every_token(chromium, pages, width):
  chromium.open(pages["plain"], width)
  seen = []
  for _ in range(40):
    chromium.press("Tab")
    tips = chromium.run(TIP)
    if not tips and seen:
      break
    if tips:
      ((text, *box),) = tips
      assert box[0] >= 0 and box[2] <= width
      assert box[1] >= 0 and box[3] <= 900
      seen.append(text.split("\n")[0])
  assert seen[:5] == [
    "Draft 1 of 4, kept",
    "Draft 2 of 4, kept",
    "Draft 3 of 4, rejected",
    "Draft 4 of 4, without a say",
    "The target's own token, in place of the rejected",
  ]
  assert len(seen) == TOKENS


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_pointing_at_a_token_shows_its_odds(chromium, pages, width):
  chromium.open(pages["plain"], width)
  chromium.run("document.querySelector('.blocks').scrollIntoView()")
  x, y = chromium.run(
    "(() => { const b = document.querySelector('.line .rejected')"
    ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + 6]; })()"
  )
  chromium.point(x, y)
  ((text, left, top, right, bottom),) = chromium.run(TIP)
  assert "rejected" in text and "0.2500" in text and "0.5000" in text
  assert left >= 0 and top >= 0 and right <= width and bottom <= 900
  if width == DESK:  # beside it, not over it
    assert abs(left - x) < 40 and 0 < top - y < 40
  chromium.point(1, 1)
  assert chromium.run(TIP) == []


def test_tokens_differ_without_colour(chromium, pages):
  chromium.open(pages["plain"])
  looks = [
    chromium.run(
      f"(() => {{ const s = getComputedStyle(document.querySelector("
      f"'.line .{look}')); return [s.textDecorationLine, s.fontWeight, "
      "s.outlineStyle, s.boxShadow.includes('inset')].join() })()"
    )
    for look in ("kept", "rejected", "behind", "own")
  ]
  assert len(set(looks)) == 4
  assert looks[1].startswith("line-through")


def test_a_long_text_stays_quick(chromium, pages):
  chromium.open(pages["long"])
  assert chromium.run("document.querySelectorAll('.blocks li').length") == 1000
  tokens = chromium.run("document.querySelectorAll('.line .t').length")
  assert tokens == 250 * sum(
    len(b.drafts) + (b.token is not None) for b in BLOCKS
  )
  # A reflow of the whole page, as turning a phone makes it, in milliseconds.
  took = chromium.run(
    "(() => { const b = performance.now(); document.body.style.width = '380px';"
    " document.body.offsetHeight; return performance.now() - b; })()"
  )
  assert took < 2000


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_pictures_are_those_of_the_screen(chromium, pages, width, dark):
  chromium.open(pages["bench"], width, dark=dark)
  drawn = chromium.run(
    "(async () => { const i = document.images[0]; await i.decode();"
    " return atob(i.currentSrc.split(',')[1]) + i.naturalWidth })()"
  )
  inks = {palette.ink.lower(): palette for palette in (LIGHT, DARK)}
  palette = DARK if dark else LIGHT
  assert palette.ink.lower() in drawn.lower()
  (other,) = set(inks) - {palette.ink.lower()}
  assert other not in drawn.lower()
  natural = int(re.search(r"(\d+)$", drawn)[1])
  assert (natural < 500) == (width == PHONE)
