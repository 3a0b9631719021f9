"""How tests compile: each program once, and all but the slow ones fast, not well."""

import datetime
import gc
import os
import shutil
import sys
import tempfile
from importlib.metadata import version

import pytest
from tests import isolation
from tests.golden import add_options, begin, running, save_all

os.environ["KERAS_BACKEND"] = "jax"  # before the peer is imported

ON_REQUEST = {"nightly", "keras"}  # marks of what runs by ``-m`` and that name alone
FOLDER = pytest.StashKey[str]()
MOST_BYTES = 1 << 30  # of compiled programs, some 300 MB of which are of one run
# XLA's former code generator for CPUs takes half the time to compile a tiny program,
# and one thread less than several. Newer versions have no such generator, and end the
# process over a flag that they do not know.
QUICK_FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    " --xla_cpu_enable_concurrency_optimized_scheduler=false"
    if version("jax").startswith("0.10.")
    else ""
)


def pytest_addoption(parser):
    add_options(parser)
    group = parser.getgroup("fuzz", "random programs beside Keras (-m nightly)")
    group.addoption("--fuzz-draws", type=int, default=1000, help="number of programs")
    group.addoption(
        "--fuzz-seed",
        type=int,
        default=datetime.date.today().toordinal(),
        help="what they are drawn by; today's date by default",
    )


def pytest_configure(config):
    """Programs that a run has compiled are kept, for its workers and for later runs.

    Equal models are compiled in test after test. Python processes that tests start
    know nothing of it, and the user's own cache stays as it is.
    """
    if config.option.regenerate and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--regenerate needs one process: leave -n out")
    # Hooks of this file's own are not called for the examples, which lie elsewhere.
    config.pluginmanager.register(isolation)
    given = getattr(config, "workerinput", {}).get("compiled")
    quick = ("not slow", "nightly")
    if not given and any(mark in config.option.markexpr for mark in quick):
        _compile_quickly()
    config.stash[FOLDER] = given or _programs(config)
    if given or not getattr(config.option, "numprocesses", None):
        gc.set_threshold(100_000, 20, 50)  # to look for cycles took a twelfth of a run
        import jax

        jax.config.update("jax_compilation_cache_dir", config.stash[FOLDER])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _programs(config):
    """The folder of compiled programs, beside what pytest itself keeps of its runs."""
    if not hasattr(config, "cache"):  # -p no:cacheprovider
        folder = tempfile.mkdtemp(prefix="exburn-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        return folder
    folder = config.cache.mkdir(f"programs of jax {version('jax')}")
    if sum(entry.stat().st_size for entry in os.scandir(folder)) > MOST_BYTES:
        shutil.rmtree(folder)
    return str(folder)


def _compile_quickly():
    """Most programs are tiny and run once: to compile them is all that takes time.

    Slow tests, examples and notebooks compile as users' programs do, unless they start
    processes in a ``quick_environment``.
    """
    if "jax" in sys.modules:  # by the conftest.py of a folder that was asked for alone
        sys.modules["jax"].config.update("jax_disable_most_optimizations", True)
    os.environ.update(quick_environment())


def quick_environment() -> dict[str, str]:
    """Variables of a process that compiles quickly, beside those that it has."""
    variables = {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {QUICK_FLAGS}".strip(),
    }
    # No flags, XLA takes for the name of a file, and ends the process.
    return {name: value for name, value in variables.items() if value}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tells a worker of pytest-xdist where the others keep their programs."""
    node.workerinput["compiled"] = node.config.stash[FOLDER]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Marks the long ones, and leaves out what runs only when it is asked for."""
    whole = config.getini("testpaths") == config.args
    for item in items:
        if any(value is sys.modules.get("keras", item) for value in _values(item)):
            item.add_marker("keras")  # is about Keras itself, beside a case of ours
        if _is_one_of_many(item):
            item.add_marker("longest")
        if item.get_closest_marker("longest"):
            item.add_marker("long")
    asked = {mark for mark in ON_REQUEST if mark in config.option.markexpr}
    left = [item for item in items if not _marks(item) & ON_REQUEST <= asked]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if _marks(item) & ON_REQUEST <= asked]
    _mark_cases(items, whole)


def _is_one_of_many(item):
    """Tells an example of one of 220 functions of JAX, or a network."""
    doc = getattr(getattr(item, "dtest", None), "docstring", "") or ""
    if item.nodeid.startswith("exburn/ops/") and "with Keras' arguments." in doc:
        return True
    return "(weights=None, input_shape=(96, 96, 3), classes=10)" in doc


def _values(item):
    """What the parameters of a case are."""
    return getattr(getattr(item, "callspec", None), "params", {}).values()


def _marks(item):
    return {mark.name for mark in item.iter_markers()}


def _mark_cases(items, whole):
    """Marks ``@pytest.mark.long_cases(id, …)``, and ``longest_cases`` likewise.

    Their function has quicker ones, too.
    """
    unknown = {}
    for item in items:
        for name in ("long_cases", "longest_cases"):
            for mark in item.iter_markers(name):
                function = _function(item.nodeid)
                missing = unknown.setdefault((function, name), set(mark.args))
                if item.callspec.id in mark.args:
                    missing.discard(item.callspec.id)
                    item.add_marker("long")
                    if name == "longest_cases":
                        item.add_marker("longest")
    unknown = {name: ids for name, ids in unknown.items() if ids}
    if whole and unknown:
        raise pytest.UsageError(f"marks name cases that are not there: {unknown}")


def _function(nodeid):
    return nodeid.partition("[")[0]


def pytest_runtest_setup(item):
    import jax

    begin(item)
    if item.get_closest_marker("cpu") and jax.default_backend() != "cpu":
        pytest.skip("is about programs for a CPU")


@pytest.fixture(scope="session", autouse=True)
def full_float32():
    """A GPU's products are TF32's otherwise, and compared with NumPy's."""
    import jax

    if jax.default_backend() != "cpu":
        jax.config.update("jax_default_matmul_precision", "float32")


@pytest.fixture
def golden():
    """Recorded arrays of Keras: see ``tests/golden.py``."""
    return running()


def pytest_sessionfinish(session):
    if session.config.getoption("--regenerate"):
        save_all()
