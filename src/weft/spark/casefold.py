"""Case folding on Spark. Every text folds as `str.casefold` folds it; Spark's own `lower` is another function.

No Python runs on the executors: characters that fold to one other are translated, and the hundred that fold to several
are replaced one after another, in texts that have any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.language.folding import folding_table

if TYPE_CHECKING:
    from pyspark.sql import Column


def casefold(column: Column) -> Column:
    """A Column of strings, folded. NULL stays NULL."""
    from pyspark.sql import functions as sf

    table = list(folding_table())
    single = [(sign, folded) for sign, folded in table if len(folded) == 1]
    several = [(sign, folded) for sign, folded in table if len(folded) > 1]
    plain = sf.translate(column, "".join(sign for sign, _ in single), "".join(folded for _, folded in single))
    pairs = sf.array(*(sf.struct(sf.lit(sign).alias("sign"), sf.lit(to).alias("folded")) for sign, to in several))
    whole = sf.aggregate(pairs, plain, lambda text, pair: sf.replace(text, pair["sign"], pair["folded"]))
    return sf.when(plain.rlike(f"[{''.join(sign for sign, _ in several)}]"), whole).otherwise(plain)
