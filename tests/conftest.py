"""How tests compile: each program once, and fast, not well."""

import datetime
import gc
import os
import shutil
import sys
import tempfile
from importlib.metadata import version

import pytest
from tests import isolation, memory, tables, times
from tests.golden import add_options, begin, running, save_all

os.environ["KERAS_BACKEND"] = "jax"  # before the peer is imported

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
    times.add_options(parser)
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
    config.pluginmanager.register(memory)
    config.pluginmanager.register(times)
    config.pluginmanager.register(tables)
    given = getattr(config, "workerinput", {}).get("compiled")
    if not given:
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

    So do the processes that tests start; see ``users_compilation``.
    """
    if "jax" in sys.modules:  # by the conftest.py of a folder that was asked for alone
        sys.modules["jax"].config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    if QUICK_FLAGS:  # no flags, XLA takes for the name of a file, and ends the process
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_FLAGS}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tells a worker of pytest-xdist where the others keep their programs."""
    node.workerinput["compiled"] = node.config.stash[FOLDER]


def pytest_runtest_setup(item):
    begin(item)


@pytest.fixture(scope="session", autouse=True)
def full_float32():
    """A GPU's products are TF32's otherwise, and compared with NumPy's."""
    import jax

    if jax.default_backend() != "cpu":
        jax.config.update("jax_default_matmul_precision", "float32")


@pytest.fixture
def cpu_only():
    """The test is about programs for a CPU."""
    import jax

    if jax.default_backend() != "cpu":
        pytest.skip("is about programs for a CPU")


@pytest.fixture
def users_compilation(monkeypatch):
    """The test, and what it starts, compile as users' programs do."""
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    flags = os.environ.get("XLA_FLAGS", "").replace(QUICK_FLAGS, "").strip()
    if flags:
        monkeypatch.setenv("XLA_FLAGS", flags)
    else:
        monkeypatch.delenv("XLA_FLAGS", raising=False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def golden():
    """Recorded arrays of Keras: see ``tests/golden.py``."""
    return running()


def pytest_sessionfinish(session):
    if session.config.getoption("--regenerate"):
        save_all()
