"""The search itself: Optuna draws specs, batch by batch; each is judged on few rows, survivors on more.

Nothing that is drawn depends on how long anything took or where it ran. A batch is drawn as a whole before any of it is judged;
results are told in the order of the trials; every trial's sampler is seeded by the search's seed and the trial's number and knows
nothing but what the storage holds. So processes, Ray and a search that was killed and resumed all find the same front.

The storage is an SQLite file. Trials that a killed process left behind unjudged are judged by the next one that starts; a
second process that starts beside the first takes batches of its own: then the order of trials, and with it the front, depends on time.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softermax.cache import key
from softermax.executor import Executor
from softermax.extras import need
from softermax.progress import Progress, silent
from softermax.search.front import Figures, Found, ranks, with_front
from softermax.search.objectives import Error, RecordedRows, golden_error
from softermax.search.silicon_model import Silicon, SiliconModel
from softermax.search.space import Dimension, Point, Space, Value
from softermax.spec import AnySpec, spec_from_dict

BATCH = 20
"""Trials that are drawn together: what can be worked on at a time."""
FIRST_ROWS = 48
"""Rows that every trial is judged on; survivors are judged on `GROWTH` times as many, until those are all."""
GROWTH = 4
RANDOM_TRIALS = 32
"""Drawn evenly, before the sampler models anything."""
_BATCH, _JUDGED = "batch", "judged"
"""Attributes of a trial: which batch it was drawn in, and what was found of it."""


@dataclass(frozen=True)
class Search:
    """What is searched for: one object makes the study's name, so the same search always finds its storage again."""

    space: Space
    rows: RecordedRows
    silicon: SiliconModel
    seed: int = 0
    batch: int = BATCH

    def __post_init__(self) -> None:
        if self.batch < 2:
            raise ValueError(f"batch = {self.batch}: must be 2 or more, for half of it survives")
        if self.seed < 0:
            raise ValueError(f"seed = {self.seed}: must be 0 or more")

    @property
    def name(self) -> str:
        """Of the study, by all that its trials depend on."""
        dimensions = [(d.name, d.values) for d in self.space.dimensions]
        depends = (
            self.space.kind,
            dimensions,
            self.rows.content,
            self.silicon.content,
            self.seed,
            self.batch,
        )
        return key(*depends, sources=("search/engine.py", "search.space", "search.objectives", "golden/"))

    @functools.cached_property
    def rungs(self) -> list[RecordedRows]:
        """Rows of each round of judging, few to all."""
        counts = [FIRST_ROWS]
        while counts[-1] * GROWTH < len(self.rows):
            counts.append(counts[-1] * GROWTH)
        return [*(self.rows.take(count) for count in counts if count < len(self.rows)), self.rows]


def run_search(
    search: Search,
    trials: int,
    storage: Path,
    place: Executor,
    presets: Mapping[str, AnySpec],
    report: Progress = silent,
) -> list[Found]:
    """Draw and judge until the storage holds so many trials, in whole batches; all points that were judged in full, the
    presets among them.

    Presets are drawn first where the space has them, and judged in any case.
    """
    if trials < 1:
        raise ValueError(f"trials = {trials}: must be 1 or more")
    with _opened(search, storage, presets) as study:
        total = -(-trials // search.batch) * search.batch
        while True:
            left = study.unfinished()
            done = len(study.judged())
            if done >= total and not left:
                break
            batch = study.drawn(left, report, done, total)
            _judge_and_tell(study, batch, place, functools.partial(report, min(done, total), total))
        report(total, total, "")
        judged = study.judged()
    return _points(search, judged, presets, place)


@contextlib.contextmanager
def _opened(search: Search, storage: Path, presets: Mapping[str, AnySpec]) -> Iterator[_Study]:
    optuna = need("optuna", "search")
    storage.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(storage.with_suffix(".lock").open("w"))
        is_first = True
        try:
            # Of this process alone: workers that outlive it for a moment do not inherit it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            is_first = False
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # It logs a Ctrl-C that meets it while it gives a connection back, and goes on; what fails it raises.
        logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            study_name=search.name,
            storage=_storage(optuna, storage),
            directions=["minimize"] * 3,
            load_if_exists=True,
        )
        for spec in presets.values() if is_first else ():
            point = search.space.point(spec)
            if point is not None:
                study.enqueue_trial(_parameters(search.space, point), skip_if_exists=True)
        yield _Study(optuna, study, search, "" if is_first else f" of process {os.getpid()}")


@dataclass(frozen=True)
class _Study:
    """Optuna's study, as this search uses it."""

    optuna: Any
    study: Any
    search: Search
    beside: str
    """Empty in the process that holds the storage; only that one resumes, for others' trials may be under way."""

    def trials(self, *states: str) -> list[Any]:
        wanted = tuple(self.optuna.trial.TrialState[state] for state in states) or None
        found: list[Any] = self.study.get_trials(deepcopy=False, states=wanted)
        return found

    def judged(self) -> list[Any]:
        return self.trials("COMPLETE")

    def unfinished(self) -> list[Any]:
        """The trials of a batch that a process left behind when it ended, those already told among them: which of a
        batch survive depends on all of it."""
        running = [] if self.beside else self.trials("RUNNING")
        if not running:
            return []
        named = [trial.user_attrs[_BATCH] for trial in running if _BATCH in trial.user_attrs]
        name = named[0] if named else str(len(self.judged()))
        return [
            trial
            for trial in self.trials("RUNNING", "COMPLETE")
            if trial.user_attrs.get(_BATCH, name if not trial.state.is_finished() else None) == name
        ]

    def drawn(self, begun: Sequence[Any], report: Progress, done: int, total: int) -> list[Drawn]:
        """A whole batch: what was ``begun`` of it and new trials, each a spec that is permitted. What the spec's
        validation refuses is pruned and costs nothing."""
        name = next((t.user_attrs[_BATCH] for t in begun if _BATCH in t.user_attrs), f"{done}{self.beside}")
        batch = [drawn for trial in begun if (drawn := self._resumed(trial, name)) is not None]
        while len(batch) < self.search.batch:
            report(min(done, total), total, f"draws {len(batch)} of {self.search.batch}")
            trial = self.study.ask()
            self._seed(trial.number)  # before its first value: nothing is drawn until then
            drawn = self._spec(trial, name)
            batch += [] if drawn is None else [drawn]
        return batch

    def _resumed(self, trial: Any, name: str) -> Drawn | None:
        if "spec" in trial.user_attrs:
            return trial.number, spec_from_dict(json.loads(trial.user_attrs["spec"]))
        # It ended between two draws of one trial: the same seed draws what is there once more, and then the rest.
        self._seed(trial.number)
        live = self.optuna.trial.Trial(self.study, trial._trial_id)
        for known, distribution in _in_order(self.search.space, trial.distributions):
            together = live._is_fixed_param(known, distribution) or live._is_relative_param(
                known, distribution
            )
            if not (together or distribution.single()):
                self.study.sampler.sample_independent(self.study, trial, known, distribution)
        return self._spec(live, name)

    def _seed(self, number: int) -> None:
        seed = int(np.random.SeedSequence((self.search.seed, number)).generate_state(1)[0])
        self.study.sampler = self.optuna.samplers.TPESampler(
            seed=seed, multivariate=True, n_startup_trials=RANDOM_TRIALS, constant_liar=True
        )

    def _spec(self, trial: Any, batch: str) -> Drawn | None:
        trial.set_user_attr(_BATCH, batch)
        point = {d.name: _suggested(trial, d) for d in self.search.space.dimensions}
        try:
            spec = self.search.space.spec(point)
        except ValueError as error:
            trial.set_user_attr("refused", str(error))
            self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)
            return None
        trial.set_user_attr("spec", spec.to_json())
        return trial.number, spec

    def tell(self, found: Mapping[int, tuple[Found, int]]) -> None:
        """What was found of a batch, in the order of the trials. The storage is read once for all of them: each reading goes
        through everything that it holds."""
        open_trials = {
            trial.number: trial._trial_id for trial in self.trials() if not trial.state.is_finished()
        }
        for number in sorted(set(found) & set(open_trials)):
            point, rows = found[number]
            live = self.optuna.trial.Trial(self.study, open_trials[number])
            live.set_user_attr(_JUDGED, asdict(point.figures) | {"rows": rows})
            self.study.tell(live, point.values)


def _storage(optuna: Any, path: Path) -> Any:
    """The file, which does not wait for the disk at every value that is drawn. A process that is killed loses nothing by that."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": 60}})
    with storage.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def relax(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=NORMAL")

    need("sqlalchemy", "search").event.listen(storage.engine, "connect", relax)
    storage.engine.dispose()  # connections that were made before know nothing of it
    return storage


def _parameters(space: Space, point: Point) -> dict[str, Value]:
    """A point as Optuna keeps it: of numbers that are not one after the other, the position."""
    return {
        d.name: point[d.name] if not d.ordered or _dense(d) else d.values.index(point[d.name])
        for d in space.dimensions
    }


def _in_order(space: Space, distributions: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What is known of a trial, in the order in which it was drawn."""
    return [(d.name, distributions[d.name]) for d in space.dimensions if d.name in distributions]


def _dense(dimension: Dimension) -> bool:
    low, high = dimension.values[0], dimension.values[-1]
    return isinstance(low, int) and isinstance(high, int) and high - low + 1 == len(dimension.values)


def _suggested(trial: Any, dimension: Dimension) -> Value:
    values = dimension.values
    if not dimension.ordered:
        found: Value = trial.suggest_categorical(dimension.name, values)
        return found
    if _dense(dimension):
        return int(trial.suggest_int(dimension.name, values[0], values[-1]))
    return values[int(trial.suggest_int(dimension.name, 0, len(values) - 1))]


Drawn = tuple[int, AnySpec]
"""A trial's number, and its spec."""


def _judge_and_tell(
    study: _Study, batch: Sequence[Drawn], place: Executor, report: Callable[[str], None]
) -> None:
    """Round after round the better half of a batch goes on to more rows. Results are told in the order of the trials."""
    search, specs = study.search, dict(batch)
    silicon = {number: search.silicon.predict(spec, search.rows.columns) for number, spec in batch}
    found: dict[int, tuple[Found, int]] = {}
    alive = sorted(specs)
    for rung in search.rungs:
        note = f"{len(alive)} specs on {len(rung)} rows"
        errors = place.each(
            functools.partial(_errors, rows=rung),
            [(number, specs[number].to_json()) for number in alive],
            lambda done, total, name, note=note: report(note),  # type: ignore[misc]
            str,
        )
        for (number, _), error in errors.items():
            point = Found(_name(number), specs[number], figures_of(error, silicon[number]), trial=number)
            found[number] = point, len(rung)
        rank = ranks([found[number][0].values for number in alive])
        better = sorted(zip(rank, alive, strict=True))[: -(-len(alive) // 2)]
        alive = sorted(number for _, number in better)
    study.tell(found)


def _name(trial: int) -> str:
    return f"trial-{trial}"


def figures_of(error: Error, silicon: Silicon) -> Figures:
    return Figures(l1=error.l1, kl=error.kl, mass=error.mass, **asdict(silicon))


def _errors(item: tuple[int, str], rows: RecordedRows) -> Error:
    return golden_error(spec_from_dict(json.loads(item[1])), rows)


def _points(
    search: Search, judged: Sequence[Any], presets: Mapping[str, AnySpec], place: Executor
) -> list[Found]:
    """Trials that came to the last round, each spec once, and the presets."""
    found: dict[str, Found] = {}
    items = [(n, spec.to_json()) for n, spec in enumerate(presets.values())]
    errors = place.each(functools.partial(_errors, rows=search.rows), items, silent, str)
    for (name, spec), error in zip(presets.items(), errors.values(), strict=True):
        silicon = search.silicon.predict(spec, search.rows.columns)
        found[spec.to_json()] = Found(name, spec, figures_of(error, silicon))
    for trial in judged:
        values = dict(trial.user_attrs[_JUDGED])
        if values.pop("rows") == len(search.rows) and trial.user_attrs["spec"] not in found:
            spec = spec_from_dict(json.loads(trial.user_attrs["spec"]))
            found[trial.user_attrs["spec"]] = Found(
                _name(trial.number), spec, Figures(**values), trial=trial.number
            )
    return with_front(found.values())
