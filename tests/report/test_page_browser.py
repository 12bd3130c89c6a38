"""The page in a real browser: both themes, a desk's width and a phone's."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from llpkit.report import write_page

DESK, PHONE = 1280, 360
THEMES = {"dark": 0, "light": 1}
BACKGROUND = {"dark": (0x13, 0x16, 0x19), "light": (0xFB, 0xFB, 0xF9)}
MLE = {"dark": (0x62, 0xB3, 0xFF), "light": (0x0A, 0x5C, 0xAD)}
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
]

# Runs inside a copy of the page and tells the page around it what a reader would see.
PROBE = """
<script>
addEventListener("load", async () => {
  const all = (what) => [...document.querySelectorAll(what)];
  const seen = (e) => e.checkVisibility() && e.getBoundingClientRect().height > 0;
  const texts = (what) => all(what).filter(seen).map((e) => e.textContent.trim());
  await Promise.all(all("img").map((e) => e.decode().catch(() => null)));
  const root = document.documentElement;
  const answer = {
    frame: FRAME,
    width: innerWidth,
    scroll: root.scrollWidth,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    images: all("img").length,
    decoded: all("img").filter((e) => e.naturalWidth > 0).length,
    crisp: all("img").every((e) => getComputedStyle(e).imageRendering === "pixelated"),
    methods: texts("table.summary tbody th"),
    cells: texts("table.summary tbody td").length,
    table: all(".scroll").map((e) => [e.scrollWidth, e.clientWidth, getComputedStyle(e).overflowX]),
    headings: texts("h1, h2"),
    labels: texts("svg.plot text"),
    plots: all("svg.plot").filter(seen).map((e) => e.getBoundingClientRect().width),
    sizes: all("svg.plot text").map((e) => e.getBoundingClientRect().height),
    ink: all("svg.plot text").slice(0, 1).map((e) => getComputedStyle(e).fill),
    readings: all(".bags .of").filter(seen).map((e) => e.className),
    marks: texts(".bags .mark"),
    requests: performance.getEntriesByType("resource")
      .map((e) => e.name).filter((name) => !name.startsWith("data:")),
  };
  const other = document.getElementById("show-1");
  if (other) {
    other.click();
    answer.switched = all(".bags .of").filter(seen).map((e) => e.className);
  }
  parent.postMessage(answer, "*");
});
</script>
"""

AROUND = """<!doctype html>
<style>
:root { color-scheme: light dark; } body { margin: 0; display: flex; align-items: start; }
iframe { border: 0; height: 6000px; flex: none; }
</style>
%s
<pre id="answers"></pre>
<script>
addEventListener("message", (event) => {
  answers.textContent += JSON.stringify(event.data) + "\\n";
});
</script>
"""


def browser() -> str:
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    told = f"no browser: none of {', '.join(NAMES)} is installed"
    if os.environ.get("LLPKIT_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{told}, and LLPKIT_REQUIRE_BROWSER=1")
    pytest.skip(f"{told}; on Debian: apt-get install chromium")


def look(folder: Path, theme: str, page: Path, *action: str) -> str:
    """What the browser prints. A browser that dies, as it may at its start, is started again."""
    for _ in range(3):
        done = start(folder, theme, page, *action)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def told(folder: Path, theme: str, page: Path) -> dict[str, dict]:
    """What the three frames of a page answer, by their names."""
    action = ("--virtual-time-budget=20000", "--dump-dom")
    for _ in range(3):  # the browser's clock may run out before a frame has answered
        dom = look(folder, theme, page, *action)
        lines = html.unescape(re.search(r'<pre id="answers">(.*?)</pre>', dom, re.S)[1])
        found = [json.loads(line) for line in lines.split("\n") if line]
        if len(found) == 3:
            break
    assert {answer["frame"] for answer in found} == {"desk", "phone", "broken"}
    assert {answer["dark"] for answer in found} == {theme == "dark"}
    return {answer["frame"]: answer for answer in found}


def start(folder: Path, theme: str, page: Path, *action: str) -> subprocess.CompletedProcess:
    profile = folder / f"profile-{theme}-{len(list(folder.iterdir()))}"
    command = [
        browser(),
        *FLAGS,
        f"--user-data-dir={profile}",
        f"--blink-settings=preferredColorScheme={THEMES[theme]}",
        f"--window-size={DESK + PHONE},2000",
        *action,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


@pytest.fixture(scope="module")
def folder(demo, tmp_path_factory) -> Path:
    """The page, copies of it that answer questions, and a broken copy."""
    browser()
    folder = tmp_path_factory.mktemp("browser")
    text = write_page(demo, folder / "report.html").read_text(encoding="utf-8")
    plain, answering = "", ""
    broken = text.replace("<main>", '<main><div style="width: 900px">wide</div><img src="data:,">')
    for name, width, content in (
        ("desk", DESK, text),
        ("phone", PHONE, text),
        ("broken", PHONE, broken),
    ):
        probe = PROBE.replace("FRAME", json.dumps(name))
        content = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", content)
        content = content.replace("</body>", probe + "</body>")
        (folder / f"{name}.html").write_text(content, encoding="utf-8")
        answering += f'<iframe src="{name}.html" style="width: {width}px"></iframe>'
        if name != "broken":  # the pictures are of the page itself, its security policy included
            plain += f'<iframe src="report.html" style="width: {width}px"></iframe>'
    (folder / "answering.html").write_text(AROUND % answering, encoding="utf-8")
    (folder / "plain.html").write_text(AROUND % plain, encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=list(THEMES))
def theme(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def answers(folder, theme) -> dict[str, dict]:
    return told(folder, theme, folder / "answering.html")


@pytest.fixture(scope="module")
def picture(folder, theme) -> np.ndarray:
    path = folder / f"{theme}.png"
    look(folder, theme, folder / "plain.html", f"--screenshot={path}")
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def test_page_shows_what_it_should(answers, theme, demo):
    for name, width in (("desk", DESK), ("phone", PHONE)):
        answer = answers[name]
        assert answer["width"] == width
        assert answer["dark"] == (theme == "dark")
        assert answer["methods"] == ["mle", "direct", "dllp", "llp-gan", "supervised"]
        assert answer["cells"] == 5 * 7
        assert answer["headings"][0] == demo.title
        assert {"Learning curves", "Time", "Calibration", "A wall of bags"} <= set(
            answer["headings"]
        )
        assert {"mle", "supervised", "seconds of training", "predicted"} <= set(answer["labels"])
        assert len(answer["plots"]) == 4 + 2 + 5
        assert answer["requests"] == []


def test_page_never_scrolls_sideways(answers):
    for name, width in (("desk", DESK), ("phone", PHONE)):
        assert answers[name]["scroll"] <= width
        [(_, box, overflow)] = answers[name]["table"]
        assert box < width
        assert overflow == "auto"
    assert answers["phone"]["table"][0][0] > answers["phone"]["table"][0][1]  # it scrolls inside
    assert answers["desk"]["table"][0][0] == answers["desk"]["table"][0][1]
    assert answers["broken"]["scroll"] > PHONE  # so that a page that scrolls would be seen


def test_every_image_is_decoded_and_crisp(answers, demo):
    shown = sum(len(bag.instances) for bag in demo.wall["mle"])
    for name in ("desk", "phone"):
        assert answers[name]["images"] > shown  # the wall, and the example three times
        assert answers[name]["decoded"] == answers[name]["images"]
        assert answers[name]["crisp"]
    assert answers["broken"]["decoded"] == answers["broken"]["images"] - 1


def test_text_in_figures_can_be_read(answers, theme):
    for name in ("desk", "phone"):
        assert min(answers[name]["sizes"]) >= 9
        [ink] = answers[name]["ink"]
        brightness = sum(map(int, re.findall(r"\d+", ink)[:3])) / 3
        assert brightness > 140 if theme == "dark" else brightness < 110


def test_wall_shows_one_method_and_switches_without_script(answers):
    for name in ("desk", "phone"):
        before, after = answers[name]["readings"], answers[name]["switched"]
        assert before
        assert all(" of-0" in reading for reading in before)
        assert len(after) == len(before)
        assert all(" of-1" in reading for reading in after)
        assert {"✓right", "✗wrong"} >= set(answers[name]["marks"]) != set()


def test_picture_has_the_theme_the_images_and_the_colours(picture, theme):
    assert picture.shape == (2000, DESK + PHONE, 3)
    for left, width in ((0, DESK), (DESK, PHONE)):
        part = picture[:, left : left + width]
        for corner in (part[2, 2], part[2, -3], part[1200, 2]):
            assert np.abs(corner - BACKGROUND[theme]).max() <= 2
        strong = np.abs(part - MLE[theme]).max(2) <= 12
        assert strong.sum() > 200  # bars of probability, the steps' circles
        top = part[:900]
        assert (top.max(2) == 0).sum() > 1000  # black of the digits' images
        assert len(np.unique(top @ (1 << 16, 1 << 8, 1))) > 50  # a picture, not two tones
