"""Scripted people count in a real browser, and the printed commands train and predict."""

import csv
import re
import shlex
import time

import pytest

from llpkit.cli import main


def until(check, what, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


class Page:
    """The counting page as one person uses it."""

    def __init__(self, browser, address, person=None):
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        self.browser, self.keys, self.by_id = browser, Keys, By.ID
        browser.get(address)
        until(self.shown, "the first bag")
        if person is not None:
            self.rename(person)

    def rename(self, person):
        before = self.shown()
        everything = self.keys.CONTROL + "a" + self.keys.NULL
        self.find("person").send_keys(everything + person + self.keys.TAB)
        until(lambda: self.focused() == "low" and self.shown() != before, "a bag for the person")

    def find(self, name):
        return self.browser.find_element(self.by_id, name)

    def run(self, script, *values):
        return self.browser.execute_script(script, *values)

    def message(self):
        return self.find("message").text

    def shows(self, text):
        until(lambda: text in self.message(), f"{text}; the page says {self.message()}")

    def shown(self):  # in one script: the page may redraw between two calls
        return self.run(
            "return [...document.querySelectorAll('#wall .tile')].map((tile) => tile.title)"
        )

    def focused(self):
        return self.run("return document.activeElement.id || document.activeElement.title")

    def type(self, keys):
        self.browser.switch_to.active_element.send_keys(keys)

    def count(self, keys):
        """Type an answer, and wait for the next bag."""
        before = self.shown()
        self.type(f"{keys}{self.keys.ENTER}")
        until(lambda: self.shown() != before, "the next bag")
        return before

    def marks(self):
        return self.run(
            "return Object.fromEntries([...document.querySelectorAll('#wall .tile')]"
            ".filter((tile) => tile.querySelector('.mark').textContent)"
            ".map((tile) => [tile.title, tile.querySelector('.mark').textContent]))"
        )


@pytest.fixture(scope="module")
def shelves(photos, serve):
    return serve(photos[0], "--positive", "bright", "--project", "shelves")


def test_enter_in_a_range_fills_the_empty_box_first(shelves, browser):
    page = Page(browser, shelves.address, "Enter")
    page.type("?1" + page.keys.ENTER)
    page.shows("highest")
    assert page.focused() == "high"
    page.type("0" + page.keys.ENTER)
    page.shows("below the lowest")
    page.type(page.keys.ESCAPE)  # the single count needs no correction
    assert (page.message(), page.focused()) == ("", "low")
    page.type("?" + page.keys.ENTER)
    page.shows("highest")
    page.type("0" + page.keys.ENTER)
    page.shows("below the lowest")
    page.count("2")  # the wrong number is selected, so that typing replaces it
    page.shows("Saved: 1 to 2")
    assert not page.find("range").is_displayed()
    # From the upper box back to the lower one, and out of the range with Escape.
    page.type("2?" + page.keys.SHIFT + page.keys.TAB * 3 + page.keys.NULL)
    page.find("low").clear()
    page.find("high").send_keys("3" + page.keys.ENTER)
    page.shows("lowest")
    assert page.focused() == "low"
    page.type("1" + page.keys.ESCAPE)
    assert not page.find("range").is_displayed()
    page.count("")
    page.shows("Saved: 1 of")


def test_undo_takes_back_the_last_action_whatever_it_was(shelves, browser):
    page = Page(browser, shelves.address, "Undo")
    page.type("u")
    page.shows("nothing to undo")
    first = page.count("1")
    second = page.shown()
    page.run("document.querySelectorAll('#wall .tile')[1].click()")
    page.shows("Labelled bright")
    page.run("document.querySelectorAll('#wall .tile')[1].click()")
    page.shows("Labelled not bright")
    page.type("u")
    page.shows(f"Undone: {second[1]} is labelled bright again")
    assert page.marks() == {second[1]: "bright"}
    page.type("u")
    page.shows(f"Undone: {second[1]} is unlabelled again")
    assert (page.shown(), page.marks()) == (second, {})
    page.type("u")
    page.shows("Undone: the count 1 of")
    assert page.shown() == first
    page.count("2")
    assert page.shown() == second  # the bag that was waiting


def test_the_focus_stays_where_it_was(shelves, browser):
    from selenium.webdriver.common.action_chains import ActionChains

    page = Page(browser, shelves.address, "Focus")
    names = page.shown()
    page.run("document.querySelectorAll('#wall .tile')[0].focus()")
    for mark in ("bright", "not bright"):
        page.type(page.keys.ENTER)
        until(lambda mark=mark: page.marks() == {names[0]: mark}, mark)
        assert page.focused() == names[0]
    page.type(page.keys.ARROW_RIGHT + page.keys.SPACE)
    until(lambda: names[1] in page.marks(), "the second label")
    page.type("b")
    page.shows("Predictions are shown")
    assert page.focused() == names[1]
    page.type("u")
    until(lambda: names[1] not in page.marks(), "undo")
    assert page.focused() == names[1]
    # A digit goes to the count, and a click of the mouse leaves the focus there.
    page.type("1")
    assert (page.focused(), page.find("low").get_attribute("value")) == ("low", "1")
    tile = page.run("return document.querySelectorAll('#wall .tile')[2]")
    ActionChains(browser).click(tile).perform()
    until(lambda: names[2] in page.marks(), "the third label")
    assert page.focused() == "low"
    page.count("")
    page.shows("Saved: 1 of")


def test_a_reload_and_a_second_tab_show_the_same_bag(shelves, browser):
    page = Page(browser, shelves.address, "Reload")
    names = page.shown()
    page.type("1?2")
    browser.refresh()
    until(page.shown, "the page")
    assert page.shown() == names
    assert page.find("person").get_attribute("value") == "Reload"
    assert not page.find("range").is_displayed()
    assert page.find("low").get_attribute("value") == ""
    browser.switch_to.new_window("tab")
    browser.get(shelves.address)
    until(page.shown, "the second tab")
    assert page.shown() == names
    page.rename("Somebody else")
    assert page.shown() != names


def test_only_possible_counts_are_saved(shelves, browser):
    page = Page(browser, shelves.address, "Digits")
    size = len(page.shown())
    page.type(page.keys.ENTER)
    page.shows(f"0 to {size}")
    page.type("1x2-.e " + page.keys.ENTER)  # letters are not taken
    assert page.find("low").get_attribute("value") == "12"
    page.shows(f"0 to {size}")
    page.count("1")  # replaces what was wrong
    page.shows(f"Saved: 1 of {size}")
    page.type(page.keys.ARROW_DOWN)
    spoken = page.find("low").get_attribute("aria-valuenow")
    assert spoken == str(len(page.shown()))


def test_a_refusal_is_a_sentence(shelves, browser):
    page = Page(browser, shelves.address, "Refused")
    page.run("document.querySelectorAll('#wall .tile')[0].click()")
    page.shows("Labelled bright.")
    page.type("0" + page.keys.ENTER)
    page.shows("Not saved: with these labels, the count of the bag is 1 to")
    assert page.message().endswith("Change the count or the labels.")


@pytest.mark.slow
def test_a_recount_is_left_as_it_is(photos, serve, browser):
    folder, truth = photos
    server = serve(folder, "--positive", "bright", "--project", "recounted")
    page = Page(browser, server.address)
    listed = "return document.querySelectorAll('#unlikely-list button').length"
    wrong = None
    for number in range(40):
        names = page.shown()
        count = sum(truth[name] for name in names)
        if wrong is None and count == len(names) > 3:
            wrong, count = names, 0
        page.count(str(count))
        if wrong is not None and number > 20 and page.run(listed):
            break
    last = names
    assert "They may well be correct" in page.find("unlikely").text
    waiting, counted = page.shown(), f"{number + 1} of 40 bags counted"
    until(lambda: page.find("done-text").text == counted, "the page to know of the count")

    def recount():
        page.run("document.querySelector('#unlikely-list button').click()")
        until(lambda: page.shown() == wrong, "the miscount")
        assert page.find("low").get_attribute("value") == "0"
        assert page.find("leave").is_displayed()

    entries = (
        "return [...document.querySelectorAll('#unlikely-list button')].map((b) => b.textContent)"
    )
    for way in ("Escape", "button", "Enter"):
        recount()
        if way == "Enter":
            page.type(page.keys.ENTER)  # the count is there already
        elif way == "button":
            page.find("leave").click()
        else:
            page.type("1?" + page.keys.ESCAPE)  # back from the range first
            assert page.find("leave").is_displayed()
            page.type(page.keys.ESCAPE)
        page.shows("Saved: 0 of" if way == "Enter" else f"Left as it is: 0 of {len(wrong)}.")
        until(lambda: page.shown() == waiting, "the bag that was interrupted")
        assert page.find("low").get_attribute("value") == ""
        assert not page.find("leave").is_displayed()
        # A count that was confirmed is checked.
        until(lambda: wrong[0].split("/")[0] not in str(page.run(entries)), "a checked list")
        if way != "Enter":
            page.type("u")
            until(lambda: page.shown() == wrong, "the recount again")
            page.run("location.reload()")
            until(lambda: page.shown() == waiting, "the bag that was interrupted")
            until(lambda: wrong[0].split("/")[0] in str(page.run(entries)), "an unchecked list")
    page.type(page.keys.ESCAPE)  # nothing to leave
    assert (page.shown(), page.find("done-text").text) == (waiting, counted)
    page.type("u")
    until(lambda: page.shown() == wrong, "the recount again")

    # The predictions of the bag to recount are hidden.
    page.type("0" + page.keys.ENTER)
    until(lambda: page.find("last").is_displayed(), "the predictions")
    page.type("uu")
    until(lambda: page.shown() == last, "the last bag")
    assert not page.find("last").is_displayed()
    page.count(str(sum(truth[name] for name in last)))
    until(lambda: page.find("last").is_displayed(), "the predictions of the last bag")
    page.type("u")
    until(lambda: page.shown() == last, "the last bag again")
    assert not page.find("last").is_displayed()

    assert page.find("beliefs").text == "Show predictions"
    for text, number in (("Hide", len(last)), ("Show", 0)):
        page.type("b")
        until(lambda n=number: page.run(BELIEFS) == n, "predictions")
        assert page.find("beliefs").text == f"{text} predictions"
    assert " %" not in page.find("unlikely").text + page.find("calibration").text
    server.stop()


BELIEFS = "return document.querySelectorAll('#wall .percent').length"
LEAST_CONTRAST = """
const channels = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const found = channels(getComputedStyle(e).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const e = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !e.getClientRects().length) continue;
  const style = getComputedStyle(e);
  const colour = channels(e instanceof SVGElement ? style.fill : style.color);
  const [a, b] = [luminance(colour), luminance(behind(e))].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), walker.currentNode.textContent.trim()]);
}
return found.sort((x, y) => x[0] - y[0])[0];
"""


def check_contrast(browser):
    for theme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        ratio, text = browser.execute_script(LEAST_CONTRAST)
        assert ratio >= 4.5, (theme, text)


def test_a_person_counts_forty_bags(photos, serve, browser, monkeypatch, capfd):
    folder, truth = photos
    server = serve(folder, "--positive", "bright", "--project", "counted")
    page = Page(browser, server.address)
    find, message, shown, typed = page.find, page.message, page.shown, page.type
    Keys = page.keys
    assert "token" not in browser.current_url

    # An impossible count, a mistake with undo, and a range, all by keyboard.
    first = shown()
    typed("99" + Keys.ENTER)
    until(lambda: f"0 to {len(first)}" in message(), "the refusal")
    find("low").clear()
    typed("0" + Keys.ENTER)
    until(lambda: shown() != first, "the next bag")
    typed("u")
    until(lambda: shown() == first, "the bag again")
    find("low").clear()

    counted = []
    for number in range(40):
        names = until(shown, "a bag")
        if number == 6:  # this bag was on the page before there was a model
            until(lambda: find("beliefs").is_displayed(), "a model")
            for expected in (len(names), 0):
                typed("b")
                until(lambda n=expected: page.run(BELIEFS) == n, "beliefs")
        count = sum(truth[name] for name in names)
        if number == 3:
            typed(f"{count}?{len(names)}{Keys.ENTER}")
        elif number == 4:
            typed(Keys.ARROW_UP * (count + 1) + Keys.ENTER)
        else:
            typed(f"{count}{Keys.ENTER}")
        counted.append(frozenset(names))
        until(lambda names=names: shown() != names, "the next bag")
    assert len(set(counted)) == 40
    until(lambda: "All bags are counted" in message(), "the end")
    until(lambda: "better than a constant rate" in find("learned").text, "a model that has learned")

    # A label for a single item: one press for positive, one more for negative. Its bag has room
    # for both, and the focus keeps it on the page when the model learns from the label.
    homes = {name: [t for n, t in truth.items() if n[:7] == name[:7]] for name in truth}
    mixed = [name for name, own in homes.items() if len(set(own)) == 2]
    press = """const tile = [...document.querySelectorAll('#unsure-wall .tile')]
        .find((tile) => arguments[0].includes(tile.title));
        tile?.focus(); tile?.click(); return tile?.title"""
    labelled = until(lambda: browser.execute_script(press, mixed), "an unsure item")
    until(lambda: message() == "Labelled bright.", "the label")
    until(lambda: "1 item labelled" in find("done-text").text, "the page to know of it")
    for text in ("Labelled not bright.", "Label removed.", "Labelled bright."):
        assert browser.execute_script(press, [labelled]) == labelled
        until(lambda text=text: message() == text, text)
    if not truth[labelled]:
        browser.execute_script(press, [labelled])
        until(lambda: message() == "Labelled not bright.", "the other label")

    # Readable on a phone and on a desk, in both themes, and nothing was logged as an error.
    for width in (390, 1280):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    check_contrast(browser)
    unnamed = """return [...document.querySelectorAll('button, input')].filter(
        (e) => !e.ariaLabel && !e.labels?.length && !e.textContent.trim()).map((e) => e.id)"""
    assert browser.execute_script(unnamed) == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

    printed = server.stop()
    train, predict = re.findall(r"^  llpkit (.*)", printed, re.MULTILINE)
    table = server.cwd / "counted" / "counts.csv"
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(truth)
    assert {row["bag"] for row in rows if row["image"] == labelled} == {f"item {labelled}"}
    for name in {row["bag"] for row in rows}:
        own = [row for row in rows if row["bag"] == name and name != f"item {labelled}"]
        real = sum(truth[row["image"]] for row in own)
        assert all(int(row["count_low"]) <= real <= int(row["count_high"]) for row in own)

    monkeypatch.chdir(server.cwd)
    for command in (f"{train} --epochs 5", predict):
        assert main(shlex.split(command)) == 0, capfd.readouterr().err
    assert "held-out" in capfd.readouterr().out
    with open("counted/predicted.csv") as file:
        found = [(row["image"], float(row["probability"])) for row in csv.DictReader(file)]
    assert sorted(name for name, _ in found) == sorted(truth)
    right = sum((p > 0.5) == bool(truth[name]) for name, p in found)
    assert right / len(found) > 0.9
