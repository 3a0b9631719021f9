"""A real browser without a window, driven by its own protocol."""

import itertools
import json
import re
import shutil
import subprocess
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    """The path of a browser, or ``None``."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a headless Chromium.

    Args:
        width, height: Of the window.
        dark: Whether the user prefers dark colours.
    """

    def __init__(self, width=1000, height=900, dark=False):
        from websockets.sync.client import connect

        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ]
        flags += [f"--window-size={width},{height}", "--remote-debugging-port=0"]
        flags += [f"--user-data-dir={self._folder.name}"]
        if dark:
            flags.append("--blink-settings=preferredColorScheme=0")
        self._process = subprocess.Popen(
            [find_browser(), *flags, "about:blank"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for line in self._process.stderr:
            if found := re.search(r"ws://(\S+?)/devtools", line):
                break
        self._numbers = itertools.count(1)
        self._events = []
        address = (
            f"ws://{found[1]}/devtools/browser" + line.strip().split("browser")[-1]
        )
        self._connecting = connect(address, max_size=1 << 26)
        self._connection = self._connecting.__enter__()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(f"{domain}.enable")

    _session = None

    def send(self, method, **parameters):
        """The result of a command."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(self._connection.recv(timeout=20))
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]
            self._events.append(answer)

    def open(self, url):
        """Goes to a page."""
        self.send("Page.navigate", url=url)

    def run(self, script):
        """The value of a script, which may be asynchronous."""
        result = self.send(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, condition, seconds=10):
        """Waits until a script is true, and returns its value."""
        return self.run(
            f"""(async () => {{
                const until = Date.now() + {seconds * 1000};
                for (;;) {{
                    const value = {condition};
                    if (value) return value;
                    if (Date.now() > until) throw Error(document.body.innerText);
                    await new Promise((go) => setTimeout(go, 20));
                }}
            }})()"""
        )

    def choose_files(self, selector, *paths):
        """Gives files to a field."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)
        files = list(map(str, paths))
        self.send("DOM.setFileInputFiles", nodeId=node["nodeId"], files=files)

    def picture(self):
        """A picture of the page, as PNG in base64."""
        return self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"]

    def complaints(self):
        """What the browser refused or failed to do, without answers of 4xx."""
        self.run("1")  # so that all that has happened is there
        found = []
        for event in self._events:
            kind, parameters = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"]["text"])
            if kind == "Log.entryAdded" and parameters["entry"]["source"] != "network":
                found.append(parameters["entry"]["text"])
        return found

    def requests(self):
        """The addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._connecting.__exit__(*error)
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()
        self._folder.cleanup()
