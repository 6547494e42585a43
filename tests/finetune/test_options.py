"""Wrong options are named before PyTorch is imported: at once, not after many seconds."""

import json
import subprocess
import sys

import pytest

WRONG = {
    "finetune --task wnli": "unknown task 'wnli'",
    "finetune --arm int4": "unknown arm 'int4'",
    "finetune --preset papr": "unknown spec 'papr'",
    "finetune --preset paper+fold+absorbed": "either a fold or +absorbed",
    "finetune --batch 0": "batch = 0",
    "finetune --epochs -1": "epochs = -1",
    "finetune --log-steps 0": "--log-steps 0",
    "finetune --threads 0": "--threads 0",
    "finetune --model no/such/model": "unknown model 'no/such/model'",
    "finetune --task rte --data-dir EMPTY": "rte needs it",
    "finetune --task cola --data-dir BROKEN": "train.tsv, line 3: label '7'",
    "finetune --out EMPTY --resume": "nothing to resume",
    "finetune --data NOWHERE": "--data NOWHERE: no such file or folder",
    "finetune --data my.csv --task rte": "--task: must be left out where --data is given",
    "finetune --label-column stars": "--label-column: is about --data, which is not given",
    "compare EMPTY --batch 0": "--batch 0: must be 1 or more",
    "compare EMPTY --spec papr": "unknown spec 'papr'",
    "compare EMPTY --spec paper --tuned EMPTY": "--spec: must be left out where --tuned is given",
    "compare minilm --tuned EMPTY": "there is no config.json in it",
    "accuracy --seeds 0": "seeds = 0: must be 1 or more",
    "accuracy --tasks wnli": "unknown task 'wnli'",
    "accuracy --recipe three": "unknown recipe 'three': must be one of two-stage, single",
    "accuracy --arms int4": "unknown arm 'int4'",
    "accuracy --presets papr": "unknown spec 'papr'",
    "accuracy --swaps papr": "unknown spec 'papr'",
    "accuracy --until 25:00": "--until 25:00: expected a time like 17:30",
    "accuracy --first-epochs 0": "first stage: epochs = 0",
    "accuracy --products half": "unknown products 'half': must be one of float32, bfloat16",
    "accuracy --recipe single --first-epochs 1": "two-stage only",
    "accuracy --recipe single --choose": "has no stages to choose",
    "accuracy --data-dir NOWHERE": "NOWHERE: no such folder",
    "accuracy --tasks rte --data-dir EMPTY": "rte needs it",
    "accuracy --threads 0": "--threads 0",
    "evaluate EMPTY": "no run.json",
    "evaluate EMPTY --dev-rows 0": "--dev-rows 0",
    "evaluate EMPTY --threads -1": "--threads -1",
    "attention --spec papr": "unknown spec 'papr'",
    "attention --length 1": "--length 1: must be 2 or more",
    "attention --sequences 0": "--sequences 0",
    "attention --plot a.txt": "--plot a.txt: must be a name that ends in",
    "attention --text NOWHERE": "NOWHERE",
    "attention --text LATIN": "line 2: not UTF-8",
    "attention --model a/b/c": "unknown model 'a/b/c'",
    "perplexity --variants papr": "unknown spec 'papr'",
    "perplexity --contexts 0": "--contexts 0",
    "perplexity --tokens 0": "--tokens 0",
    "perplexity --text LATIN": "line 2: not UTF-8",
    "perplexity --threads 0": "--threads 0",
}

CHECK = """
import contextlib, io, json, sys
from softermax.cli import main
found = {}
for line in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(line)
    found[" ".join(line)] = [code, said.getvalue(), [m for m in ("torch", "transformers") if m in sys.modules]]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Exit code, message and heavy modules after each wrong command, all in one fresh process."""
    root = tmp_path_factory.mktemp("options")
    (root / "EMPTY").mkdir()
    broken = root / "BROKEN" / "glue" / "cola"
    broken.mkdir(parents=True)
    (broken / "train.tsv").write_text("sentence\tlabel\nfine\t1\nodd\t7\n")
    (root / "LATIN").write_bytes(b"plain\nna\xefve\n")
    lines = [line.split() for line in WRONG]
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_option_is_refused_before_torch_is_imported(refused, line):
    code, said, heavy = refused[line]
    assert code == 2
    assert WRONG[line] in said
    assert said.startswith(f"softermax {line.split()[0]}: ")
    assert said.count("\n") == 1
    assert not heavy
