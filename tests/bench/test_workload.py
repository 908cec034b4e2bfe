import collections
import json

import pytest

from specdec_jax.bench import workload


def lines(*objects):
  return "\n".join(map(json.dumps, objects)).encode()


def labels(items):
  return [(item.task, item.name, item.text) for item in items]


def test_human_eval_is_read_as_it_is():
  data = lines({"task_id": "HumanEval/3", "prompt": "def f():", "test": "x"})
  items = workload.parse(data, "HumanEval.jsonl")
  assert labels(items) == [("HumanEval", "HumanEval/3", "def f():")]


def test_spec_bench_gives_the_first_turn():
  data = lines({"question_id": 81, "category": "qa", "turns": ["a", "b"]})
  assert labels(workload.parse(data, "question.jsonl")) == [("qa", "81", "a")]


def test_our_own_may_name_a_task():
  data = lines({"prompt": "a", "task": "t"}, {"prompt": "b"})
  assert labels(workload.parse(data, "x/mine.jsonl")) == [
    ("t", "line 1", "a"),
    ("mine", "line 2", "b"),
  ]


def test_plain_text_is_a_prompt_a_line():
  items = workload.parse(b"one\n\ntwo\n", "p.txt")
  assert labels(items) == [("p", "line 1", "one"), ("p", "line 3", "two")]


@pytest.mark.parametrize(
  "second, reason",
  [
    ({"question": "a"}, "expected a key `prompt` or `turns`, got 'question'"),
    ({"prompt": "a", "task": 3}, "`task`: expected text, got a number"),
    ({"turns": ["a"], "category": ""}, "`category`: expected text, got an em"),
    ({"prompt": "a", "task_id": None}, "`task_id`: expected text, got null"),
  ],
)
def test_another_format_names_the_line(second, reason):
  with pytest.raises(ValueError) as error:
    workload.parse(lines({"prompt": "a"}, second), "f.jsonl")
  assert str(error.value).startswith("f.jsonl, line 2: ")
  assert reason in str(error.value)


def test_what_formats_there_are_is_told():
  with pytest.raises(ValueError, match=r"HumanEval .* Spec-Bench"):
    workload.parse(lines({"text": "a"}), "f.jsonl")


def items(**tasks):
  return [
    workload.Item(f"{task} {i}", f"{i}", task, "x")
    for task, count in tasks.items()
    for i in range(count)
  ]


def test_a_limit_takes_evenly_from_all_tasks():
  taken = workload.spread(items(a=80, b=10, c=2), 14)
  counts = collections.Counter(item.task for item in taken)
  assert counts == {"a": 6, "b": 6, "c": 2}
  assert [item.name for item in taken if item.task == "a"] == [
    *("0", "13", "26", "40", "53", "66")
  ]
  assert taken == workload.spread(items(a=80, b=10, c=2), 14)


def test_no_limit_takes_all():
  assert workload.spread(items(a=3), None) == items(a=3)
  assert workload.spread(items(a=3), 5) == items(a=3)


def test_batches_are_of_one_task():
  found = workload.batches(items(a=3, b=2), 2)
  assert list(found) == [[0, 1], [2], [3, 4]]
