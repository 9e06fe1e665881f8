"""What the plugin changes in vLLM's queues between the engine's processes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloud.verifier.engine import plugin


def test_a_sleeper_soon_looks_for_itself():
    """It loses at most an eighth of what it has waited anyway, and hardly looks when it has been idle for long."""
    assert [plugin.look_after_ms(waited) for waited in (0.0, 0.002, 0.08, 1.0, 60.0)] == [1, 1, 11, 126, 7501]


def test_a_dropped_wake_up_costs_no_seconds(monkeypatch):
    """vLLM's queue drops the wake-up of a message that follows another too closely. Here it drops all of them."""
    broadcast = pytest.importorskip("vllm.distributed.device_communicators.shm_broadcast")
    condition = broadcast.SpinCondition
    for name, before in (("__init__", condition.__init__), ("wait", condition.wait)):
        monkeypatch.setattr(condition, name, before)  # put back afterwards
    defaults = condition.__init__.__defaults__
    monkeypatch.setenv(plugin.VERIFIER_ENV, "1")
    plugin.register()
    plugin.register()  # twice is as once
    queue = reader = None
    try:
        assert condition.__init__.__defaults__ == (plugin.SPIN_S,)
        queue = broadcast.MessageQueue(1, 1)
        with ThreadPoolExecutor(1) as pool:
            joined = pool.submit(broadcast.MessageQueue.create_from_handle, queue.export_handle(), 0)
            reader = joined.result()
            ready = pool.submit(reader.wait_until_ready)
            queue.wait_until_ready()
            ready.result()
            monkeypatch.setattr(queue._spin_condition, "notify", lambda: None)
            asleep = threading.Event()
            poll = reader._spin_condition.poller.poll

            def fall_asleep(timeout):
                asleep.set()
                return poll(timeout=timeout)

            monkeypatch.setattr(reader._spin_condition.poller, "poll", fall_asleep)
            for message in range(5):
                asleep.clear()
                waiting = pool.submit(reader.dequeue, timeout=30)
                asleep.wait()
                queue.enqueue(message)
                assert waiting.result(timeout=2) == message
    finally:
        condition.__init__.__defaults__ = defaults
        for each in (reader, queue):
            if each is not None:
                each.shutdown()
