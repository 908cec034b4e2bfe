"""The flags of `specdec train`."""

from absl import flags

from specdec_jax.cli import command, mesh_flag
from specdec_jax.training import losses
from specdec_jax.training.optimizer import OPTIMIZERS
from specdec_jax.training.rollout import WRITERS

FLAGS = command.new_flags()

OUTPUT = flags.DEFINE_string(
  "output", None, "The folder to be written.", flag_values=FLAGS
)
STUDENT = flags.DEFINE_string(
  "student", None, "The model to begin with.", flag_values=FLAGS
)
KEEP_LAYERS = flags.DEFINE_list(
  "keep_layers",
  None,
  "Only these of its layers, in this order: 0,2,5 for example.",
  flag_values=FLAGS,
)
DRAFT_VOCAB = flags.DEFINE_integer(
  "draft_vocab",
  None,
  "A head over this many tokens, those most frequent in --data; it never says "
  "others.",
  flag_values=FLAGS,
)
CONFIG = flags.DEFINE_string(
  "config",
  None,
  "Instead of it: the config.json of a model with random weights.",
  flag_values=FLAGS,
)
TOKENIZER = flags.DEFINE_string(
  "tokenizer", None, "The folder of its tokenizer.", flag_values=FLAGS
)
TEACHER = flags.DEFINE_string(
  "teacher",
  None,
  "The model to be imitated; with cross_entropy only to be compared with.",
  flag_values=FLAGS,
)
DATA = flags.DEFINE_multi_string(
  "data",
  None,
  "A text or a .jsonl file, whose lines have a field text, or a folder of "
  "them; may be given several times.",
  flag_values=FLAGS,
)
HELD_OUT = flags.DEFINE_multi_string(
  "held_out",
  None,
  "Texts to measure with, likewise. If not given, every 50th of --data, or "
  "the last one of fewer.",
  flag_values=FLAGS,
)
SEQUENCE_LENGTH = flags.DEFINE_integer(
  "sequence_length", 512, "Tokens of a row.", flag_values=FLAGS
)
GENERATE = flags.DEFINE_enum(
  "generate",
  None,
  WRITERS,
  "Who goes on with the beginnings of the rows, for the student to learn from "
  "that instead of the texts: the teacher, with the student as its draft, or "
  "the student itself, to be judged by the teacher. DistillSpec's data.",
  flag_values=FLAGS,
)
GENERATED_SHARE = flags.DEFINE_float(
  "generated_share",
  1.0,
  "Of the rows of a step; the others stay texts. 0.5 mixes both.",
  flag_values=FLAGS,
)
GENERATE_TEMPERATURE = flags.DEFINE_float(
  "generate_temperature",
  1.0,
  "Of the one who writes; 0 for a draft of greedy users.",
  flag_values=FLAGS,
)
BATCH_SIZE = flags.DEFINE_integer(
  "batch_size", 8, "Rows of a step.", flag_values=FLAGS
)
ACCUMULATE = flags.DEFINE_integer(
  "accumulate",
  1,
  "Parts of a batch that are gone through one after another.",
  flag_values=FLAGS,
)
STEPS = flags.DEFINE_integer(
  "steps",
  1000,
  "How many updates; with 0 the model is written as it is, in --dtype.",
  lower_bound=0,
  flag_values=FLAGS,
)
LOSS = flags.DEFINE_enum(
  "loss",
  None,
  [losses.CROSS_ENTROPY, *losses.DISTILLATION],
  "What is made small: by default cross_entropy, or forward_kl with a teacher.",
  flag_values=FLAGS,
)
OPTIMIZER = flags.DEFINE_enum(
  "optimizer", "adamw", OPTIMIZERS, "Of the weights.", flag_values=FLAGS
)
LEARNING_RATE = flags.DEFINE_float(
  "learning_rate", 1e-3, "At its highest.", flag_values=FLAGS
)
WARMUP_STEPS = flags.DEFINE_integer(
  "warmup_steps",
  None,
  "It rises for so long; by default a tenth of the steps, at most 100.",
  flag_values=FLAGS,
)
WEIGHT_DECAY = flags.DEFINE_float(
  "weight_decay", 0.1, "Of matrices.", flag_values=FLAGS
)
CLIP_NORM = flags.DEFINE_float(
  "clip_norm", 1.0, "The longest a gradient may be.", flag_values=FLAGS
)
AVERAGE_DECAY = flags.DEFINE_float(
  "average_decay",
  None,
  "Train, but keep a moving average of the weights, 0.999 for example.",
  flag_values=FLAGS,
)
DTYPE = flags.DEFINE_enum(
  "dtype",
  "float32",
  ["bfloat16", "float32"],
  "Of activations, and of the teacher. Weights are trained in float32.",
  flag_values=FLAGS,
)
SEED = flags.DEFINE_integer(
  "seed",
  0,
  "Of random weights, of the data's order and of what is generated.",
  flag_values=FLAGS,
)
EVALUATE_EVERY = flags.DEFINE_integer(
  "evaluate_every", 200, "Steps until the next checkpoint.", flag_values=FLAGS
)
HELD_OUT_ROWS = flags.DEFINE_integer(
  "held_out_rows", 64, "Rows to measure with.", flag_values=FLAGS
)
NUM_DRAFT_TOKENS = flags.DEFINE_integer(
  "num_draft_tokens",
  4,
  "K, when τ is measured or the teacher writes.",
  flag_values=FLAGS,
)
MESH = mesh_flag.define_mesh(FLAGS)
GROUPS = {
  "models": (
    OUTPUT,
    STUDENT,
    KEEP_LAYERS,
    DRAFT_VOCAB,
    CONFIG,
    TOKENIZER,
    TEACHER,
  ),
  "data": (
    DATA,
    HELD_OUT,
    SEQUENCE_LENGTH,
    GENERATE,
    GENERATED_SHARE,
    GENERATE_TEMPERATURE,
  ),
  "training": (
    STEPS,
    BATCH_SIZE,
    ACCUMULATE,
    LOSS,
    OPTIMIZER,
    LEARNING_RATE,
    WARMUP_STEPS,
    WEIGHT_DECAY,
    CLIP_NORM,
    AVERAGE_DECAY,
    DTYPE,
    SEED,
    MESH,
  ),
  "measuring": (EVALUATE_EVERY, HELD_OUT_ROWS, NUM_DRAFT_TOKENS),
}

# What matters where nothing is trained.
PLAIN = {
  flag.name
  for flag in (
    OUTPUT,
    STUDENT,
    KEEP_LAYERS,
    DRAFT_VOCAB,
    CONFIG,
    TOKENIZER,
    DATA,
    STEPS,
    DTYPE,
    SEED,
    MESH,
  )
}
