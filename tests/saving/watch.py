"""What the interpreter does while it loads a file, how long, and in what memory."""

import json
import os
import sys
import time
import tracemalloc

import exburn
from exburn.errors import ModelFormatError

SECONDS, BYTES = 1.0, 64e6
USUAL = 0.35  # seconds that ``slowness`` takes
WATCHED = ("exec", "compile", "import", "open", "marshal", "pickle", "os", "shutil")
WATCHED += ("socket", "subprocess", "ctypes", "urllib", "http", "webbrowser", "sqlite3")


class Watch:
    """What the interpreter does, as its audit events tell."""

    def __init__(self):
        self.path, self.events, self.on = "", [], False
        sys.addaudithook(self)

    def __call__(self, event, args):
        if (
            self.on
            and event.split(".")[0] in WATCHED
            and not self.harmless(event, args)
        ):
            self.events.append((event, str(args)[:200]))

    def harmless(self, event, args):
        if event in ("os.listdir", "os.scandir"):  # which names are near a missing one
            return True
        if event == "open":
            # JAX looks into its own source for the lines of its errors.
            script = os.path.abspath(sys.argv[0])
            source = str(args[0]).endswith(".py") or args[0] in (sys.argv[0], script)
            return args[0] == self.path or source
        # inspect parses the signature of a builtin; NumPy, a dtype's shape.
        return event == "compile" and args[0][:8] in (b"def foo(", b"(9,)")


def slowness():
    """How many times as long as usual this machine takes just now, while it traces."""
    start = time.process_time()
    json.loads(json.dumps([{"name": str(i), "units": i} for i in range(30_000)]))
    return (time.process_time() - start) / USUAL


def attack(data, path, watch):
    """What is wrong with how a file is refused; an empty list if nothing is."""
    path.write_bytes(data)
    watch.path, watch.events = str(path), []
    wrong = []
    tracemalloc.start()
    start = time.process_time()
    watch.on = True
    try:
        exburn.load_model(path)
        wrong.append("it was loaded")
    except ModelFormatError as error:
        if len(str(error).splitlines()) > 12:
            wrong.append("a long message")
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error}")
    finally:
        watch.on = False
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1] - len(data)
        late = seconds > SECONDS and seconds > SECONDS * slowness()
        tracemalloc.stop()
    if late:
        wrong.append(f"{seconds:.1f} s")
    if peak > BYTES:
        wrong.append(f"{peak / 1e6:.0f} MB")
    return wrong + watch.events
