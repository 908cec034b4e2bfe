"""`specdec chat`, spoken to by a pipe."""

import io
import json
import shutil
import signal

import pytest

import specdec_jax as sd
from specdec_jax.cli import main as dispatcher

LETTERS = ",".join(str(i) for i in range(33, 90))


@pytest.fixture
def chat(capsys, monkeypatch, target, draft):
  named = (f"--target={target}", f"--draft={draft}", "--dtype=float32")

  def run(*lines, flags=(), models=named):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    capsys.readouterr()
    code = dispatcher.main(
      [
        "chat",
        *models,
        "--max_new_tokens=8",
        f"--allowed_token_ids={LETTERS}",
        "--context_length=100",
        *flags,
      ]
    )
    return code, *capsys.readouterr()

  return run


def test_replies_and_what_they_cost(chat):
  code, out, err = chat("hi", "/stats", "more", " /stats", " /quit", "never")
  assert code == 0
  assert out.count("new tokens") == 2
  first, second = [
    line.split()[1::2] for line in out.splitlines() if "prefilled" in line
  ]
  assert first[0] == first[1] == "10"
  assert int(second[0]) < int(second[1])
  assert "never" not in out
  assert "note: the reply ended: length" in err


def test_the_same_replies_on_a_mesh(chat):
  _, out, _ = chat("hi", "more", flags=["--mesh=model:2"])
  assert out == chat("hi", "more")[1]


def test_reset_begins_anew(chat):
  _, twice, _ = chat("hi", "/reset", "hi")
  _, once, _ = chat("hi")
  assert twice == once * 2


def test_the_end_of_input_leaves(chat):
  assert chat()[0] == 0
  assert chat("", "  ")[1] == ""


def test_what_is_no_command_is_told(chat):
  code, out, err = chat("/what now", "/stats")
  assert code == 0
  assert "unknown command /what; there are /stats, /reset, /quit" in err
  assert out == "replies  none yet\n"


def test_a_message_too_long_leaves_the_conversation_as_it_was(chat):
  _, alone, _ = chat("hi")
  code, out, err = chat("x" * 400, "hi")
  assert code == 0
  assert out == alone
  assert "/reset begins anew" in err


def test_ctrl_c_cuts_a_reply_short(chat, monkeypatch):
  advance = sd.Generation.advance

  def interrupted(self, blocks=None):
    advance(self, blocks)
    if not self.done and len(calls) < 1:
      calls.append(1)
      signal.raise_signal(signal.SIGINT)

  calls: list[int] = []
  monkeypatch.setattr(sd.Generation, "advance", interrupted)
  code, out, err = chat("hi", "and?", "/stats")
  assert code == 0
  assert "the reply ended: interrupted" in err
  assert out.count("\n") > 2 and "new tokens" in out


@pytest.fixture
def untaught(target, tmp_path):
  """The target, but its tokenizer has no chat template."""
  folder = shutil.copytree(target, tmp_path / "untaught")
  path = folder / "tokenizer_config.json"
  config = json.loads(path.read_text())
  del config["chat_template"]
  path.write_text(json.dumps(config))
  return folder


def test_without_a_chat_template_it_goes_on_with_what_is_typed(
  chat, untaught, generate
):
  code, out, err = chat("def f(x):", "  x  ", flags=[f"--target={untaught}"])
  assert code == 0
  assert "has no chat template: it goes on with what you type" in err
  assert "until two blank lines\n" in err
  first, second, end = out.split("\n")
  flags = ("--max_new_tokens=8", f"--allowed_token_ids={LETTERS}")
  (alone,) = generate.json("--prompt=def f(x):", *flags)
  (after,) = generate.json(
    f"--prompt=def f(x):{alone['text']}\n\n\n  x", *flags
  )
  assert (first, second, end) == (alone["text"], after["text"], "")


@pytest.mark.parametrize("flags, tokens", [((), 3), (("--stop=\n",), 1)])
def test_without_a_chat_template_two_blank_lines_end_a_reply(
  chat, untaught, flags, tokens
):
  newline = sd.load(untaught).tokenizer.encode("\n")
  model = (f"--target={untaught}", f"--allowed_token_ids={newline[0]}")
  _, out, err = chat("f", "/stats", flags=(*model, *flags))
  assert ["new", "tokens", str(tokens)] in [s.split() for s in out.splitlines()]
  assert "the reply ended" not in err


def test_the_embedded_pair_chats_where_no_model_is_named(chat, embedded_pair):
  _, named, _ = chat("hi")
  _, out, err = chat("hi", models=())
  assert out == named
  assert err.startswith("note: no model named: using embedded:pycode/target ")


@pytest.mark.parametrize(
  "flags, reason",
  [
    (["--context_length=0"], "--context_length: expected at least 1"),
    (["--temperature=-1"], "temperature: expected"),
    (["--prompt=x"], "prompt"),
    (["hello"], "unexpected argument 'hello'"),
  ],
)
def test_bad_flags(chat, flags, reason):
  code, out, err = chat(flags=flags)
  assert (code, out) == (2, "")
  assert reason in err and err.startswith("specdec chat: error: ")
