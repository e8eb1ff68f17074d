"""A stage of a pipeline in a thread of its own."""

import contextlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def ahead(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """The items, none of them None, made in a thread while those before them are used.

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
    # Two, so that neither side waits while the other is between two items.
    made = deque(pool.submit(next, source, None) for _ in range(2))
    while (item := made.popleft().result()) is not None:
        made.append(pool.submit(next, source, None))
        yield item
