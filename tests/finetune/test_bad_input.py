"""Whatever is wrong with the input shows before any training starts, and the error names it."""

import json
from pathlib import Path

import pytest

from softermax.cli import main
from softermax.finetune.data import load_rows, read_squad, read_tsv
from softermax.finetune.run import Run, check_folder, settings
from softermax.finetune.tasks import get_task
from softermax.finetune.train import prepare
from softermax.spec import get_spec


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: no column 'sentence'; cola needs sentence, label"),
        ("sentence\tlabel\n", "no rows"),
        ("sentence\tgold\nA b c.\t1\n", "no column 'label'"),
        ("sentence\tlabel\nA b c.\t2\n", "line 2: label '2'; cola allows 0, 1"),
        ("sentence\tlabel\nA b c.\t1\nA b\n", "line 3: 1 cells, the header has 2"),
    ],
)
def test_a_broken_table_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as error:
        read_tsv(get_task("cola"), write(tmp_path / "dev.tsv", text))
    assert "dev.tsv" in str(error.value)


@pytest.mark.parametrize("label", ["6", "-1", "nan", "high"])
def test_a_regression_label_outside_its_range_is_refused(tmp_path, label):
    path = write(tmp_path / "dev.tsv", f"sentence1\tsentence2\tlabel\na\tb\t{label}\n")
    with pytest.raises(ValueError, match=f"label '{label}'; stsb allows 0 to 5"):
        read_tsv(get_task("stsb"), path)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_bytes(b"sentence\tlabel\nfine\t1\nna\xefve\t0\n")
    with pytest.raises(ValueError, match=r"dev\.tsv, line 3: not UTF-8 \(byte 0xef"):
        read_tsv(get_task("cola"), path)


def test_a_long_row_and_a_carriage_return_are_read_as_they_are(tmp_path):
    path = write(tmp_path / "dev.tsv", f"sentence\tlabel\r\n{'word ' * 50_000}\t1\r\n")
    assert [len(row.texts[0]) for row in read_tsv(get_task("cola"), path)] == [250_000]


def test_quotes_in_a_table_are_plain_characters(tmp_path):
    path = write(tmp_path / "dev.tsv", 'sentence\tlabel\n"Oh" he said "\t1\n')
    assert read_tsv(get_task("cola"), path)[0].texts == ('"Oh" he said "',)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"data":\n[}', "dev.json, line 2: not JSON"),
        ('{"rows": []}', "not a SQuAD v1.1 file .KeyError"),
        ('{"data": []}', "no questions"),
        (
            '{"data": [{"paragraphs": [{"context": "a b", "qas": [{"question": "q"}]}]}]}',
            r"qas\[0\]: .*KeyError",
        ),
    ],
)
def test_a_broken_squad_file_is_refused(tmp_path, document, message):
    with pytest.raises(ValueError, match=message):
        read_squad(write(tmp_path / "dev.json", document))


def test_an_answer_that_is_not_there_is_refused(tmp_path):
    qas = [{"question": "q", "answers": [{"text": "b", "answer_start": 0}]}]
    document = json.dumps({"data": [{"paragraphs": [{"context": "a b", "qas": qas}]}]})
    with pytest.raises(ValueError, match=r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: the answer 'b' is not at 0"):
        read_squad(write(tmp_path / "dev.json", document))


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        load_rows(get_task("rte"), "train", tmp_path / "none", None)
    with pytest.raises(ValueError, match="rte needs it"):
        load_rows(get_task("rte"), "train", tmp_path, None)


def test_offline_without_a_folder_says_what_to_do():
    with pytest.raises(ValueError, match="give --data-dir, or take --task movies"):
        load_rows(get_task("rte"), "train", None, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "wnli"}, "unknown task 'wnli': must be one of squad, rte"),
        ({"arm": "int4"}, "unknown arm 'int4'"),
        ({"preset": "papr"}, "unknown spec 'papr'"),
        ({"batch": 0}, "batch = 0"),
        ({"epochs": -1.0}, "epochs = -1"),
        ({"max_length": 3}, "max_length = 3"),
    ],
)
def test_settings_are_checked_when_a_run_is_described(settings, message):
    with pytest.raises(ValueError, match=message):
        Run(**settings)


def test_an_unknown_model_is_named(tiny_data):
    with pytest.raises(ValueError, match="model 'no-such/model' cannot be loaded"):
        prepare(Run(task="sst2", model="no-such/model"), tiny_data)


def test_fewer_rows_than_a_batch_are_refused(tiny_model, tiny_data):
    with pytest.raises(ValueError, match="8 rows to train on are fewer than a batch of 32"):
        prepare(Run(task="sst2", model=tiny_model, train_rows=8), tiny_data)


def test_a_checkpoint_of_another_spec_is_refused(tmp_path):
    write(tmp_path / "run.json", json.dumps(settings(Run(preset="paper"))))
    check_folder(Run(preset="paper"), tmp_path, resume=True)
    with pytest.raises(ValueError, match="its checkpoint has preset = 'paper', not 'row-scaled'"):
        check_folder(Run(preset="row-scaled"), tmp_path, resume=True)
    with pytest.raises(ValueError, match="nothing to resume"):
        check_folder(Run(), tmp_path / "none", resume=True)


def test_a_spec_file_that_changed_since_the_checkpoint_is_refused(tmp_path):
    path = tmp_path / "mine.json"
    get_spec("paper").save(path)
    write(tmp_path / "run.json", json.dumps(settings(Run(preset=str(path)))))
    get_spec("paper-32").save(path)
    with pytest.raises(ValueError, match="its checkpoint has spec = "):
        check_folder(Run(preset=str(path)), tmp_path, resume=True)


def test_the_command_line_says_it_in_one_line(capsys):
    assert main(["finetune", "--task", "wnli"]) == 2
    assert capsys.readouterr().err.startswith("softermax finetune: unknown task 'wnli'")
