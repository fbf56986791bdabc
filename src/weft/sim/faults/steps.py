"""All that can happen in a run, by name."""

from __future__ import annotations

from collections.abc import Callable

from weft.sim.faults.client_steps import CLIENT_STEPS, Act
from weft.sim.faults.fault_steps import FAULT_STEPS
from weft.sim.faults.link_steps import LINK_STEPS
from weft.sim.faults.trial_steps import TRIAL_STEPS

STEPS: dict[str, Callable[[Act], None]] = {**CLIENT_STEPS, **FAULT_STEPS, **LINK_STEPS, **TRIAL_STEPS}
