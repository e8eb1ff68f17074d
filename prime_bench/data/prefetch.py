"""Compute the next items of an iterable in a thread while the current one is in use."""

import contextlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def prefetch(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """Iterate over `items`, up to two of which are computed in advance in a thread.

    No item may be None. When the block ends, also by an exception, the thread has ended; if `items`
    is a generator, it is closed.
    """
    source = iter(items)
    try:
        with ThreadPoolExecutor(max_workers=1) as pool:
            yield _prefetched(source, pool)
    finally:
        if isinstance(source, Generator):
            source.close()


def _prefetched(source: Iterator[T], pool: ThreadPoolExecutor) -> Iterator[T]:
    # Two, so that neither side waits while the other is between two items.
    waiting = deque(pool.submit(next, source, None) for _ in range(2))
    while (item := waiting.popleft().result()) is not None:
        waiting.append(pool.submit(next, source, None))
        yield item
