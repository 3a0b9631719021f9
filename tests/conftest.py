"""How tests compile: each program once, and tiny ones fast rather than well."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

os.environ["KERAS_BACKEND"] = "jax"  # before the peer is imported

FOLDER = pytest.StashKey[str]()
#: Folders whose programs are tiny, and run once: compiling them is all that takes time.
TINY = ("errors", "layers", "losses", "metrics", "models", "namespaces")


def pytest_configure(config):
    """Programs that a run has compiled are kept until it is over.

    Equal models are compiled in test after test, by several workers. Python processes
    that tests start know nothing of it, and the user's own cache stays as it is.
    """
    given = getattr(config, "workerinput", {}).get("compiled")
    config.stash[FOLDER] = given or tempfile.mkdtemp(prefix="exburn-tests-")
    if not given:
        config.add_cleanup(
            lambda: shutil.rmtree(config.stash[FOLDER], ignore_errors=True)
        )
    if given or not getattr(config.option, "numprocesses", None):
        import jax

        jax.config.update("jax_compilation_cache_dir", config.stash[FOLDER])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tells a worker of pytest-xdist where the others keep their programs."""
    node.workerinput["compiled"] = node.config.stash[FOLDER]


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(request):
    """Compiles tiny programs fast rather than well."""
    import jax

    parts = Path(request.path).relative_to(Path(__file__).parent).parts
    tiny = parts[0] in TINY
    if tiny:
        jax.config.update("jax_disable_most_optimizations", True)
    yield
    if tiny:
        jax.config.update("jax_disable_most_optimizations", False)
