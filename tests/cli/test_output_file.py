"""A file of results: killed at any time, the next run makes it whole."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import specdec_jax as sd
from specdec_jax.cli.output_file import OutputFile
from specdec_jax.cli.prompts_file import NamedPrompt

PROMPTS = [NamedPrompt(f"line {i}", text) for i, text in enumerate("abc")]


def _open(path, prompts=PROMPTS, **settings):
  return OutputFile(str(path), prompts, settings)


def _write(path, count, begin=0):
  with _open(path).appending() as lines:
    for prompt in PROMPTS[begin : begin + count]:
      lines.write({"prompt": prompt.text, "text": "é\n"})


def test_goes_on_where_it_ended(tmp_path):
  path = tmp_path / "out.jsonl"
  _write(path, 2)
  assert _open(path).count == 2
  _write(path, 1, begin=2)
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  assert [line["prompt"] for line in lines] == list("abc")
  assert _open(path).count == 3


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_cut_off_in_its_middle_is_written_again(tmp_path, cut):
  path = tmp_path / "out.jsonl"
  _write(path, 2)
  whole = path.read_bytes()
  path.write_bytes(whole[:-cut])
  assert _open(path).count == 1
  _write(path, 1, begin=1)
  assert path.read_bytes() == whole


@pytest.mark.parametrize(
  "content, reason",
  [
    (b"notes of mine\n", "line 1, is not a line of results"),
    (b"notes of mine", "line 1, is not a line of results"),
    (b'{"prompt": "a"}\n', "line 1, is not a line of results"),
    (b"[1]\n", "line 1, is not a line of results"),
    (b'{"prompt": "mine"}', "line 1, is not a line of results"),
    (b"\xff\n", "line 1, is not a line of results"),
  ],
)
def test_a_file_of_another_kind_is_left_alone(tmp_path, content, reason):
  path = tmp_path / "notes"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=reason):
    _open(path)
  assert path.read_bytes() == content


def test_a_file_of_another_run_is_left_alone(tmp_path):
  path = tmp_path / "out.jsonl"
  _write(path, 2)
  other = [PROMPTS[0], NamedPrompt("line 1", "x"), PROMPTS[2]]
  with pytest.raises(ValueError, match="line 2, is of another prompt"):
    _open(path, other)
  with pytest.raises(ValueError, match="line 1, was made with other models"):
    _open(path, temperature=1.0)
  with pytest.raises(ValueError, match="line 2, is one too many for 1 result"):
    _open(path, PROMPTS[:1])


def test_a_folder_that_is_not_there(generate, tmp_path):
  reason = generate.refused("--prompt=a", f"--output={tmp_path}/no/x.jsonl")
  assert "no such folder" in reason


@pytest.fixture
def many(write):
  return write("\n".join(f"prompt {i} of many" for i in range(24)), "many.txt")


def _flags(many, output):
  return (
    f"--prompts_file={many}",
    f"--output={output}",
    "--batch_size=4",
    "--max_new_tokens=20",
    "--temperature=1",
  )


def _results(path):
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  return [(line["prompt"], line["tokens"]) for line in lines]


def test_killed_in_the_middle(generate, target, draft, many, tmp_path):
  whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
  code, out, _ = generate(*_flags(many, whole))
  assert code == 0 and "24 (" in out
  command = [sys.executable, "-m", "specdec_jax.cli.main", "generate"]
  models = [f"--target={target}", f"--draft={draft}", "--dtype=float32"]
  process = subprocess.Popen(
    [*command, *models, *_flags(many, killed)], stdout=subprocess.DEVNULL
  )
  while not killed.exists() or killed.read_bytes().count(b"\n") < 3:
    assert process.poll() is None
    time.sleep(0.005)
  os.kill(process.pid, signal.SIGKILL)
  process.wait()
  before = killed.read_bytes().count(b"\n")
  code, _, err = generate(*_flags(many, killed))
  assert code == 0 and f"holds {before} results already" in err
  assert _results(killed) == _results(whole)
  assert [prompt for prompt, _ in _results(whole)] == [
    f"prompt {i} of many" for i in range(24)
  ]
  code, out, err = generate(*_flags(many, killed))
  assert (code, out) == (0, "") and "holds 24 results already" in err


def test_each_of_several_samples_is_a_line(generate, tmp_path):
  output = tmp_path / "out.jsonl"
  flags = ("--prompt=ab", "--num_samples=3", "--temperature=1")
  code, _, _ = generate(*flags, "--max_new_tokens=9", f"--output={output}")
  assert code == 0
  (prompts, tokens) = zip(*_results(output), strict=True)
  assert prompts == ("ab",) * 3
  assert len({tuple(row) for row in tokens}) == 3


@pytest.mark.parametrize("flag", ["--json", "--compare"])
def test_what_does_not_go_with_a_file(generate, flag):
  reason = generate.refused("--prompt=a", "--output=x.jsonl", flag)
  assert f"{flag} does not go with --output" in reason


@pytest.mark.parametrize("advances", [1, 2, 3, 5])
def test_ctrl_c_leaves_a_beginning(
  generate, many, tmp_path, monkeypatch, advances
):
  """Also where later prompts have ended and an earlier one has not."""
  whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
  flags = ("--ignore_eos=false", "--allowed_token_ids=40,41,256")
  assert generate(*_flags(many, whole), *flags)[0] == 0
  calls: list[int] = []
  advance = sd.Generation.advance

  def interrupted(self, blocks=None):
    advance(self, blocks)
    calls.append(1)
    if len(calls) == advances:
      signal.raise_signal(signal.SIGINT)

  with monkeypatch.context() as patch:
    patch.setattr(sd.Generation, "advance", interrupted)
    assert generate(*_flags(many, cut), *flags)[0] == 130
  before = _results(cut)
  assert before == _results(whole)[: len(before)]
  assert len(before) < 24
  assert generate(*_flags(many, cut), *flags)[0] == 0
  assert _results(cut) == _results(whole)
