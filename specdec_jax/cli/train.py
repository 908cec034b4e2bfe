"""`specdec train`: trains a model, or a draft for one."""

from collections.abc import Sequence
from pathlib import Path

from absl import flags
from jax.sharding import Mesh

from specdec_jax.cli import command, mesh_flag
from specdec_jax.cli.terminal import Terminal, sanitize
from specdec_jax.loading import loader
from specdec_jax.loading.export import check_unused, export
from specdec_jax.training import data, losses, prune, student
from specdec_jax.training.evaluate import Examination
from specdec_jax.training.optimizer import OPTIMIZERS, OptimizerConfig
from specdec_jax.training.rollout import WRITERS, RolloutConfig
from specdec_jax.training.trainer import Training, TrainingConfig

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

FLAGS = command.new_flags()

_OUTPUT = flags.DEFINE_string(
  "output", None, "The folder to be written.", flag_values=FLAGS
)
_STUDENT = flags.DEFINE_string(
  "student", None, "The model to begin with.", flag_values=FLAGS
)
_KEEP_LAYERS = flags.DEFINE_list(
  "keep_layers",
  None,
  "Only these of its layers, in this order: 0,2,5 for example.",
  flag_values=FLAGS,
)
_DRAFT_VOCAB = flags.DEFINE_integer(
  "draft_vocab",
  None,
  "A head over this many tokens, those most frequent in --data; it never says "
  "others.",
  flag_values=FLAGS,
)
_CONFIG = flags.DEFINE_string(
  "config",
  None,
  "Instead of it: the config.json of a model with random weights.",
  flag_values=FLAGS,
)
_TOKENIZER = flags.DEFINE_string(
  "tokenizer", None, "The folder of its tokenizer.", flag_values=FLAGS
)
_TEACHER = flags.DEFINE_string(
  "teacher",
  None,
  "The model to be imitated; with cross_entropy only to be compared with.",
  flag_values=FLAGS,
)
_DATA = flags.DEFINE_multi_string(
  "data",
  None,
  "A text or a .jsonl file, whose lines have a field text, or a folder of "
  "them; may be given several times.",
  flag_values=FLAGS,
)
_HELD_OUT = flags.DEFINE_multi_string(
  "held_out",
  None,
  "Texts to measure with, likewise. If not given, every 50th of --data, or "
  "the last one of fewer.",
  flag_values=FLAGS,
)
_SEQUENCE_LENGTH = flags.DEFINE_integer(
  "sequence_length", 512, "Tokens of a row.", flag_values=FLAGS
)
_GENERATE = flags.DEFINE_enum(
  "generate",
  None,
  WRITERS,
  "Who goes on with the beginnings of the rows, for the student to learn from "
  "that instead of the texts: the teacher, with the student as its draft, or "
  "the student itself, to be judged by the teacher. DistillSpec's data.",
  flag_values=FLAGS,
)
_GENERATED_SHARE = flags.DEFINE_float(
  "generated_share",
  1.0,
  "Of the rows of a step; the others stay texts. 0.5 mixes both.",
  flag_values=FLAGS,
)
_GENERATE_TEMPERATURE = flags.DEFINE_float(
  "generate_temperature",
  1.0,
  "Of the one who writes; 0 for a draft of greedy users.",
  flag_values=FLAGS,
)
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size", 8, "Rows of a step.", flag_values=FLAGS
)
_ACCUMULATE = flags.DEFINE_integer(
  "accumulate",
  1,
  "Parts of a batch that are gone through one after another.",
  flag_values=FLAGS,
)
_STEPS = flags.DEFINE_integer(
  "steps",
  1000,
  "How many updates; with 0 the model is written as it is, in --dtype.",
  lower_bound=0,
  flag_values=FLAGS,
)
_LOSS = flags.DEFINE_enum(
  "loss",
  None,
  [losses.CROSS_ENTROPY, *losses.DISTILLATION],
  "What is made small: by default cross_entropy, or forward_kl with a teacher.",
  flag_values=FLAGS,
)
_OPTIMIZER = flags.DEFINE_enum(
  "optimizer", "adamw", OPTIMIZERS, "Of the weights.", flag_values=FLAGS
)
_LEARNING_RATE = flags.DEFINE_float(
  "learning_rate", 1e-3, "At its highest.", flag_values=FLAGS
)
_WARMUP_STEPS = flags.DEFINE_integer(
  "warmup_steps",
  None,
  "It rises for so long; by default a tenth of the steps, at most 100.",
  flag_values=FLAGS,
)
_WEIGHT_DECAY = flags.DEFINE_float(
  "weight_decay", 0.1, "Of matrices.", flag_values=FLAGS
)
_CLIP_NORM = flags.DEFINE_float(
  "clip_norm", 1.0, "The longest a gradient may be.", flag_values=FLAGS
)
_AVERAGE_DECAY = flags.DEFINE_float(
  "average_decay",
  None,
  "Train, but keep a moving average of the weights, 0.999 for example.",
  flag_values=FLAGS,
)
_DTYPE = flags.DEFINE_enum(
  "dtype",
  "float32",
  ["bfloat16", "float32"],
  "Of activations, and of the teacher. Weights are trained in float32.",
  flag_values=FLAGS,
)
_SEED = flags.DEFINE_integer(
  "seed",
  0,
  "Of random weights, of the data's order and of what is generated.",
  flag_values=FLAGS,
)
_EVALUATE_EVERY = flags.DEFINE_integer(
  "evaluate_every", 200, "Steps until the next checkpoint.", flag_values=FLAGS
)
_HELD_OUT_ROWS = flags.DEFINE_integer(
  "held_out_rows", 64, "Rows to measure with.", flag_values=FLAGS
)
_NUM_DRAFT_TOKENS = flags.DEFINE_integer(
  "num_draft_tokens",
  4,
  "K, when τ is measured or the teacher writes.",
  flag_values=FLAGS,
)
_MESH = mesh_flag.define_mesh(FLAGS)
_GROUPS = {
  "models": (
    _OUTPUT,
    _STUDENT,
    _KEEP_LAYERS,
    _DRAFT_VOCAB,
    _CONFIG,
    _TOKENIZER,
    _TEACHER,
  ),
  "data": (
    _DATA,
    _HELD_OUT,
    _SEQUENCE_LENGTH,
    _GENERATE,
    _GENERATED_SHARE,
    _GENERATE_TEMPERATURE,
  ),
  "training": (
    _STEPS,
    _BATCH_SIZE,
    _ACCUMULATE,
    _LOSS,
    _OPTIMIZER,
    _LEARNING_RATE,
    _WARMUP_STEPS,
    _WEIGHT_DECAY,
    _CLIP_NORM,
    _AVERAGE_DECAY,
    _DTYPE,
    _SEED,
    _MESH,
  ),
  "measuring": (_EVALUATE_EVERY, _HELD_OUT_ROWS, _NUM_DRAFT_TOKENS),
}

# What matters where nothing is trained.
_PLAIN = {
  flag.name
  for flag in (
    _OUTPUT,
    _STUDENT,
    _KEEP_LAYERS,
    _DRAFT_VOCAB,
    _CONFIG,
    _TOKENIZER,
    _DATA,
    _STEPS,
    _DTYPE,
    _SEED,
    _MESH,
  )
}


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _train(argv))


def _train(argv: Sequence[str]) -> int:
  if not command.parse(FLAGS, argv, _ABOUT, _GROUPS):
    return 0
  terminal = Terminal()
  _check()
  folder = Path(_OUTPUT.value or "").expanduser()
  mesh = mesh_flag.parse_mesh(_MESH.value)
  if not _STEPS.value:
    check_unused(folder)
    texts = data.read_texts(_DATA.value) if _DATA.value else []
    pupil = _limited(_pupil(mesh), texts)
    export(pupil.source(pupil.model.params), folder, dtype=_DTYPE.value)
    terminal.line(f"wrote {sanitize(str(folder))}")
    return 0
  config = _config()
  texts = data.read_texts(_DATA.value or [])
  if _HELD_OUT.value:
    held_out = data.read_texts(_HELD_OUT.value)
  else:
    texts, held_out = data.hold_out(texts)
  pupil = _pupil(mesh)
  tokenizer, eos_ids = pupil.model.tokenizer, pupil.model.eos_ids
  if tokenizer is None or not eos_ids:
    missing = "end of sequence" if tokenizer else "tokenizer"
    raise ValueError(f"{pupil.model.name} has no {missing}, which texts need")
  teacher = (
    loader.load(_TEACHER.value, dtype=_DTYPE.value, mesh=mesh)
    if _TEACHER.value
    else None
  )
  pupil = _limited(pupil, texts)
  packed, unseen = (
    data.PackedTexts.of(
      documents,
      tokenizer,
      eos_ids[0],
      _SEQUENCE_LENGTH.value,
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
      rows=_HELD_OUT_ROWS.value,
      # No more at a time than a step has.
      batch_size=config.batch_size // config.accumulate,
      num_draft_tokens=_NUM_DRAFT_TOKENS.value,
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
  if not _OUTPUT.value:
    raise ValueError("--output: expected a folder, got none")
  needed = _STEPS.value or _DRAFT_VOCAB.value is not None
  if needed and not (_DATA.value and all(_DATA.value)):
    raise ValueError("--data: expected files or folders, got none")
  if bool(_STUDENT.value) == bool(_CONFIG.value):
    got = "both" if _STUDENT.value else "neither"
    raise ValueError(
      "expected --student, a model to begin with, or --config, for one with "
      f"random weights, got {got}"
    )
  if bool(_CONFIG.value) != bool(_TOKENIZER.value):
    got = "none" if _CONFIG.value else f"{_TOKENIZER.value} with --student"
    raise ValueError(
      "--tokenizer: expected a folder with --config, since --student has its "
      f"own, got {got}"
    )
  if not _STEPS.value:
    idle = [
      name for name in FLAGS if FLAGS[name].present and name not in _PLAIN
    ]
    if _DRAFT_VOCAB.value is None and _DATA.value:
      idle.append(_DATA.name)
    if idle:
      raise ValueError(
        f"--{idle[0]}: nothing is trained with --steps=0; leave it out"
      )
  output = Path(_OUTPUT.value).expanduser().resolve()
  for flag in (_STUDENT, _TEACHER):
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
  if _DRAFT_VOCAB.value is None:
    return pupil
  return prune.limit_vocabulary(pupil, texts, _DRAFT_VOCAB.value)


def _config() -> TrainingConfig:
  """How the student is trained.

  Raises:
    ValueError: a value lies outside its range.
  """
  return TrainingConfig(
    steps=_STEPS.value,
    batch_size=_BATCH_SIZE.value,
    accumulate=_ACCUMULATE.value,
    loss=_LOSS.value
    or ("forward_kl" if _TEACHER.value else losses.CROSS_ENTROPY),
    optimizer=OptimizerConfig(
      name=_OPTIMIZER.value,
      learning_rate=_LEARNING_RATE.value,
      warmup_steps=min(100, _STEPS.value // 10)
      if _WARMUP_STEPS.value is None
      else _WARMUP_STEPS.value,
      weight_decay=_WEIGHT_DECAY.value,
      clip_norm=_CLIP_NORM.value,
    ),
    average_decay=_AVERAGE_DECAY.value,
    dtype=_DTYPE.value,
    evaluate_every=_EVALUATE_EVERY.value,
    seed=_SEED.value,
    rollout=_rollout(),
  )


def _pupil(mesh: Mesh) -> student.Student:
  """The model to begin with, all of its tokens."""
  if not _STUDENT.value:
    for flag in (_KEEP_LAYERS, _DRAFT_VOCAB):
      if flag.value is not None:
        raise ValueError(
          f"--{flag.name} takes a part of a model; name it with --student"
        )
    return student.fresh(
      Path(_CONFIG.value or "").expanduser(),
      Path(_TOKENIZER.value or "").expanduser(),
      _SEED.value,
      mesh,
    )
  pupil = student.from_checkpoint(_STUDENT.value, mesh)
  if _KEEP_LAYERS.value is None:
    return pupil
  try:
    layers = [int(layer) for layer in _KEEP_LAYERS.value]
  except ValueError as error:
    raise ValueError(
      "--keep_layers: expected numbers like 0,2,5, got "
      + ",".join(_KEEP_LAYERS.value)
    ) from error
  return prune.keep_layers(pupil, layers)


def _rollout() -> RolloutConfig | None:
  """What is generated; None for nothing."""
  if _GENERATE.value is None:
    for flag in (_GENERATED_SHARE, _GENERATE_TEMPERATURE):
      if flag.present:
        raise ValueError(
          f"--{flag.name}: nothing is generated; expected --generate with it"
        )
    return None
  return RolloutConfig(
    _GENERATE.value, _GENERATED_SHARE.value, _GENERATE_TEMPERATURE.value
  )
