"""`specdec train`: trains a model, or a draft for one."""

from collections.abc import Sequence
from pathlib import Path

from jax.sharding import Mesh

from specdec_jax.cli import command, mesh_flag
from specdec_jax.cli import train_flags as given
from specdec_jax.cli.terminal import Terminal
from specdec_jax.loading import loader
from specdec_jax.loading.export import check_unused, export
from specdec_jax.training import data, losses, prune, student
from specdec_jax.training.evaluate import Examination
from specdec_jax.training.optimizer import OptimizerConfig
from specdec_jax.training.rollout import RolloutConfig
from specdec_jax.training.trainer import Training, TrainingConfig
from specdec_jax.visible import sanitize

_ABOUT = """
usage: specdec train --output=FOLDER --data=PATH [flags]

Trains a draft on texts, or to imitate the model it shall draft for.

  specdec train --output=draft --data=texts \\
    --student=MODEL --teacher=TARGET --loss=total_variation
  specdec train --output=model --data=texts \\
    --config=config.json --tokenizer=TARGET
  specdec train --output=draft --data=texts \\
    --student=MODEL --draft_vocab=32000 --steps=0

The folder holds the best model so far, ready to be loaded, and in training/
the checkpoints and what was measured, as lines and as a picture. Killed? The
same command goes on where it stopped. The exit code is 0, 2 after bad input or
a full disk, or 130 after Ctrl-C.
"""


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _train(argv))


def _train(argv: Sequence[str]) -> int:
  if not command.parse(given.FLAGS, argv, _ABOUT, given.GROUPS):
    return 0
  terminal = Terminal()
  _check()
  folder = Path(given.OUTPUT.value or "").expanduser()
  mesh = mesh_flag.parse_mesh(given.MESH.value)
  if not given.STEPS.value:
    check_unused(folder)
    texts = data.read_texts(given.DATA.value) if given.DATA.value else []
    pupil = _limited(_pupil(mesh), texts)
    export(pupil.source(pupil.model.params), folder, dtype=given.DTYPE.value)
    terminal.line(f"wrote {sanitize(str(folder))}")
    return 0
  config = _config()
  texts = data.read_texts(given.DATA.value or [])
  if given.HELD_OUT.value:
    held_out = data.read_texts(given.HELD_OUT.value)
  else:
    texts, held_out = data.hold_out(texts)
  pupil = _pupil(mesh)
  tokenizer, eos_ids = pupil.model.tokenizer, pupil.model.eos_ids
  if tokenizer is None or not eos_ids:
    missing = "end of sequence" if tokenizer else "tokenizer"
    raise ValueError(f"{pupil.model.name} has no {missing}, which texts need")
  teacher = (
    loader.load(given.TEACHER.value, dtype=given.DTYPE.value, mesh=mesh)
    if given.TEACHER.value
    else None
  )
  pupil = _limited(pupil, texts)
  packed, unseen = (
    data.PackedTexts.of(
      documents,
      tokenizer,
      eos_ids[0],
      given.SEQUENCE_LENGTH.value,
      name,
    )
    for documents, name in ((texts, "data"), (held_out, "held-out data"))
  )
  training = Training(
    folder,
    pupil,
    packed,
    Examination(
      unseen,
      rows=given.HELD_OUT_ROWS.value,
      # No more at a time than a step has.
      batch_size=config.batch_size // config.accumulate,
      num_draft_tokens=given.NUM_DRAFT_TOKENS.value,
    ),
    config,
    teacher,
  )
  _warn_of_seen(texts, held_out, terminal)
  try:
    training.run(terminal.line)
  except (KeyboardInterrupt, OSError):
    terminal.note("the same command goes on from the newest checkpoint")
    raise
  terminal.line(f"wrote {sanitize(str(folder))}")
  return 0


def _check() -> None:
  """Checks what costs nothing to check, before models are loaded.

  Raises:
    ValueError: flags are missing, or do not go together.
  """
  if not given.OUTPUT.value:
    raise ValueError("--output: expected a folder, got none")
  needed = given.STEPS.value or given.DRAFT_VOCAB.value is not None
  if needed and not (given.DATA.value and all(given.DATA.value)):
    raise ValueError("--data: expected files or folders, got none")
  if bool(given.STUDENT.value) == bool(given.CONFIG.value):
    got = "both" if given.STUDENT.value else "neither"
    raise ValueError(
      "expected --student, a model to begin with, or --config, for one with "
      f"random weights, got {got}"
    )
  if bool(given.CONFIG.value) != bool(given.TOKENIZER.value):
    got = (
      "none"
      if given.CONFIG.value
      else f"{given.TOKENIZER.value} with --student"
    )
    raise ValueError(
      "--tokenizer: expected a folder with --config, since --student has its "
      f"own, got {got}"
    )
  if not given.STEPS.value:
    idle = [
      name
      for name in given.FLAGS
      if given.FLAGS[name].present and name not in given.PLAIN
    ]
    if given.DRAFT_VOCAB.value is None and given.DATA.value:
      idle.append(given.DATA.name)
    if idle:
      raise ValueError(
        f"--{idle[0]}: nothing is trained with --steps=0; leave it out"
      )
  output = Path(given.OUTPUT.value).expanduser().resolve()
  for flag in (given.STUDENT, given.TEACHER):
    if flag.value and Path(flag.value).expanduser().resolve() == output:
      raise ValueError(
        f"--output is the folder of --{flag.name}; expected another one, since "
        "the model there would be overwritten"
      )


def _warn_of_seen(
  texts: Sequence[str], held_out: Sequence[str], terminal: Terminal
) -> None:
  """Notes texts that are measured with and trained on."""
  seen = set(texts)
  count = sum(text in seen for text in held_out)
  if count:
    terminal.note(
      f"{count} of {len(held_out)} held-out texts are in --data as well: what "
      "is measured with them is not how good it is on unseen ones"
    )


def _limited(pupil: student.Student, texts: Sequence[str]) -> student.Student:
  """The model with the head of --draft_vocab."""
  if given.DRAFT_VOCAB.value is None:
    return pupil
  return prune.limit_vocabulary(pupil, texts, given.DRAFT_VOCAB.value)


def _config() -> TrainingConfig:
  """How the student is trained.

  Raises:
    ValueError: a value lies outside its range.
  """
  return TrainingConfig(
    steps=given.STEPS.value,
    batch_size=given.BATCH_SIZE.value,
    accumulate=given.ACCUMULATE.value,
    loss=given.LOSS.value
    or ("forward_kl" if given.TEACHER.value else losses.CROSS_ENTROPY),
    optimizer=OptimizerConfig(
      name=given.OPTIMIZER.value,
      learning_rate=given.LEARNING_RATE.value,
      warmup_steps=min(100, given.STEPS.value // 10)
      if given.WARMUP_STEPS.value is None
      else given.WARMUP_STEPS.value,
      weight_decay=given.WEIGHT_DECAY.value,
      clip_norm=given.CLIP_NORM.value,
    ),
    average_decay=given.AVERAGE_DECAY.value,
    dtype=given.DTYPE.value,
    evaluate_every=given.EVALUATE_EVERY.value,
    seed=given.SEED.value,
    rollout=_rollout(),
  )


def _pupil(mesh: Mesh) -> student.Student:
  """The model to begin with, all of its tokens."""
  if not given.STUDENT.value:
    for flag in (given.KEEP_LAYERS, given.DRAFT_VOCAB):
      if flag.value is not None:
        raise ValueError(
          f"--{flag.name} takes a part of a model; name it with --student"
        )
    return student.fresh(
      Path(given.CONFIG.value or "").expanduser(),
      Path(given.TOKENIZER.value or "").expanduser(),
      given.SEED.value,
      mesh,
    )
  pupil = student.from_checkpoint(given.STUDENT.value, mesh)
  if given.KEEP_LAYERS.value is None:
    return pupil
  try:
    layers = [int(layer) for layer in given.KEEP_LAYERS.value]
  except ValueError as error:
    raise ValueError(
      "--keep_layers: expected numbers like 0,2,5, got "
      + ",".join(given.KEEP_LAYERS.value)
    ) from error
  return prune.keep_layers(pupil, layers)


def _rollout() -> RolloutConfig | None:
  """What is generated; None for nothing."""
  if given.GENERATE.value is None:
    for flag in (given.GENERATED_SHARE, given.GENERATE_TEMPERATURE):
      if flag.present:
        raise ValueError(
          f"--{flag.name}: nothing is generated; expected --generate with it"
        )
    return None
  return RolloutConfig(
    given.GENERATE.value,
    given.GENERATED_SHARE.value,
    given.GENERATE_TEMPERATURE.value,
  )
