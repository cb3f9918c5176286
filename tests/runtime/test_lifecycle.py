"""The order of a pod's containers, restarts and ends, without any process: time and exits are told, steps come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.runtime import lifecycle
from kyu.runtime.lifecycle import ContainerState, PodState, RestartPolicy, Stop


def main(name: str = "main", policy: RestartPolicy = "Never") -> ContainerState:
    return ContainerState(name, "main", policy)


def init(name: str, policy: RestartPolicy = "Never") -> ContainerState:
    return ContainerState(name, "init", policy)


def sidecar(name: str) -> ContainerState:
    return ContainerState(name, "sidecar", "Always")


def steps(pod: PodState, now: float) -> list[str]:
    """Return the next steps in words, carried out at once."""
    words = []
    for step in lifecycle.next_steps(pod, now).steps:
        match step:
            case lifecycle.Start(container):
                words.append(f"start {container.name}")
                lifecycle.started(container, now)
            case lifecycle.Terminate(container, kill_at):
                words.append(f"terminate {container.name} by {kill_at:g}")
                container.kill_at = kill_at
            case lifecycle.Kill(container):
                words.append(f"kill {container.name}")
                container.killed = True
            case lifecycle.Finish(phase):
                words.append(phase)
    return words


def test_main_containers_start_together_and_all_must_succeed() -> None:
    a, b = main("a"), main("b")
    pod = PodState([a, b], started_at=0)
    assert steps(pod, 0) == ["start a", "start b"]
    assert steps(pod, 1) == []
    lifecycle.exited(a, 0, 2)
    assert steps(pod, 2) == []
    lifecycle.exited(b, 0, 3)
    assert steps(pod, 3) == ["Succeeded"]


def test_one_failed_container_fails_the_pod_when_all_are_done() -> None:
    a, b = main("a"), main("b")
    pod = PodState([a, b], started_at=0)
    steps(pod, 0)
    lifecycle.exited(a, 7, 1)
    assert steps(pod, 1) == []
    lifecycle.exited(b, 0, 2)
    assert steps(pod, 2) == ["Failed"]


def test_init_containers_run_one_after_the_other_and_sidecars_stay() -> None:
    first, proxy, second, work = init("first"), sidecar("proxy"), init("second"), main("work")
    pod = PodState([first, proxy, second, work], started_at=0, grace_seconds=5)
    assert steps(pod, 0) == ["start first"]
    assert steps(pod, 1) == []
    lifecycle.exited(first, 0, 2)
    assert steps(pod, 2) == ["start proxy", "start second"]
    lifecycle.exited(second, 0, 3)
    assert steps(pod, 3) == ["start work"]
    lifecycle.exited(work, 0, 4)
    assert steps(pod, 4) == ["terminate proxy by 9"]
    assert steps(pod, 5) == []
    assert steps(pod, 9) == ["kill proxy"]
    assert steps(pod, 10) == []
    lifecycle.exited(proxy, 137, 9)
    assert steps(pod, 9) == ["Succeeded"]


def test_sidecars_end_in_reverse_order_after_the_main_containers() -> None:
    one, two, work = sidecar("one"), sidecar("two"), main("work")
    pod = PodState([one, two, work], started_at=0)
    assert steps(pod, 0) == ["start one", "start two", "start work"]
    pod.stop = Stop(kill_at=10)
    assert steps(pod, 1) == ["terminate work by 10"]
    lifecycle.exited(work, 0, 2)
    assert steps(pod, 2) == ["terminate two by 10"]
    lifecycle.exited(two, 0, 3)
    assert steps(pod, 3) == ["terminate one by 10"]
    lifecycle.exited(one, 0, 4)
    assert steps(pod, 4) == ["Succeeded"]


def test_a_failed_init_container_fails_the_pod_and_ends_its_sidecars() -> None:
    proxy, first, work = sidecar("proxy"), init("first"), main("work")
    pod = PodState([proxy, first, work], started_at=0, grace_seconds=1)
    assert steps(pod, 0) == ["start proxy", "start first"]
    lifecycle.exited(first, 1, 2)
    assert steps(pod, 2) == ["terminate proxy by 3"]
    lifecycle.exited(proxy, 0, 3)
    assert steps(pod, 3) == ["Failed"]
    assert work.starts == 0


def test_back_off_grows_to_five_minutes_and_starts_anew_after_a_healthy_run() -> None:
    work = main(policy="OnFailure")
    pod = PodState([work], started_at=0)
    now, waits = 0.0, []
    for _ in range(8):
        assert steps(pod, now) == ["start main"]
        lifecycle.exited(work, 1, now)
        waits.append(lifecycle.back_off_seconds(work))
        now += waits[-1]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert steps(pod, now) == ["start main"]
    lifecycle.exited(work, 1, now + lifecycle.HEALTHY_SECONDS)
    assert lifecycle.back_off_seconds(work) == 0


def test_a_waiting_restart_is_woken_in_time() -> None:
    work = main(policy="Always")
    pod = PodState([work], started_at=0)
    for now in (0.0, 1.0):
        steps(pod, now)
        lifecycle.exited(work, 0, now)
    assert lifecycle.next_steps(pod, 2).wake_at == 11
    assert steps(pod, 11) == ["start main"]


@pytest.mark.parametrize(
    ("policy", "exit_code", "after"),
    [
        ("Never", 0, ["Succeeded"]),
        ("Never", 1, ["Failed"]),
        ("OnFailure", 0, ["Succeeded"]),
        ("OnFailure", 1, ["start main"]),
        ("Always", 0, ["start main"]),
    ],
)
def test_restart_policies(policy: RestartPolicy, exit_code: int, after: list[str]) -> None:
    work = main(policy=policy)
    pod = PodState([work], started_at=0)
    steps(pod, 0)
    lifecycle.exited(work, exit_code, 1)
    assert steps(pod, 1) == after


def test_a_container_that_cannot_start_fails_the_pod_whatever_the_policy() -> None:
    broken, other = main("broken", "Always"), main("other", "Always")
    pod = PodState([broken, other], started_at=0, grace_seconds=3)
    steps(pod, 0)
    broken.hopeless = True
    lifecycle.exited(broken, 127, 0)
    assert steps(pod, 0) == ["terminate other by 3"]
    lifecycle.exited(other, 143, 1)
    assert steps(pod, 1) == ["Failed"]


def test_the_deadline_ends_the_pod_and_fails_it() -> None:
    work = main(policy="Always")
    pod = PodState([work], started_at=100, active_deadline_seconds=10, grace_seconds=2)
    assert steps(pod, 100) == ["start main"]
    assert lifecycle.next_steps(pod, 105).wake_at == 110
    assert steps(pod, 110) == ["terminate main by 112"]
    lifecycle.exited(work, 0, 111)
    assert steps(pod, 111) == ["Failed"]
    assert pod.stop is not None
    assert pod.stop.reason == "DeadlineExceeded"


def test_a_second_stop_only_hurries_the_first() -> None:
    work = main()
    pod = PodState([work], started_at=0)
    steps(pod, 0)
    lifecycle.request_stop(pod, Stop(30, "Evicted", "no room", fails=True))
    assert steps(pod, 1) == ["terminate main by 30"]
    lifecycle.request_stop(pod, Stop(60))
    assert steps(pod, 2) == []
    lifecycle.request_stop(pod, Stop(5))
    assert steps(pod, 3) == ["terminate main by 5"]
    assert steps(pod, 5) == ["kill main"]
    assert pod.stop == Stop(5, "Evicted", "no room", fails=True)


def test_a_pod_that_is_stopped_before_it_ran_has_not_succeeded() -> None:
    pod = PodState([init("first"), main()], started_at=0, stop=Stop(kill_at=0))
    assert steps(pod, 0) == ["Failed"]


@st.composite
def pods(draw: st.DrawFn) -> PodState:
    policy = draw(st.sampled_from(["Always", "OnFailure", "Never"]))
    first = draw(st.lists(st.sampled_from(["init", "sidecar"]), max_size=3))
    containers = [
        ContainerState(f"c{n}", role, "Always" if role == "sidecar" else "OnFailure" if policy == "Always" else policy)
        for n, role in enumerate(first)
    ]
    containers += [main(f"m{n}", policy) for n in range(draw(st.integers(1, 3)))]
    deadline = draw(st.none() | st.integers(1, 100))
    return PodState(containers, started_at=0, active_deadline_seconds=deadline, grace_seconds=draw(st.integers(0, 20)))


def steps_with_kills(pod: PodState, now: float) -> list[str]:
    """Let the containers ignore the first signal; the second one works."""
    words = steps(pod, now)
    for container in pod.containers:
        if f"kill {container.name}" in words:
            lifecycle.exited(container, 137, now)
    return words


@given(pods(), st.data())
def test_whatever_happens_a_stopped_pod_ends_within_its_grace_and_starts_nothing(
    pod: PodState, data: st.DataObject
) -> None:
    now = 0.0
    for _ in range(data.draw(st.integers(0, 8))):
        steps_with_kills(pod, now)
        for container in pod.containers:
            if container.state == "running" and data.draw(st.booleans()):
                lifecycle.exited(container, data.draw(st.integers(0, 2)), now)
        now += data.draw(st.integers(0, 30))
    lifecycle.request_stop(pod, Stop(kill_at=now + 5))
    words: list[str] = []
    for _ in range(3 * len(pod.containers) + 3):
        words += steps_with_kills(pod, now)
        now = lifecycle.next_steps(pod, now).wake_at or now
    assert not any(word.startswith("start") for word in words)
    assert {"Succeeded", "Failed"} & set(words)
    assert all(container.state != "running" for container in pod.containers)


@given(pods())
def test_a_container_runs_once_at_a_time_and_init_containers_never_beside_mains(pod: PodState) -> None:
    now = 0.0
    for _ in range(20):
        for step in lifecycle.next_steps(pod, now).steps:
            if isinstance(step, lifecycle.Start):
                assert step.container.state != "running"
        steps(pod, now)
        running = {container.role for container in pod.containers if container.state == "running"}
        assert not {"init", "main"} <= running
        for container in pod.containers:
            if container.state == "running" and container.role == "init":
                lifecycle.exited(container, int(container.starts < 2), now)
        now += 50
