"""Two processes: what they tell each other, and how they end."""

import signal

import pytest
from tests.distribution.processes import Processes, run


def end(script, **options):
    with Processes(script, **options) as started:
        return started.wait()


def test_processes_tell_each_other():
    first, second = run(
        """
        told = processes.gather({"number": NUMBER, "rows": np.arange(NUMBER + 1)})
        long = processes.gather("x" * (1000 * (NUMBER + 1)))
        report(
            numbers=[one["number"] for one in told],
            rows=[one["rows"].tolist() for one in told],
            long=[len(text) for text in long],
            broadcast=processes.broadcast([NUMBER, "a", None]),
            one_says=processes.agree_any(NUMBER == 1),
            none_says=processes.agree_any(False),
            least=processes.agree_min(5 - NUMBER),
            seed=joining.shared_seed(),
        )
        report(count=processes.count(), index=processes.index())
        report(main=processes.is_main())
        processes.barrier("end")
        joining.initialize()  # again, with the same values
        """
    )
    assert [first.pop("index"), second.pop("index")] == [0, 1]
    assert [first.pop("main"), second.pop("main")] == [True, False]
    assert first == second
    seed = first.pop("seed")
    assert isinstance(seed, int)
    assert first == {
        "numbers": [0, 1],
        "rows": [[0], [0, 1]],
        "long": [1000, 2000],
        "broadcast": [0, "a", None],
        "one_says": True,
        "none_says": False,
        "least": 4,
        "count": 2,
    }


def slurm(number, port):
    return {
        "SLURM_JOB_ID": "1234",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(number),
        "JAX_COORDINATOR_PORT": str(port),
    }


def open_mpi(number, port):
    return {
        "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
        "JAX_COORDINATOR_PORT": str(port),
    }


def partly(number, port):
    """The address by JAX' variable, the rest by Keras'."""
    return {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
        "KERAS_DISTRIBUTION_PROCESS_ID": str(number),
    }


@pytest.mark.parametrize("cluster", [slurm, open_mpi, partly])
def test_a_cluster_is_found_by_its_variables(cluster):
    found = run("report(told=processes.gather(NUMBER))", cluster=cluster)
    assert [values["told"] for values in found] == [[0, 1], [0, 1]]


def test_a_model_of_one_process_asks_no_other(tmp_path):
    found = run(
        """
        import time
        import exburn as keras

        x = np.random.default_rng(NUMBER).normal(size=(64 + 64 * NUMBER, 4))
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse", seed=0)
        place = os.path.join(FOLDER, str(NUMBER))
        files = keras.callbacks.ModelCheckpoint(place + "-{epoch}.exburn")
        for _ in range(1 + NUMBER):
            model.fit(x, x[:, :2], epochs=2, verbose=0, callbacks=[files])
        model.save(place + ".exburn")
        report(saved=[name for name in os.listdir(FOLDER) if name[0] == str(NUMBER)])
        try:
            runs = keras.callbacks.ModelCheckpoint(place)
            model.fit(x, x[:, :2], verbose=0, callbacks=[runs])
            report(runs=len(os.listdir(place)))
        except Exception as error:
            report(runs=f"{type(error).__name__}: {error}")
        """,
        folder=tmp_path,
    )
    assert [len(values["saved"]) for values in found] == [3, 3]
    assert found[0]["runs"] == 1
    assert found[1]["runs"].startswith("CheckpointError: checkpoint: of several")


def test_one_that_nobody_joins_says_so_and_ends():
    [here] = end(
        """
        from tests.distribution.processes import free_port

        joining.initialize(f"127.0.0.1:{free_port()}", 2, 1, timeout=2)
        """,
        count=1,
    )
    assert here.code == 75 and "did not find each other" in here.errors
    assert "process 1 of 2 at 127.0.0.1" in here.errors


def test_a_random_seed_is_that_of_all():
    first, second = run(
        "from exburn.core.random_keys import global_seed\nreport(s=global_seed())"
    )
    assert first == second


def test_an_error_in_one_ends_the_other():
    there, here = end("assert NUMBER != 1, 'bad row'\nprocesses.barrier('x')")[::-1]
    assert here.code == there.code == 1
    assert "ProcessError: distribution: process 1 of 2 failed" in here.errors
    assert "there: AssertionError: bad row" in here.errors


def test_one_that_leaves_early_is_named():
    here = end("if NUMBER == 1: raise SystemExit\nprocesses.barrier('x')")[0]
    assert here.code == 1 and "process 1 of 2 has ended" in here.errors


def test_other_places_are_told_apart():
    for ended in end("processes.barrier(['here', 'there'][NUMBER])"):
        assert ended.code == 1 and "process 1: there" in ended.errors


def test_a_process_that_waits_for_a_slow_one_does_not_give_up():
    run("import time\nif NUMBER: time.sleep(7)\nprocesses.barrier('x')", heartbeat=5)


KILLED = """
import os, time
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("d",), axis_types=(AxisType.Auto,))
x = jax.make_array_from_callback(
    (8,), NamedSharding(mesh, P("d")), lambda index: np.arange(8.0)[index]
)
total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))
total(x).block_until_ready()
report(ready=True)
while NUMBER == 1:
    time.sleep(1)
try:
    {wait}
finally:
    print("finally")
"""


@pytest.mark.parametrize(
    ("wait", "reached"),
    [
        ("processes.barrier('x')", True),
        ("liveness.await_ready(total(x))", True),
        ("total(x).block_until_ready()", None),
    ],
)
def test_a_killed_process_is_named_by_the_others(wait, reached):
    with Processes(KILLED.format(wait=wait), heartbeat=5) as started:
        started.wait_for(1, "ready")
        started.send(1, signal.SIGKILL)
        here, there = started.wait()
    assert (here.code, there.code) == (75, -9)
    assert "ProcessError: distribution: process 1 of 2 is lost" in here.errors
    assert reached is None or ("finally" in here.output) == reached
