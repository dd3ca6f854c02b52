"""The campaign in small: calls drawn at random, 2000 rows of them on all back ends together."""

import campaign
import numpy as np
import oracle
import pytest
import random_calls

CASES = {"native": 1400, "xla": 500, "emulated": 100, "gpu": 1400}


def test_some_of_the_campaign(backend):
    list(campaign.campaign(backend.name, cases=CASES[backend.name], seed=0))


def with_a_bit_flipped(array):
    flipped = oracle.bits(array).copy()
    flipped.flat[-1] ^= 1
    return flipped.view(array.dtype)


@pytest.mark.native_only
@pytest.mark.not_emulated
@pytest.mark.parametrize(
    ("spoiled", "message"),
    [(with_a_bit_flipped, "result 0 is wrong in 1 places"), (np.atleast_3d, r"result 0 is \w+\[.*\], not \w+\[.*\]")],
)
def test_a_wrong_answer_is_found(backend, monkeypatch, spoiled, message):
    """And said so that it can be had again."""
    right = random_calls.run

    def wrong(call):
        first, *others = right(call)
        return [spoiled(first), *others]

    monkeypatch.setattr(random_calls, "run", wrong)
    with pytest.raises(
        AssertionError, match=rf"(?s){message}.*campaign\.py --backend {backend.name} --seed 3 --call 0"
    ):
        list(campaign.campaign(backend.name, cases=1, seed=3))
