"""Windows: the newest of each key, and what chains give for a window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lane_world import record_of
from multilane.lanes.chains import Chains
from multilane.lanes.ordering import by_key
from multilane.listeners.window import newest_of_each_key

KEYS = st.lists(st.one_of(st.none(), st.sampled_from("abcdef")), max_size=40)


@given(KEYS)
def test_the_newest_of_each_key_is_handled_and_everything_else_skipped(keys):
    records = [record_of(key, i) for i, key in enumerate(keys)]
    handled, skipped = newest_of_each_key(records)
    assert sorted([*handled, *skipped]) == records
    last = {key: i for i, key in enumerate(keys) if key is not None}
    wanted = [i for i, key in enumerate(keys) if key is None or last[key] == i]
    assert [record.offset for record in handled] == wanted


@given(KEYS, st.integers(1, 10), st.integers(1, 4), st.booleans())
def test_windows_have_each_key_in_order_and_in_one_window_at_a_time(keys, size, at_once, one_each):
    chains = Chains(by_key(), at_once)
    chains.put([record_of(key, i) for i, key in enumerate(keys)], 0.0)
    open_windows: list[list] = []
    order: dict[bytes, list[int]] = {}
    seen: list[int] = []
    while chains.ready or open_windows:
        while chains.ready and len(open_windows) < at_once:
            window = chains.take(size, 0.0, one_each=one_each)
            with_keys = [r.key for r in window if r.key is not None]
            assert not one_each or len(with_keys) == len(set(with_keys))
            in_others = {r.key for other in open_windows for r in other if r.key is not None}
            assert not in_others & {r.key for r in window}
            assert 0 < len(window) <= size
            open_windows.append(window)
        done = open_windows.pop(0)
        for record in done:
            seen.append(record.offset)
            if record.key is not None:
                order.setdefault(record.key, []).append(record.offset)
        chains.release_all(done, 0.0)
    assert sorted(seen) == list(range(len(keys)))
    assert all(offsets == sorted(offsets) for offsets in order.values())
    assert chains.takeable == 0
