"""What one process leaves on disk for the next: JAX's persistent compilation cache, and exported programs."""

import json
from dataclasses import dataclass

import fresh_worker
import pytest
from child import run_python


@dataclass(frozen=True)
class Run:
    misses: int  # programs that were not in the cache
    hits: int
    entries: int  # of the cache, afterwards
    differ: list[str]  # programs that gave another answer than their exported form


def run_process(folder, hash_seed):
    # Sets have another order in each process: that must not show in a program.
    done = run_python(fresh_worker.__file__, folder, PYTHONHASHSEED=hash_seed)
    assert done.returncode == 0, done.stderr
    return Run(**json.loads(done.stdout))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two processes, one after the other, that run the same programs."""
    folder = tmp_path_factory.mktemp("fresh")
    return [run_process(folder, seed) for seed in ("1", "2")]


def test_a_second_process_finds_every_program_in_the_cache(runs):
    first, second = runs
    assert first.entries == first.misses >= len(fresh_worker.programs())
    assert (second.misses, second.hits, second.entries) == (0, first.misses + first.hits, first.entries)


def test_exported_programs_run_in_another_process(runs):
    assert runs[1].differ == []
