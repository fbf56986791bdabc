"""Many filters as one subscription for asyncio: each event comes once, and says which of the filters it matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType

from weft.client.async_subscription import Subscription
from weft.client.engine import ClientEngine
from weft.client.options import subscription_text
from weft.client.subscription import SubscriptionOptions
from weft.client.subscription_handle import Label, of_filter
from weft.errors import FilterError, OptionError
from weft.language.any_filter import AnyFilter
from weft.model.notebook import html_table
from weft.model.rate import Rate

_SHOWN = 20  # filters in a notebook

ManyFilters = Mapping[str, AnyFilter] | Iterable[AnyFilter]


def labelled_texts(filters: ManyFilters, rate: str | Rate | None) -> dict[Label, str]:
    """Filters as they are sent, by their names or positions. Raises OptionError, and FilterError that names the filter.

    >>> labelled_texts({"strong": "magnitude >= 5"}, None), labelled_texts(["x > 1", "x > 2"], None)
    ({'strong': 'magnitude >= 5'}, {0: 'x > 1', 1: 'x > 2'})
    """
    if isinstance(filters, (str, bytes)) or not isinstance(filters, Iterable):
        raise OptionError("give a mapping from names to filters, or a list of filters; for one filter use subscribe()")
    given: Iterable[tuple[Label, AnyFilter]]
    given = filters.items() if isinstance(filters, Mapping) else enumerate(filters)
    texts: dict[Label, str] = {}
    for position, (label, each) in enumerate(given):
        if isinstance(filters, Mapping) and not isinstance(label, str):
            raise OptionError(f"the names of filters are strings, not {label!r}")
        try:
            texts[label] = subscription_text(each, rate)
        except FilterError as error:
            raise of_filter(error, position, label) from None
    if not texts:
        raise OptionError("no filter is given")
    return texts


def _count(texts: dict[Label, str]) -> str:
    return f"{len(texts):,} filter{'s' * (len(texts) != 1)}"


class SubscriptionSet(Subscription):
    """Events that match any of several filters; see `Client.subscribe_many`. It is iterated with `async for`.

    >>> import asyncio
    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, local.connect() as client:
    ...         async with client.subscribe_many({"large": "n > 9", "dozen": "n = 12"}) as found:
    ...             await client.publish({"n": 12})
    ...             return (await anext(found)).matched
    >>> asyncio.run(main())
    ('large', 'dozen')
    """

    _is_many = True

    def __init__(self, engine: ClientEngine, texts: dict[Label, str], name: str, options: SubscriptionOptions) -> None:
        super().__init__(engine, _count(texts), name, options)
        self._labelled = texts

    def _texts(self) -> Mapping[Label, str]:
        return self._labelled

    def __repr__(self) -> str:
        return f"<weft.SubscriptionSet{self._shown}>"

    def _repr_html_(self) -> str:
        caption = f"weft.SubscriptionSet{self._shown}"
        shown = [*islice(self._labelled.items(), _SHOWN)]
        return html_table(caption, ("name", "filter"), shown, len(self._labelled) - len(shown))

    @property
    def filters(self) -> Mapping[Label, str]:
        """The filters, by their names, or by their positions if they were given as a list. Cost: O(1).

        >>> from weft import connect
        >>> dict(connect().subscribe_many({"large": "n > 9"}).filters)
        {'large': 'n > 9'}
        """
        return MappingProxyType(self._labelled)

    async def replace(self, filters: ManyFilters, *, rate: str | Rate | None = None) -> None:  # type: ignore[override]
        """Have these filters from now on, and no others.

        Filters that are the same go on without a gap; one that changes under its name changes at an exact event. The
        others begin before those that are left out end. If the broker refuses one, the error names it, and the
        subscription goes on with the filters that it had.

        Cost: one round trip and one commit, whatever their number; O(filters).

        >>> import asyncio
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         found = await client.subscribe_many({"low": "n < 5", "high": "n > 50"})
        ...         await found.replace({"low": "n < 10", "eight": "n = 8"})
        ...         await client.publish_many({"n": n} for n in (99, 8))
        ...         event = await anext(found)
        ...         return event["n"], event.matched
        >>> asyncio.run(main())
        (8, ('low', 'eight'))
        """
        texts = labelled_texts(filters, rate)
        handle = await self._open()
        await self._engine.hold(handle, texts)
        self._labelled, self._filter = texts, _count(texts)
