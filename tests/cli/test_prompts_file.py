import io
import json

import pytest

from specdec_jax.cli import prompts_file


def texts(path):
  return [prompt.text for prompt in prompts_file.read(path)]


def test_json_lines_with_prompts_and_turns(write):
  lines = [{"prompt": "a\nb"}, {"turns": ["c", "d"], "id": 1}]
  path = write("\n\n".join(map(json.dumps, lines)) + "\n")
  assert texts(path) == ["a\nb", "c"]
  names = [prompt.name for prompt in prompts_file.read(path)]
  assert names == [f"{path}, line 1", f"{path}, line 3"]


def test_plain_text_is_a_prompt_a_line(write):
  path = write("\ufeffone \r\n\n  \ntwo {x}\n", "prompts.txt")
  assert texts(path) == ["one ", "two {x}"]


def test_json_lines_are_known_by_their_first_line_too(write):
  assert texts(write('{"prompt": "a"}\n', "prompts")) == ["a"]
  assert texts(write("{% if x %}\n", "prompts")) == ["{% if x %}"]


def test_only_newlines_separate_lines(write):
  assert texts(write('{"prompt": "a\u2028b\x0b"}'.replace("\x0b", " "))) == [
    "a\u2028b "
  ]


@pytest.mark.parametrize(
  "content, line, reason",
  [
    ('{"prompt": "a"}\n{"prompt": \n', 2, "not JSON"),
    ('{"prompt": "a"}\n"b"\n', 2, "expected an object"),
    ("[" * 100_000, 1, "not JSON"),
    ('\n{"text": "a"}\n', 2, "expected a key `prompt` or `turns`, got 'text'"),
    ("{}", 1, "got none"),
    ('{"prompt": 3}', 1, "as text, got a number"),
    ('{"prompt": null}', 1, "as text, got null"),
    ('{"prompt": ["a"]}', 1, "as text, got a list"),
    ('{"prompt": ""}', 1, "got an empty one"),
    ('{"turns": "a"}', 1, "list of at least one text, got text"),
    ('{"turns": []}', 1, "list of at least one text, got an empty list"),
    ('{"turns": [{}]}', 1, "as text, got an object"),
    ('{"prompt": "\\ud800"}', 1, "half of a character"),
    (b'{"prompt": "a"}\n{"prompt": "\xff"}', 2, "not UTF-8 (byte 0xff)"),
  ],
)
def test_errors_name_the_line(write, content, line, reason):
  path = write(content)
  with pytest.raises(ValueError) as error:
    prompts_file.read(path)
  assert str(error.value).startswith(f"{path}, line {line}: ")
  assert reason in str(error.value)


def test_a_file_without_end_is_refused():
  with pytest.raises(ValueError, match="/dev/zero: more than 256 MiB"):
    prompts_file.read("/dev/zero")


def test_a_name_that_no_file_can_have():
  with pytest.raises(ValueError, match="no such file"):
    prompts_file.read("a\0b")


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_prompts_is_refused(write, content):
  path = write(content)
  with pytest.raises(ValueError, match="expected at least one prompt"):
    prompts_file.read(path)


@pytest.fixture
def stdin(monkeypatch):
  def stdin(data):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

  return stdin


def test_standard_input_is_a_prompt_or_a_file_of_them(stdin):
  stdin("à\nb\n".encode())
  assert prompts_file.one_prompt("-").text == "à\nb\n"
  stdin(b"a\nb\n")
  assert texts("-") == ["a", "b"]


def test_standard_input_is_checked_like_the_rest(stdin):
  stdin(b"\xff")
  with pytest.raises(ValueError, match="standard input, line 1: not UTF-8"):
    prompts_file.one_prompt("-")
  stdin(b"")
  with pytest.raises(ValueError, match="empty"):
    prompts_file.one_prompt("-")
