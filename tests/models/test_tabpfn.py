"""TabPFN's forward pass: against PyTorch's own layers, with a small checkpoint of random weights."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from softermax.models.tabpfn import HEADS, TabPfn, attention_of

WIDTH, LAYERS, FEATURES, CLASSES = 16, 2, 5, 3


def _network():
    torch.manual_seed(0)
    encoder, y_encoder = torch.nn.Linear(FEATURES, WIDTH), torch.nn.Linear(1, WIDTH)
    layers = [
        torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True
        )
        for _ in range(LAYERS)
    ]
    decoder = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Linear(2 * WIDTH, CLASSES)
    )
    return encoder, y_encoder, torch.nn.ModuleList(layers), decoder


@pytest.fixture
def checkpoint(tmp_path):
    encoder, y_encoder, layers, decoder = _network()
    weights = {}
    parts = {
        "encoder": encoder,
        "y_encoder": y_encoder,
        "transformer_encoder.layers": layers,
        "decoder": decoder,
    }
    for name, part in parts.items():
        weights |= {f"module.{name}.{key}": value for key, value in part.state_dict().items()}
    path = tmp_path / "small.cpkt"
    torch.save((weights, None, {"nhead": HEADS}), path)
    return path


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    return (
        rng.normal(2.0, 3.0, (12, FEATURES)),
        rng.integers(0, CLASSES, 12),
        rng.normal(2.0, 3.0, (7, FEATURES)),
    )


def test_logits_are_those_of_pytorchs_layers_with_a_mask(checkpoint, table):
    known, labels, asked = table
    encoder, y_encoder, layers, decoder = (part.eval() for part in _network())
    both = (np.concatenate((known, asked)) - known.mean(0)) / known.std(0, ddof=1)
    with torch.no_grad():
        x = encoder(torch.from_numpy(both).float())
        x[: len(known)] += y_encoder(torch.from_numpy(labels).float()[:, None])
        # Nobody sees rows without a label.
        hidden = torch.zeros(len(x), len(x), dtype=torch.bool)
        hidden[:, len(known) :] = True
        for layer in layers:
            x = layer(x[None], src_mask=hidden)[0]
        expected = decoder(x[len(known) :])
    found = TabPfn(checkpoint).logits(known, labels, asked, attention_of("exact"))
    torch.testing.assert_close(found, expected)


def test_softermax_takes_the_softmaxs_place(checkpoint, table):
    network = TabPfn(checkpoint)
    exact, ours = (network.logits(*table, attention_of(name)) for name in ("exact", "row-scaled+fold"))
    assert not torch.equal(exact, ours)
    torch.testing.assert_close(exact, ours, atol=0.1, rtol=0)


def test_a_source_archive_holds_the_same_network(checkpoint, table, tmp_path):
    archive = tmp_path / "tabpfn.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(checkpoint, "tabpfn-0.1/tabpfn/models_diff/one.cpkt")
    a, b = (TabPfn(path).logits(*table, attention_of("exact")) for path in (checkpoint, archive))
    assert torch.equal(a, b)


@pytest.mark.parametrize("content", [b"nothing", b""])
def test_another_file_is_refused_by_name(content, tmp_path):
    path = tmp_path / "other.cpkt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.cpkt: not a checkpoint of TabPFN"):
        TabPfn(path)


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was run",))

    path, stream = tmp_path / "harmful.cpkt", io.BytesIO()
    torch.save(({"module.encoder.weight": Harmful()},), stream)
    path.write_bytes(stream.getvalue())
    with pytest.raises(ValueError, match=r"harmful\.cpkt: not a checkpoint"):
        TabPfn(path)


def test_limits_are_named(checkpoint, table):
    known, labels, asked = table
    network = TabPfn(checkpoint)
    wide = np.concatenate((known, known), axis=1)
    with pytest.raises(ValueError, match=r"features = 10: must be at most 5"):
        network.logits(wide, labels, wide, attention_of("exact"))
    with pytest.raises(ValueError, match=r"classes = 8: must be at most 3"):
        network.logits(known, np.full(len(known), 7), asked, attention_of("exact"))
