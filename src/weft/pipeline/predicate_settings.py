"""The predicates of commands and of Spark jobs: those that the environment names, as a broker's settings do.

`WEFT_PREDICATES` names modules, and `WEFT_TAXONOMY` files for `is_a`, each separated by commas. On a cluster, executors
need both variables, too (`spark.executorEnv.WEFT_PREDICATES`), and the modules.
"""

from __future__ import annotations

import os
from functools import lru_cache

from weft.language.predicate import Predicates
from weft.language.predicate_modules import filter_predicates


def environment_predicates() -> Predicates:
    """What filters may call here. Raises OptionError or FilterError."""
    return _predicates(os.environ.get("WEFT_PREDICATES", ""), os.environ.get("WEFT_TAXONOMY", ""))


@lru_cache(maxsize=4)
def _predicates(modules: str, files: str) -> Predicates:
    named, places = ([each.strip() for each in text.split(",") if each.strip()] for text in (modules, files))
    return filter_predicates(named, places)
