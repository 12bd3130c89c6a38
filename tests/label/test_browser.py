"""A scripted person counts 40 bags in a real browser, and the export trains."""

import csv
import re
import shlex
import time

from llpkit.cli import main


def until(check, what, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def test_a_person_counts_forty_bags(photos, serve, browser, monkeypatch, capfd):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    folder, truth = photos
    server = serve(folder, "--positive", "bright", "--project", "counted")
    browser.get(server.address)

    def find(name):
        return browser.find_element(By.ID, name)

    def message():
        return find("message").text

    def shown():  # in one script: the page may redraw between two calls
        return browser.execute_script(
            "return [...document.querySelectorAll('#wall .tile')].map((tile) => tile.title)"
        )

    def typed(keys):
        browser.switch_to.active_element.send_keys(keys)

    until(shown, "the first bag")
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

    # A label for a single item: one press for positive, one more for negative.
    press = """const tile = [...document.querySelectorAll('#unsure-wall .tile')]
        .find((tile) => !arguments[0] || tile.title === arguments[0]);
        tile?.click(); return tile?.title"""
    labelled = until(lambda: browser.execute_script(press, None), "an unsure item")
    until(lambda: message() == "Labelled bright.", "the label")
    until(lambda: "1 labelled alone" in find("done-text").text, "the page to know of it")
    for text in ("Labelled not bright.", "Label taken back.", "Labelled bright."):
        assert browser.execute_script(press, labelled) == labelled
        until(lambda text=text: message() == text, text)
    if not truth[labelled]:
        browser.execute_script(press, labelled)
        until(lambda: message() == "Labelled not bright.", "the other label")

    # Readable on a phone and on a desk, in both themes, and nothing was logged as an error.
    for width in (390, 1280):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    unnamed = """return [...document.querySelectorAll('button, input')].filter(
        (e) => !e.ariaLabel && !e.labels?.length && !e.textContent.trim()).map((e) => e.id)"""
    assert browser.execute_script(unnamed) == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

    printed = server.stop()
    command = re.search(r"train:  llpkit (.*)", printed)[1]
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
    arguments = [*shlex.split(command), "--epochs", "12", "--out", "run", "--quiet"]
    assert main(arguments) == 0, capfd.readouterr().err
    assert main(["predict", "run", str(table), "--out", "predicted.csv"]) == 0
    with open("predicted.csv") as file:
        found = [(row["image"], float(row["probability"])) for row in csv.DictReader(file)]
    right = sum((p > 0.5) == bool(truth[name]) for name, p in found)
    assert right / len(found) > 0.9
