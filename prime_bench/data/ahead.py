"""A stage of a pipeline in a thread of its own."""

import contextlib
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def ahead(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """The items, none of them None, each made in a thread while the one before it is used.

    When the block ends, by an error too, the thread has ended and a generator is closed.
    """
    source = iter(items)
    try:
        with ThreadPoolExecutor(max_workers=1) as pool:
            yield _made(source, pool)
    finally:
        if isinstance(source, Generator):
            source.close()


def _made(source: Iterator[T], pool: ThreadPoolExecutor) -> Iterator[T]:
    made = pool.submit(next, source, None)
    while (item := made.result()) is not None:
        made = pool.submit(next, source, None)
        yield item
