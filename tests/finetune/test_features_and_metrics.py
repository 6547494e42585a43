"""Official metrics, SQuAD's spans and answers, bucketing."""

import numpy as np
import pytest

from softermax.finetune.data import Question, load_rows
from softermax.finetune.features import (
    Bucketing,
    best_answers,
    collate,
    exact_and_f1,
    make_features,
)
from softermax.finetune.tasks import TASKS, get_task


def test_the_papers_nine_tasks_are_there_with_its_figures():
    paper = [task for task in TASKS.values() if task.paper]
    assert len(paper) == 9
    assert round(sum(t.paper[1] - t.paper[0] for t in paper) / 9, 1) == 0.5


@pytest.mark.parametrize(
    ("name", "predictions", "labels", "expected"),
    [
        ("rte", [0, 1, 1, 0], [0, 1, 0, 0], {"accuracy": 75.0, "f1": 200 / 3}),
        ("mrpc", [1, 1, 0, 0], [1, 1, 1, 0], {"accuracy": 75.0, "f1": 80.0}),
        ("mnli", [0, 1, 2, 2], [0, 1, 2, 1], {"accuracy": 75.0}),
        ("cola", [1, 1, 0, 0], [1, 0, 1, 0], {"matthews": 0.0, "accuracy": 50.0}),
        ("stsb", [1.0, 2.0, 3.0], [0.0, 1.0, 2.0], {"pearson": 100.0, "spearman": 100.0}),
        ("stsb", [1.0, 1.0, 1.0], [0.0, 1.0, 2.0], {"pearson_spearman": 0.0}),
    ],
)
def test_metrics(name, predictions, labels, expected):
    task = get_task(name)
    scores = task.scores(np.array(predictions), np.array(labels))
    for metric, value in expected.items():
        assert scores[metric] == pytest.approx(value)
    assert task.figure(np.array(predictions), np.array(labels)) == pytest.approx(scores[task.metric])


@pytest.mark.parametrize(
    ("answer", "golds", "exact", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1.0, 1.0),
        ("in Paris, France", ["Paris"], 0.0, 0.5),
        ("London", ["Paris", "london"], 1.0, 1.0),
        ("", ["Paris"], 0.0, 0.0),
    ],
)
def test_answers_are_compared_as_squad_does(answer, golds, exact, f1):
    assert exact_and_f1(answer, golds) == (exact, pytest.approx(f1))


def test_squad_windows_cover_long_contexts_and_find_their_answers(tiny_model, tiny_data):
    from transformers import AutoTokenizer

    task, tokenizer = get_task("squad"), AutoTokenizer.from_pretrained(tiny_model)
    rows = load_rows(task, "train", tiny_data, 40)
    features = make_features(task, rows, tokenizer, 40, training=True)
    assert len(features) > len(rows)
    assert max(features.lengths) <= 40
    found = set()
    for feature, span in zip(features.features, features.spans, strict=True):
        start, end = feature["start_positions"], feature["end_positions"]
        if start:
            begin, stop = span.offsets[start][0], span.offsets[end][1]
            assert rows[span.row].context[begin:stop] == rows[span.row].answers[0]
            found.add(span.row)
    assert found == set(range(len(rows)))


def test_the_best_span_over_all_windows_is_the_answer(tiny_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    words = [f"word{i % 40}" for i in range(60)]
    row = Question("what ?", " ".join(words), (words[50],), 0)
    features = make_features(get_task("squad"), [row], tokenizer, 32, training=False)
    starts = np.zeros((len(features), 32))
    ends = np.zeros((len(features), 32))
    last = len(features) - 1
    starts[last, 10], ends[last, 12] = 5.0, 5.0
    ends[last, 9] = 7.0  # ends before it starts: not an answer
    starts[last, 1] = 9.0  # lies in the question: not an answer either
    begin, end = features.spans[last].offsets[10][0], features.spans[last].offsets[12][1]
    assert best_answers(starts, ends, features, [row]) == [row.context[begin:end]]


def test_bucketing_pads_little_and_shows_every_row_once():
    lengths = list(np.random.default_rng(0).integers(5, 120, 1003))
    sampler = Bucketing(lengths, batch=32, seed=1)
    order = list(sampler)
    assert len(order) == len(set(order)) == len(sampler) == 992
    padded = sum(32 * max(lengths[i] for i in order[n : n + 32]) for n in range(0, 992, 32))
    assert padded < 1.1 * sum(lengths[i] for i in order)
    assert order == list(sampler)
    sampler.set_epoch(1)
    assert order != list(sampler)


def test_a_batch_is_padded_to_its_longest_row(tiny_model, tiny_data):
    from transformers import AutoTokenizer

    task, tokenizer = get_task("sst2"), AutoTokenizer.from_pretrained(tiny_model)
    features = make_features(task, load_rows(task, "dev", tiny_data, 8), tokenizer, 64, training=True)
    batch = collate(tokenizer, features.features)
    assert batch["input_ids"].shape == (8, max(features.lengths))
    assert batch["attention_mask"].sum(1).tolist() == features.lengths


def test_a_subset_is_the_same_for_every_run(tiny_data):
    task = get_task("sst2")
    assert load_rows(task, "train", tiny_data, 50) == load_rows(task, "train", tiny_data, 50)
