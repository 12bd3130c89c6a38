"use strict";
// The counting page. State lives on the server; this draws it and sends answers.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const page = { bag: null, since: 0, range: false, first: false, busy: false, positive: "" };

// Requests

async function call(name, body = {}) {
  const response = await fetch(`api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ person: person(), ...body }),
  });
  const found = await response.json();
  if (!response.ok) throw new Error(found.error || response.statusText);
  return found;
}

async function attempt(work) {
  if (page.busy) return;
  page.busy = true;
  try {
    await work();
  } catch (error) {
    // The server is gone when fetch itself fails; nothing that was saved is lost.
    const gone = error instanceof TypeError;
    say(gone ? "The server does not answer. Saved counts are safe; start it again." : error.message, true);
  } finally {
    page.busy = false;
  }
}

function person() {
  return $("person").value.trim() || "me";
}

function say(text, bad = false) {
  $("message").textContent = text;
  $("message").className = bad ? "bad" : "";
}

// Tiles

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, options);
  made.append(...children);
  return made;
}

function bar(share, kind) {
  const inner = element("i");
  inner.style.width = `${100 * share}%`;
  return element("span", { className: `bar ${kind}`, ariaHidden: "true" }, inner);
}

const percent = (share) => `${Math.round(100 * share)} %`;
const chance = (p) => (p < 0.01 ? "below 1 %" : percent(p));
const WORDS = { 1: "yes", 0: "no" };

function tile(item, number, total, beliefs) {
  const what = item.picture ? `image ${number} of ${total}` : item.caption;
  const marked = item.label === 1 ? page.positive : item.label === 0 ? `not ${page.positive}` : "";
  const button = element("button", {
    type: "button",
    className: `tile ${WORDS[item.label] ?? ""}`,
    title: item.caption,
    ariaLabel: `${what}${marked ? `, labelled ${marked}` : ""}`,
  });
  if (item.picture) {
    const image = element("img", { src: `item/${item.id}`, alt: "", decoding: "async" });
    image.onload = () => image.classList.toggle("crisp", image.naturalWidth <= 64);
    button.append(image);
  } else {
    button.append(element("span", { className: "text", textContent: item.caption }));
  }
  if (beliefs && item.before !== null && item.before !== undefined) {
    button.append(bar(item.before, "before"));
    const after = item.after ?? null;
    if (after !== null) button.append(bar(after, "after"));
    const text = after === null ? percent(item.before) : `${Math.round(100 * item.before)} → ${percent(after)}`;
    button.append(element("span", { className: "percent", textContent: text }));
    button.ariaLabel += `, believed ${text.replace("→", "then")}`;
  }
  if (marked) button.append(element("span", { className: "mark", textContent: marked }));
  // A label of one item: none, then yes, then no.
  button.onclick = () => attempt(async () => {
    const value = item.label === 1 ? 0 : item.label === 0 ? null : 1;
    await call("label", { item: item.id, value });
    item.label = value;
    button.replaceWith(tile(item, number, total, beliefs));
    say(value === null ? "Label taken back." : `Labelled ${value ? "" : "not "}${page.positive}.`);
    $("low").focus({ preventScroll: true });
    refresh();
  });
  return button;
}

function fill(place, items, beliefs) {
  place.replaceChildren(...items.map((item, i) => tile(item, i + 1, items.length, beliefs)));
}

// The bag to count

function show(bag) {
  page.bag = bag.bag === null ? null : bag;
  $("answer").hidden = page.bag === null;
  if (page.bag === null) {
    $("wall").replaceChildren();
    say("All bags are counted. Download the counts, or look at the probable miscounts.");
    return;
  }
  page.since = performance.now();
  setRange(bag.low !== null && bag.low !== bag.high);
  $("low").value = bag.low ?? "";
  $("high").value = page.range ? bag.high : "";
  $("of").textContent = `of ${bag.items.length}`;
  $("bag-name").textContent = `${bag.name}, ${bag.items.length} items`;
  fill($("wall"), bag.items, page.first);
  $("low").focus({ preventScroll: true });
}

function setRange(on) {
  page.range = on;
  $("range").hidden = !on;
  $("unsure").setAttribute("aria-pressed", String(on));
  $("low-label").textContent = on ? "From" : "Count";
}

function whole(id) {
  const text = $(id).value.trim();
  return /^[0-9]+$/.test(text) ? Number(text) : null;
}

async function save() {
  const bag = page.bag;
  if (bag === null) return;
  const low = whole("low");
  const high = page.range ? whole("high") : low;
  const size = bag.items.length;
  if (low === null || high === null || high > size || low > high) {
    say(`Type a count from 0 to ${size}${page.range ? ", the lower one first" : ""}.`, true);
    return;
  }
  const seconds = (performance.now() - page.since) / 1000;
  const saved = await call("answer", { bag: bag.bag, low, high, seconds });
  const count = low === high ? low : `${low} to ${high}`;
  say(`Saved: ${count} of ${size}.`);
  last(saved, count);
  show(await call("next"));
  refresh();
}

function last(bag, count) {
  const believed = bag.items.some((item) => item.before !== null);
  $("last").hidden = !believed;
  if (!believed) return;
  $("last-title").textContent = `The bag before: ${count} of ${bag.items.length}`;
  fill($("last-wall"), bag.items, true);
}

async function undo() {
  const bag = await call("undo");
  if (bag.bag === null) return say("There is nothing to undo.");
  show(bag);
  say("Taken back. Count it again.");
  refresh();
}

function step(by) {
  const size = page.bag ? page.bag.items.length : 0;
  const active = document.activeElement === $("high") ? "high" : "low";
  const now = whole(active);
  $(active).value = Math.min(size, Math.max(0, now === null ? (by > 0 ? 0 : size) : now + by));
}

function notSure() {
  setRange(!page.range);
  (page.range && whole("low") !== null ? $("high") : $("low")).focus();
}

// Charts: small line charts without a library

function chart(place, lines, { x, y, width = 320, height = 170, diagonal = false }) {
  const box = { left: 40, right: 10, top: 10, bottom: 30 };
  const points = lines.flatMap((line) => line.points);
  if (!points.length) return place.replaceChildren();
  const range = (values, given) => given ?? [Math.min(...values), Math.max(...values)];
  const [x0, x1] = range(points.map((p) => p[0]), x.range);
  const [y0, y1] = range(points.map((p) => p[1]), y.range);
  const at = (value, low, high, from, to) => from + ((value - low) / (high - low || 1)) * (to - from);
  const px = (v) => at(v, x0, x1, box.left, width - box.right);
  const py = (v) => at(v, y0, y1, height - box.bottom, box.top);
  const svg = document.createElementNS(SVG, "svg");
  const add = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    svg.append(made);
  };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", lines.map((l) => `${l.name}: ${l.points.map((p) => y.show(p[1])).join(", ")}`).join("; "));
  add("path", { class: "axis", d: `M${box.left} ${box.top}V${height - box.bottom}H${width - box.right}` });
  if (diagonal) add("path", { class: "axis", d: `M${px(x0)} ${py(y0)}L${px(x1)} ${py(y1)}` });
  for (const v of [y0, y1]) add("text", { x: box.left - 5, y: py(v) + 4, "text-anchor": "end" }, y.show(v));
  add("text", { x: px(x0), y: height - 16 }, x.show(x0));
  add("text", { x: px(x1), y: height - 16, "text-anchor": "end" }, x.show(x1));
  add("text", { x: (box.left + width) / 2, y: height - 3, "text-anchor": "middle" }, x.name);
  for (const line of lines) {
    const path = line.points.map((p, i) => `${i ? "L" : "M"}${px(p[0]).toFixed(1)} ${py(p[1]).toFixed(1)}`).join("");
    if (!line.dots) add("path", { class: line.style, d: path });
    if (line.dots || line.points.length === 1) for (const p of line.points) add("circle", { class: "dot", cx: px(p[0]), cy: py(p[1]), r: 4 });
  }
  // Names stand at the last point, and apart from each other.
  let used = [];
  for (const line of lines.filter((l) => !l.dots)) {
    const end = line.points[line.points.length - 1];
    let where = py(end[1]) - 6;
    while (used.some((other) => Math.abs(other - where) < 13)) where += 13;
    used.push(where);
    add("text", { class: line.style, x: width - box.right, y: Math.max(12, where), "text-anchor": "end" }, line.name);
  }
  place.replaceChildren(svg);
}

// Learning

async function refresh() {
  let state;
  try {
    state = await call("state");
  } catch {
    return;
  }
  draw(state);
}

function draw(state) {
  const total = state.bags ?? Math.ceil(state.items / 12);
  $("done").max = Math.max(1, total);
  $("done").value = state.counted;
  const labels = state.labels ? `, ${state.labels} labelled alone` : "";
  $("done-text").textContent = state.bags === null ? `${state.counted} bags counted${labels}` : `${state.counted} of ${state.bags} bags counted${labels}`;

  const newest = state.history[state.history.length - 1];
  const busy = state.training ? " Training now…" : "";
  if (state.error) {
    $("learned").textContent = `Training failed: ${state.error}`;
  } else if (!newest) {
    $("learned").textContent = state.training ? "Training for the first time…" : `The first model is trained after ${state.least} counts.`;
  } else {
    const gain = newest.log_likelihood - newest.baseline;
    const word = gain > 0 ? "better" : "no better";
    $("learned").textContent = `After ${newest.counted} counts: ${word} than a constant rate on counts it has not seen (${gain >= 0 ? "+" : ""}${gain.toFixed(2)} nats per bag).${busy}`;
    chart($("curve"), [
      { name: "model", style: "a", points: state.history.map((h) => [h.counted, h.log_likelihood]) },
      { name: "constant rate", style: "b", points: state.history.map((h) => [h.counted, h.baseline]) },
    ], { x: { name: "counts", show: (v) => String(v) }, y: { show: (v) => v.toFixed(1) } });
  }
  $("calibration").hidden = !state.calibration;
  if (state.calibration) {
    chart($("calibration-chart"), [{ name: "bags", dots: true, points: state.calibration.map((c) => [c.expected, c.counted]) }],
      { x: { name: "expected share → counted share ↑", range: [0, 1], show: percent }, y: { range: [0, 1], show: percent }, diagonal: true });
  }
  const unlikely = state.unlikely ?? [];
  $("unlikely").hidden = !unlikely.length;
  $("unlikely-list").replaceChildren(...unlikely.map((each) => {
    const count = each.low === each.high ? each.low : `${each.low} to ${each.high}`;
    const text = `${each.name}: counted ${count}, expected ${each.expected} (chance ${chance(each.chance)})`;
    const button = element("button", { type: "button", textContent: text });
    button.onclick = () => attempt(async () => {
      show(await call("bag", { bag: each.bag }));
      say("Count this bag again, or press Enter to keep the count.");
    });
    return element("li", {}, button);
  }));
  const unsure = state.unsure ?? [];
  $("unsure-items").hidden = !unsure.length;
  // Redrawn after a training only: a tile must not go away between the selections that label it.
  const key = String(state.history.length);
  if ($("unsure-wall").dataset.key !== key) {
    fill($("unsure-wall"), unsure, true);
    $("unsure-wall").dataset.key = key;
  }
  if (state.people.length) {
    const each = state.people.map((p) => `${p.name}: ${p.bags} bags, ${(p.seconds / Math.max(1, p.bags)).toFixed(1)} s per bag`);
    const agreed = state.compared ? ` Of ${state.compared} bags counted by several people, they agree on ${state.agreed}.` : "";
    $("people").textContent = `${each.join("; ")}.${agreed}`;
  }
  $("demo").hidden = !state.demo;
  if (state.demo) demo(state.demo);
}

function demo(found) {
  chart($("demo-chart"), found.curves.map((c, i) => ({ ...c, style: i ? "b" : "a" })),
    { x: { name: "minutes", show: (v) => v.toFixed(1) }, y: { range: [0.5, 1], show: percent } });
  $("demo-text").textContent = found.text;
  if (found.last && found.last.bag !== demo.shown) {
    demo.shown = found.last.bag;
    last(found.last, found.last.low);
  }
}

// Start

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === $("person")) return;
  const tiled = event.target.classList?.contains("tile");
  const keys = {
    ArrowUp: () => step(1),
    ArrowDown: () => step(-1),
    "?": notSure,
    u: () => attempt(undo),
    b: () => {
      page.first = !page.first;
      if (page.bag) fill($("wall"), page.bag.items, page.first);
      say(page.first ? "Beliefs are shown before you count; they may sway you." : "Beliefs are hidden until you have counted.");
    },
  };
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  } else if (/^[0-9]$/.test(event.key) && !["low", "high"].includes(event.target.id)) {
    $("low").focus();
  } else if (event.key === "Enter" && !tiled && event.target.tagName !== "BUTTON" && event.target.tagName !== "A") {
    event.preventDefault();
    attempt(save);
  }
});
$("answer").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(save);
});
$("less").onclick = () => step(-1);
$("more").onclick = () => step(1);
$("unsure").onclick = notSure;
$("undo").onclick = () => attempt(undo);
$("person").value = localStorage.getItem("llpkit-person") || "me";
$("person").onchange = () => localStorage.setItem("llpkit-person", person());
page.positive = document.querySelector("h1 em").textContent;
if (location.search.includes("token=")) history.replaceState(null, "", location.pathname); // the cookie has it now
attempt(async () => show(await call("next"))).then(refresh);
setInterval(refresh, 2000);
