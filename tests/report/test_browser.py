"""The page in a real browser: both themes, on a desk and on a phone."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from llpkit.report import write_page

WIDTHS = {"desk": 1280, "phone": 390}
THEMES = {"dark": 0, "light": 1}
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=2400,2000",
    "--virtual-time-budget=20000",
    "--dump-dom",
]

# Runs inside a copy of the page and reports to the page around it what a reader would see.
PROBE = """
<script>
addEventListener("load", async () => {
  const all = (what) => [...document.querySelectorAll(what)];
  const box = (e) => e.getBoundingClientRect();
  const seen = (e) => e.checkVisibility() && box(e).height > 0;
  await Promise.all(all("img").map((e) => e.decode().catch(() => null)));
  const numbers = all("td > span:last-child").filter(seen);
  const readings = () => all(".bags .of").filter(seen).map((e) => e.className);
  const answer = {
    frame: FRAME,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    scroll: document.documentElement.scrollWidth,
    rows: all("tbody th").filter(seen).map((e) => e.textContent),
    cells: numbers.length,
    cut: numbers.filter((e) => box(e).right > innerWidth || box(e).left < 0)
      .map((e) => e.textContent),
    wrapped: all("td.number > span:last-child").filter((e) => box(e).height > 2.6 * 16).length,
    labelled: all("td .head").filter(seen).length,
    images: all("img").length,
    decoded: all("img").filter((e) => e.naturalWidth > 0).length,
    plots: all("svg.plot").filter(seen).length,
    letters: Math.min(...all("svg.plot text").map((e) => box(e).height)),
    requests: performance.getEntriesByType("resource")
      .map((e) => e.name).filter((name) => !name.startsWith("data:")),
    readings: readings(),
  };
  all(".wall > label")[1]?.click();
  answer.switched = readings();
  parent.postMessage(answer, "*");
});
</script>
"""
AROUND = """<!doctype html><style>iframe { border: 0; height: 6000px; }</style>
%s<pre id="answers"></pre>
<script>
addEventListener("message", (event) => {
  answers.textContent += JSON.stringify(event.data) + "\\n";
});
</script>
"""


def browser() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing = f"no browser: none of {', '.join(NAMES)} is installed"
        if os.environ.get("LLPKIT_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{missing}, and LLPKIT_REQUIRE_BROWSER=1")
        pytest.skip(f"{missing}; on Debian: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def folder(full, tmp_path_factory) -> Path:
    """The page and a broken copy, in frames that answer questions."""
    browser()
    folder = tmp_path_factory.mktemp("browser")
    text = write_page(full, folder / "report.html").read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    wide = '<main><div style="width: 900px">wide</div><img src="data:,">'
    pages = {"desk": text, "phone": text, "broken": text.replace("<main>", wide)}
    frames = ""
    for name, content in pages.items():
        probe = PROBE.replace("FRAME", json.dumps(name))
        content = content.replace("</body>", probe + "</body>")
        (folder / f"{name}.html").write_text(content, encoding="utf-8")
        width = WIDTHS.get(name, WIDTHS["phone"])
        frames += f'<iframe src="{name}.html" style="width: {width}px"></iframe>'
    (folder / "all.html").write_text(AROUND % frames, encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=list(THEMES))
def answers(folder, request) -> dict[str, dict]:
    """What each frame reports. A browser that dies, or is too slow, is started again."""
    for attempt in range(3):
        command = [
            browser(),
            *FLAGS,
            f"--user-data-dir={folder / f'profile-{request.param}-{attempt}'}",
            f"--blink-settings=preferredColorScheme={THEMES[request.param]}",
            (folder / "all.html").as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        lines = re.findall(r'<pre id="answers">(.*?)</pre>', done.stdout, re.S)
        found = [json.loads(line) for line in html.unescape("".join(lines)).split("\n") if line]
        if len(found) == 3:
            break
    assert {answer["frame"] for answer in found} == {"desk", "phone", "broken"}, done.stderr[-2000:]
    assert {answer["dark"] for answer in found} == {request.param == "dark"}
    return {answer["frame"]: answer for answer in found}


def test_nothing_is_cut_off(answers, wall):
    for name, width in WIDTHS.items():
        answer = answers[name]
        assert answer["scroll"] <= width
        assert answer["rows"] == ["mle", "direct", "dllp", "llp-gan", "supervised"]
        assert answer["cells"] == 5 * 9
        assert answer["cut"] == []
        assert answer["wrapped"] == 0
        assert answer["plots"] == 1 + 5
        assert answer["letters"] >= 9
        assert answer["images"] > sum(len(bag.instances) for bag in wall.bags)
        assert answer["decoded"] == answer["images"]
        assert answer["requests"] == []
    assert answers["desk"]["labelled"] == 0  # the header row is enough
    assert answers["phone"]["labelled"] == 5 * 9
    # A page that is cut off, or lacks an image, would be noticed.
    assert answers["broken"]["scroll"] > WIDTHS["phone"]
    assert answers["broken"]["decoded"] == answers["broken"]["images"] - 1


def test_the_wall_shows_one_method_and_switches_without_script(answers):
    for name in WIDTHS:
        before, after = answers[name]["readings"], answers[name]["switched"]
        assert before
        assert all(" of-0" in reading for reading in before)
        assert len(after) == len(before)
        assert all(" of-1" in reading for reading in after)
