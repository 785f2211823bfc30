"""Every parser rejects or accepts damaged inputs without a crash, a hang or a lost document."""

from __future__ import annotations

import pytest

from tests.support.fuzzing.targets import TARGETS
from tests.support.fuzzing.watch import fuzz

#: Each run has the same inputs, so that a change is not blamed for an old defect. `make fuzz` takes another seed, and
#: more inputs.
SEED, INPUTS = 1, 1_000


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_inputs_are_rejected_or_read_completely(target: str) -> None:
    result = fuzz(target, seed=SEED, inputs=INPUTS)
    found = "\n".join(f"{problem.kind}: {problem.input}\n{problem.text}" for problem in result.problems)
    assert not result.problems, f"make fuzz TARGET={target} SEED={SEED}\n{found}"
    assert result.inputs >= INPUTS
