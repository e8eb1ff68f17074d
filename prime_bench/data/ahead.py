"""A stage of a pipeline in a thread of its own."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, none of them None, each made in a thread while the one before it is used."""
    source = iter(items)
    with ThreadPoolExecutor(max_workers=1) as pool:
        made = pool.submit(next, source, None)
        while (item := made.result()) is not None:
            made = pool.submit(next, source, None)
            yield item
