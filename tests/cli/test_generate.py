import contextlib
import json
import shutil
import signal

import pytest

import specdec_jax as sd
from specdec_jax.cli import main as dispatcher
from tests.cli.tiny_checkpoint import save_checkpoint, save_tokenizer

PROMPT = "--prompt=def f(x):"
BRIEF = "--max_new_tokens=12"
SHORT = (BRIEF, "--num_draft_tokens=3")
KEYS = ["prompt", "text", "tokens", "finish_reason", "stats"]


def test_a_prompt_gives_text_and_a_table(generate):
  code, out, err = generate(PROMPT, *SHORT)
  assert (code, err) == (0, "")
  (object_,) = generate.json(PROMPT, *SHORT)
  text, table = out.split("\n\nnew tokens")
  stats = object_["stats"]
  assert "\x1b" not in out
  assert text.isprintable() or "\n" in text
  assert "12 (ended: length)" in table
  assert f"target passes        {stats['target_passes']}\n" in table
  assert "tokens per pass (τ)" in table
  assert "position 1" in table and "position 3" in table
  for word in ("load", "compile", "prefill", "decode", "tokens/s"):
    assert word in table


def test_json_has_its_keys_and_nothing_else_on_stdout(generate):
  (result,) = generate.json(PROMPT, *SHORT)
  assert list(result) == [*KEYS, "tokens_per_second"]
  assert result["prompt"] == "def f(x):"
  assert len(result["tokens"]) == 12
  assert result["finish_reason"] == "length"
  assert result["stats"]["new_tokens"] == 12
  assert result["tokens_per_second"] > 0


def test_json_without_drafts_has_no_nan(generate):
  (result,) = generate.json(PROMPT, "--drafter=none", BRIEF)
  assert result["stats"]["acceptance_rate"] is None
  assert result["stats"]["target_passes"] == 12


@pytest.mark.parametrize(
  "flags",
  [
    ("--drafter=lookup", *SHORT),
    ("--drafter=none", BRIEF),
    ("--rule=token", *SHORT),
    ("--min_confidence=0.3", *SHORT),
  ],
)
def test_greedy_text_does_not_depend_on_the_drafter(generate, flags):
  (one,), (other,) = (
    generate.json(PROMPT, *SHORT),
    generate.json(PROMPT, *flags),
  )
  assert one["tokens"] == other["tokens"]


def test_a_file_of_prompts_is_summed_up(generate, prompts):
  code, out, _ = generate(f"--prompts_file={prompts}", "--batch_size=2", *SHORT)
  assert code == 0
  assert f"== 1 of 3: {prompts}, line 1: ab\n" in out
  assert f"== 3 of 3: {prompts}, line 3: ccccccccc\n" in out
  assert out.count("new tokens") == 1
  assert "3 (3 length)" in out
  assert "new tokens           36\n" in out


def test_text_does_not_depend_on_the_batch_size(generate, prompts):
  flags = (f"--prompts_file={prompts}", "--temperature=1", "--rule=gumbel")
  alone = generate.json(*flags, *SHORT, "--batch_size=1")
  together = generate.json(*flags, *SHORT, "--batch_size=2")
  assert len(alone) == 3
  assert [a["tokens"] for a in alone] == [b["tokens"] for b in together]


def test_a_chat_template_makes_a_message_of_the_prompt(generate):
  (chat,) = generate.json("--prompt=hi", "--chat_template", *SHORT)
  (text,) = generate.json("--prompt=[user] hi\n", *SHORT)
  assert chat["prompt"] == "hi"
  assert chat["tokens"] == text["tokens"]


def test_no_colours_off_a_terminal(generate, monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  _, out, _ = generate(PROMPT, *SHORT)
  assert "\x1b" not in out


def test_colours_on_a_terminal(generate, tty):
  with contextlib.redirect_stdout(tty):
    assert generate(PROMPT, *SHORT)[0] == 0
  assert "\x1b[38;5;32m" in tty.getvalue()
  assert "colours: " in tty.getvalue()


def test_values_of_generation_config_only_where_asked(generate, monkeypatch):
  seen = []
  start = sd.SpeculativeDecoder.start

  def watch(self, prompts, **arguments):
    seen.extend(arguments["sampling"])
    return start(self, prompts, **arguments)

  monkeypatch.setattr(sd.SpeculativeDecoder, "start", watch)
  generate(PROMPT, *SHORT)
  _, _, err = generate(PROMPT, *SHORT, "--use_generation_config", "--top_k=5")
  assert seen == [
    sd.SamplingParams(),
    sd.SamplingParams(temperature=0.5, top_k=5, repetition_penalty=1.1),
  ]
  used = "temperature 0.5, repetition_penalty 1.1"
  assert f"note: from generation_config.json: {used}\n" in err


def test_a_short_draft_context_warns_once(generate, prompts):
  flags = ("--max_new_tokens=80", "--batch_size=1")
  code, _, err = generate(f"--prompts_file={prompts}", *flags)
  assert code == 0
  assert err.count("\n") == 1
  assert err.startswith("specdec generate: warning: the draft's context of 64")


def test_without_a_drafter_it_says_so(generate, target):
  code, out, err = generate(
    f"--target={target}", PROMPT, BRIEF, "--dtype=float32", models=False
  )
  assert code == 0
  assert err.startswith("note: plain decoding")
  assert "position" not in out


@pytest.fixture
def interrupt(monkeypatch):
  """Presses Ctrl-C while the n-th advance of the process is running."""

  def after(count):
    calls = []
    advance = sd.Generation.advance

    def interrupted(self, blocks=None):
      calls.append(blocks)
      if len(calls) == count:
        signal.raise_signal(signal.SIGINT)
      advance(self, blocks)

    monkeypatch.setattr(sd.Generation, "advance", interrupted)

  return after


def test_ctrl_c_keeps_what_was_streamed(generate, interrupt):
  _, whole, _ = generate(PROMPT, *SHORT)
  interrupt(2)
  code, out, err = generate(PROMPT, *SHORT)
  assert code == 130
  text, table = out.split("\n\nnew tokens")
  assert text and whole.startswith(text)
  assert "(ended: interrupted)" in table
  assert "target passes        2\n" in table
  assert err == "note: interrupted\n"


def test_ctrl_c_in_a_file_keeps_the_prompts_before(
  generate, prompts, interrupt
):
  interrupt(1)
  code, out, _ = generate(
    f"--prompts_file={prompts}", "--json", "--max_new_tokens=40"
  )
  assert code == 130
  (only,) = map(json.loads, out.splitlines())
  assert only["finish_reason"] is None
  assert only["stats"]["target_passes"] == 1
  assert only["tokens"]


def test_ctrl_c_while_comparing_keeps_both(generate, interrupt):
  flags = (PROMPT, "--max_new_tokens=12", "--num_draft_tokens=3", "--compare")
  (whole,) = generate.json(*flags)
  # The blocks of the text, plain decoding's warm-up, and some of its run.
  interrupt(whole["stats"]["target_passes"] + 3)
  code, out, _ = generate(*flags)
  assert code == 130
  assert "12 (ended: length)" in out
  assert "speedup" in out
  assert "identical as far as both got" in out


def test_ctrl_c_while_warming_up_still_prints_json(generate, monkeypatch):
  start = sd.SpeculativeDecoder.start

  def interrupted(self, *args, **kwargs):
    if not self.drafter.num_draft_tokens:
      raise KeyboardInterrupt
    return start(self, *args, **kwargs)

  monkeypatch.setattr(sd.SpeculativeDecoder, "start", interrupted)
  code, out, _ = generate(PROMPT, *SHORT, "--compare", "--json")
  assert code == 130
  result = json.loads(out)
  assert len(result["tokens"]) == 12
  assert [result[k] for k in ("plain", "speedup", "identical")] == [None] * 3


@pytest.mark.parametrize(
  "flags, reason",
  [
    ((), "expected a prompt, got none"),
    (("--prompt=",), "got an empty one"),
    ((PROMPT, "--prompts_file=x"), "got both"),
    (("--prompts_file=/no/such/file",), "/no/such/file: No such file"),
    ((PROMPT, "--num_draft_tokens=0"), "at least 1 with a draft model, got 0"),
    ((PROMPT, "--draft="), "--draft: expected a folder or a hub id"),
    ((PROMPT, "--prompts_file="), "got both"),
    (("--prompts_file=",), "--prompts_file: expected a path, got nothing"),
    ((PROMPT, "--drafter=lookup", "--min_confidence=0"), "only for model;"),
    ((PROMPT, "--drafter=none", "--min_confidence=0"), "only for model;"),
    ((PROMPT, "--max_ngram=3"), "only for lookup; leave it out"),
    ((PROMPT, "--drafter=none", "--max_ngram=3"), "only for lookup;"),
    (
      (PROMPT, "--drafter=none", "--num_draft_tokens=3"),
      "--num_draft_tokens is not for --drafter=none, only for model and lookup",
    ),
    ((PROMPT, "--num_draft_tokens=1000000"), "expected at most 1024, got 10"),
    ((PROMPT, "--drafter=lookup", "--max_ngram=100"), "expected at most 64"),
    (
      (PROMPT, "--drafter=lookup", "--draft_vocabulary=same"),
      "--draft_vocabulary is not for --drafter=lookup, only for model",
    ),
    ((PROMPT, "--draft_vocabulary=union"), "same|intersection"),
    ((PROMPT, "--drafter=lookup", "--max_ngram=0"), "max_ngram: expected"),
    ((PROMPT, "--drafter=none", "--compare"), "nothing to compare"),
    ((PROMPT, "--drafter=medusa"), "model|lookup|none"),
    ((PROMPT, "--temperature=-1"), "temperature: expected"),
    ((PROMPT, "--temperature=nan"), "temperature: expected"),
    ((PROMPT, "--top_p=0"), "top_p: expected a number in (0, 1]"),
    ((PROMPT, "--top_k=-1"), "top_k: expected"),
    ((PROMPT, "--min_p=2"), "min_p: expected"),
    ((PROMPT, "--seed=-1"), "seed: expected an integer in [0, 2**32)"),
    ((PROMPT, "--seed=4294967296"), "seed: expected"),
    ((PROMPT, "--max_new_tokens=0"), "--max_new_tokens: expected at least 1"),
    ((PROMPT, "--batch_size=0"), "--batch_size: expected at least 1"),
    ((PROMPT, "--min_confidence=1.5"), "--min_confidence: expected"),
    ((PROMPT, "--min_confidence=nan"), "--min_confidence: expected"),
    ((PROMPT, "--temperature=1e400"), "temperature: expected"),
    ((PROMPT, "--rule=best"), "token, block, gumbel, threshold"),
    ((PROMPT, "--dtype=float8"), "bfloat16|float32"),
    ((PROMPT, "--quantize=int4"), "<int8>"),
    ((PROMPT, "--top_k=many"), "top_k"),
    ((PROMPT, "--no_such_flag"), "no_such_flag"),
    ((PROMPT, "--target="), "--target: expected"),
    (("--prompt", "two", "words"), "unexpected argument 'words'"),
    (("--prompt",), "prompt"),
  ],
)
def test_bad_flags_are_refused_before_anything_is_loaded(
  generate, monkeypatch, flags, reason
):
  monkeypatch.setattr(sd, "load", None)
  assert reason in generate.refused(*flags)


def test_a_draft_model_must_be_named(generate, target):
  flags = (f"--target={target}", PROMPT, "--drafter=model")
  assert "give --draft" in generate.refused(*flags, models=False)


@pytest.mark.parametrize("rule", ["threshold", "typical", "lenient"])
def test_a_lossy_rule_is_told_of(generate, rule):
  code, _, err = generate(PROMPT, *SHORT, f"--rule={rule}")
  assert code == 0
  assert err.startswith(f"note: --rule={rule} is lossy")
  assert err.count("\n") == 1


def test_a_bad_file_of_prompts_is_refused_by_its_line(
  generate, monkeypatch, write
):
  monkeypatch.setattr(sd, "load", None)
  path = write('{"prompt": "a"}\n{}\n')
  reason = generate.refused(f"--prompts_file={path}")
  assert reason.startswith(f"{path}, line 2: ")


@pytest.fixture
def broken(target, tmp_path):
  """A copy of the target, to be broken."""
  return shutil.copytree(target, tmp_path / "broken")


def test_no_such_folder(generate):
  reason = generate.refused("--target=/no/such/folder", PROMPT)
  assert "/no/such/folder" in reason


def test_no_config(generate, broken):
  (broken / "config.json").unlink()
  reason = generate.refused(f"--target={broken}", PROMPT)
  assert "no config.json" in reason


def test_an_architecture_that_is_not_supported(generate, broken):
  config = json.loads((broken / "config.json").read_text())
  config["architectures"] = ["MambaForCausalLM"]
  (broken / "config.json").write_text(json.dumps(config))
  reason = generate.refused(f"--target={broken}", PROMPT)
  assert "MambaForCausalLM" in reason
  assert "LlamaForCausalLM" in reason


def test_a_truncated_file(generate, broken):
  file = broken / "model.safetensors"
  file.write_bytes(file.read_bytes()[:-100])
  assert "model.safetensors" in generate.refused(f"--target={broken}", PROMPT)


def test_many_faults_are_one_line(generate, broken):
  config = json.loads((broken / "config.json").read_text())
  config["num_hidden_layers"] = 2
  (broken / "config.json").write_text(json.dumps(config))
  reason = generate.refused(f"--target={broken}", PROMPT)
  assert "missing" in reason


def test_another_tokenizer(generate, broken):
  save_tokenizer(broken, first="x")
  reason = generate.refused(f"--draft={broken}", PROMPT)
  assert "tokenizer" in reason
  flags = (f"--draft={broken}", "--draft_vocabulary=intersection")
  (other,) = generate.json(PROMPT, *SHORT, *flags)
  (same,) = generate.json(PROMPT, *SHORT)
  assert other["text"] == same["text"]
  assert other["stats"]["draft_tokens"] > 0


@pytest.mark.parametrize(
  "length, flags, reason",
  [
    (256, (), "shorten the prompt"),
    (250, ("--max_new_tokens=7",), "set max_new_tokens to at most 6"),
  ],
)
def test_a_prompt_that_does_not_fit(generate, write, length, flags, reason):
  path = write("a\n" + "b" * length, "prompts.txt")
  error = generate.refused(f"--prompts_file={path}", *SHORT, *flags)
  assert error.startswith(f"{path}, line 2: {length} tokens")
  assert reason in error


def test_a_generation_config_of_the_wrong_kind(generate, tmp_path):
  folder = save_checkpoint(tmp_path / "odd", generation={"top_k": "many"})
  flags = (f"--target={folder}", PROMPT)
  assert "top_k" in generate.refused(*flags, "--use_generation_config")
  assert generate(*flags, *SHORT)[0] == 0


def test_help_shows_the_flags_of_this_command_alone(capsys):
  assert dispatcher.main(["generate", "--help"]) == 0
  out = capsys.readouterr().out
  assert "usage: specdec generate" in out
  assert "--num_draft_tokens" in out
  assert "flagfile" not in out
  assert max(map(len, out.splitlines())) <= 80


def test_a_reader_that_leaves_early_is_no_error(generate, tty, monkeypatch):
  def closed(_):
    raise BrokenPipeError

  monkeypatch.setattr(tty, "write", closed)
  with contextlib.redirect_stdout(tty):
    code, _, err = generate(PROMPT, *SHORT)
  assert (code, err) == (141, "")
