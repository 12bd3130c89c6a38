"use strict";
// The counting page. State lives on the server; this draws it and sends answers.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const page = { bag: null, last: null, since: 0, recount: false, range: false, correction: "", first: false, positive: "", done: Promise.resolve() };

// Requests

const GONE = "The server does not respond. Saved counts are safe. Restart it and open the address that it prints.";

async function call(name, body = {}) {
  const response = await fetch(`api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ person: person(), ...body }),
  }).catch(() => {
    throw new Error(GONE);
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(sentence(answer.error || `The server answered with status ${response.status}. Try again.`)), { bag: answer.bag });
  return answer;
}

// Actions run one after another, so that nothing typed while a request runs is lost.
function attempt(action) {
  page.done = page.done.then(action).catch((error) => say(error.message, true));
  return page.done;
}

function person() {
  return $("person").value.trim() || "me";
}

function say(text, bad = false) {
  $("message").textContent = text;
  $("message").className = bad ? "bad" : "";
}

// As on the command line, messages of the server start without a capital and end without a full stop.
// A first word such as a path or a quotation stays as it is.
const sentence = (text) => (/^[a-z]+[ ,]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text) + (/[.!?]$/.test(text) ? "" : ".");
const several = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
const span = ({ low, high }) => (low === high ? `${low}` : `${low} to ${high}`);

// Tiles

function element(name, options = {}, ...children) {
  const node = document.createElement(name);
  Object.assign(node, options);
  node.append(...children);
  return node;
}

function bar(share, kind) {
  const inner = element("i");
  inner.style.width = `${100 * share}%`;
  return element("span", { className: `bar ${kind}`, ariaHidden: "true" }, inner);
}

const percent = (share) => `${Math.round(100 * share)}%`;
const chance = (p) => (p < 0.01 ? "below 1%" : percent(p));
const labelled = (value) => (value ? page.positive : `not ${page.positive}`);

function tile(item, number, total, beliefs) {
  const button = element("button", { type: "button", item });
  button.dataset.item = item.id;
  const text = (before = "") => element("span", { className: "text", textContent: before + item.caption });
  if (item.picture) {
    button.title = item.caption;
    const image = element("img", { src: `item/${item.id}`, alt: "", decoding: "async" });
    image.onload = () => image.classList.toggle("crisp", image.naturalWidth <= 64);
    image.onerror = () => image.replaceWith(text("Cannot be read: "));
    button.append(image);
  } else {
    button.append(text());
  }
  button.what = item.picture ? `image ${number} of ${total}` : item.caption;
  if (beliefs && typeof item.before === "number") {
    button.append(bar(item.before, "before"));
    const after = item.after ?? null;
    if (after !== null) button.append(bar(after, "after"));
    const belief = after === null ? percent(item.before) : `${Math.round(100 * item.before)} → ${percent(after)}`;
    button.append(element("span", { className: "percent", textContent: belief }));
    button.what += `, predicted ${belief.replace("→", "then")}`;
  }
  button.append(element("span", { className: "mark" }));
  paint(button);
  // With the mouse, the focus stays in the count; with the keyboard, it stays on the tile.
  button.onmousedown = (event) => event.preventDefault();
  // A label of one item: none, then yes, then no.
  button.onclick = () => attempt(async () => {
    const now = item.tried === undefined ? item.label ?? null : item.tried;
    const value = now === 1 ? 0 : now === 0 ? null : 1;
    item.tried = value; // if it is refused, the next click continues from it
    try {
      await call("label", { item: item.id, value });
    } catch (error) {
      // The count of the item's bag rules the label out: show the bag to count it again.
      if (error.bag !== undefined && error.bag !== page.bag?.bag) {
        show(await call("bag", { bag: error.bag }), true);
        $("counting").scrollIntoView();
      }
      throw error;
    }
    mark(item.id, value);
    say(value === null ? "Label removed." : `Labelled ${labelled(value)}.`);
    refresh();
  });
  return button;
}

function paint(button) {
  const value = button.item.label ?? null;
  const word = value === null ? "" : labelled(value);
  button.className = `tile ${value === null ? "" : value ? "yes" : "no"}`;
  button.ariaLabel = button.what + (word && `, labelled ${word}`);
  button.querySelector(".mark").textContent = word;
}

// The same item may be on several walls.
function mark(id, value) {
  for (const button of document.querySelectorAll(`.tile[data-item="${id}"]`)) {
    button.item.label = value;
    delete button.item.tried;
    paint(button);
  }
  size();
}

function fill(place, items, beliefs) {
  const focused = [...place.children].indexOf(document.activeElement);
  place.classList.toggle("rows", items.some((item) => !item.picture));
  place.replaceChildren(...items.map((item, i) => tile(item, i + 1, items.length, beliefs)));
  place.children[focused]?.focus({ preventScroll: true });
}

// The bag to count

// A recount of a counted bag can be left as it is.
function show(bag, recount = false) {
  page.bag = bag.bag === null ? null : bag;
  page.recount = recount;
  $("leave").hidden = !recount;
  // What the model predicted would sway a second count.
  $("last").hidden = page.last === null || page.last === bag.bag;
  $("answer").hidden = $("bag-name").hidden = page.bag === null;
  if (page.bag === null) {
    $("wall").replaceChildren();
    say(bag.left ? `Other people are counting the last ${several(bag.left, "bag")}.` : "All bags are counted. Look at the possible miscounts, or use the counts.");
    return;
  }
  page.since = performance.now();
  setRange(bag.low !== null && bag.low !== bag.high);
  put("low", bag.low ?? "");
  put("high", page.range ? bag.high : "");
  for (const id of ["low", "high"]) $(id).setAttribute("aria-valuemax", bag.items.length);
  size();
  $("bag-name").textContent = `${bag.name}, ${several(bag.items.length, "item")}`;
  fill($("wall"), bag.items, page.first);
  // On a phone the focus would cover the images with its keyboard.
  if (!matchMedia("(pointer: coarse)").matches) $("low").focus({ preventScroll: true });
}

function size() {
  if (page.bag === null) return;
  const { items } = page.bag;
  const included = items.some((item) => (item.label ?? null) !== null) ? ", including labelled ones" : "";
  $("of").textContent = `of ${items.length}${included}`;
}

function setRange(on) {
  page.range = on;
  $("range").hidden = !on;
  $("unsure").setAttribute("aria-pressed", String(on));
  $("low-label").textContent = on ? "From" : "Count";
  if (!on) put("high", "");
}

function put(id, value) {
  $(id).value = value;
  if (value === "") $(id).removeAttribute("aria-valuenow");
  else $(id).setAttribute("aria-valuenow", value);
}

function whole(id) {
  return $(id).value === "" ? null : Number($(id).value);
}

function correct(id, text, bad = true) {
  say(text, bad);
  page.correction = text;
  $(id).focus();
  $(id).select();
}

async function save() {
  const bag = page.bag;
  if (bag === null) return;
  const size = bag.items.length;
  const boxes = page.range ? ["low", "high"] : ["low"];
  const empty = boxes.find((id) => whole(id) === null);
  if (empty && whole(boxes.find((id) => id !== empty) ?? empty) !== null) {
    return correct(empty, `Now enter the ${empty === "low" ? "lowest" : "highest"} possible count.`, false);
  }
  const wrong = empty ?? boxes.find((id) => whole(id) > size);
  if (wrong) return correct(wrong, `Type a count from 0 to ${size}.`);
  const low = whole("low");
  const high = page.range ? whole("high") : low;
  if (low > high) return correct("high", `The highest count, ${high}, is below the lowest, ${low}.`);
  const seconds = (performance.now() - page.since) / 1000;
  const saved = await call("answer", { bag: bag.bag, low, high, seconds });
  say(`Saved: ${span(saved)} of ${size}.`);
  show(await call("next"));
  last(saved);
  refresh();
}

// Confirm the count of a recount, and go back to the bag that was interrupted.
async function leave() {
  if (!page.recount) return;
  const { bag, low, high, items } = page.bag;
  if (low !== null) await call("answer", { bag, low, high, seconds: (performance.now() - page.since) / 1000 });
  show(await call("next"));
  if (page.bag !== null) say(low === null ? "The bag was left as it is." : `Left as it is: ${span({ low, high })} of ${items.length}.`);
  refresh();
}

function last(bag) {
  const believed = bag.items.some((item) => item.before !== null);
  page.last = believed ? bag.bag : null;
  $("last").hidden = !believed || page.bag?.bag === bag.bag;
  if (!believed) return;
  $("last-title").textContent = `Previous bag: ${span(bag)} of ${bag.items.length}`;
  fill($("last-wall"), bag.items, true);
}

async function undo() {
  const action = await call("undo");
  if (action.undone === null) return say("There is nothing to undo.");
  if (action.undone === "count") {
    if (page.last === action.bag.bag) page.last = null;
    show(action.bag);
    say(`Undone: the count ${span(action)} of ${action.bag.items.length}. Count this bag again.`);
  } else {
    const { id, name, label } = action.item;
    mark(id, label);
    say(`Undone: ${name} is ${label === null ? "unlabelled" : `labelled ${labelled(label)}`} again.`);
  }
  refresh();
}

function step(by) {
  if (page.bag === null) return;
  const size = page.bag.items.length;
  const active = document.activeElement === $("high") ? "high" : "low";
  const now = whole(active);
  put(active, Math.min(size, Math.max(0, now === null ? (by > 0 ? 0 : size) : now + by)));
}

// A correction that was asked for is about the boxes that were there.
function settle() {
  if ($("message").textContent === page.correction) say("");
}

function notSure() {
  settle();
  setRange(!page.range);
  (page.range && whole("low") !== null ? $("high") : $("low")).focus();
}

function escape() {
  if (!page.range) return attempt(leave);
  settle();
  setRange(false);
  $("low").focus();
}

async function beliefs() {
  page.first = !page.first;
  $("beliefs").textContent = page.first ? "Hide predictions" : "Show predictions";
  if (page.bag) {
    // The model may have learned since the bag was shown.
    page.bag.items = (await call("bag", { bag: page.bag.bag })).items;
    fill($("wall"), page.bag.items, page.first);
  }
  say(page.first ? "Predictions are shown before you count; they may sway you." : "Predictions are hidden until you have counted.");
}

// Charts: small line charts without a library

function chart(place, lines, { x, y, width = 320, height = 170, diagonal = false }) {
  const box = { left: 40, right: 10, top: 24, bottom: 30 }; // the top has room for the names of the lines
  const points = lines.flatMap((line) => line.points);
  if (!points.length) return place.replaceChildren();
  const extent = (values) => [Math.min(...values), Math.max(...values)];
  const [x0, x1] = x.range ?? extent(points.map((p) => p[0]));
  const [y0, y1] = y.range ?? extent(points.map((p) => p[1]));
  const at = (value, low, high, from, to) => from + ((value - low) / (high - low || 1)) * (to - from);
  const px = (v) => at(v, x0, x1, box.left, width - box.right);
  const py = (v) => at(v, y0, y1, height - box.bottom, box.top);
  const svg = document.createElementNS(SVG, "svg");
  const add = (name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    svg.append(node);
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
  // The names are above the chart, where they hide no line.
  let left = box.left;
  for (const line of lines.filter((l) => !l.dots)) {
    add("path", { class: line.style, d: `M${left} 9H${left + 20}` });
    add("text", { class: line.style, x: left + 25, y: 13 }, line.name);
    left += 45 + 7 * line.name.length;
  }
  place.replaceChildren(svg);
}

// Learning

async function refresh() {
  try {
    draw(await call("state"));
  } catch (error) {
    if (error.message === GONE) say(GONE, true);
  }
}

// Nothing changes under the pointer or the focus, where somebody may be about to press.
function redraw(place, key, draw) {
  if (place.dataset.key === key || place.matches(":hover, :focus-within")) return;
  place.dataset.key = key;
  draw();
}

function draw(state) {
  $("done").max = Math.max(1, state.number);
  $("done").value = state.counted;
  const labels = state.labels ? `, ${several(state.labels, "item")} labelled` : "";
  const of = state.bags === null ? several(state.counted, "bag") : `${state.counted} of ${several(state.bags, "bag")}`;
  $("done-text").textContent = `${of} counted${labels}`;

  const newest = state.history[state.history.length - 1];
  const busy = state.training ? " Training now…" : "";
  if (state.error) {
    $("learned").textContent = `Training failed: ${state.error}`;
  } else if (!newest) {
    $("learned").textContent = state.training ? "Training for the first time…" : `The first model is trained after ${state.least} counts or labels.`;
  } else {
    $("learned").textContent = state.verdict + busy;
    chart($("curve"), [
      { name: "model", style: "a", points: state.history.map((h) => [h.answers, h.log_likelihood]) },
      { name: "constant rate", style: "b", points: state.history.map((h) => [h.answers, h.baseline]) },
    ], { x: { name: `${state.labels ? "counts and labels" : "counts"} → log-likelihood per bag ↑`, show: String }, y: { show: (v) => v.toFixed(1).replace("-", "−") } });
  }
  $("calibration").hidden = !state.calibration;
  if (state.calibration) {
    chart($("calibration-chart"), [{ name: "bags", dots: true, points: state.calibration.map((c) => [c.expected, c.counted]) }],
      { x: { name: "expected share → counted share ↑", range: [0, 1], show: percent }, y: { range: [0, 1], show: percent }, diagonal: true });
  }
  const unlikely = state.unlikely ?? [];
  $("unlikely").hidden = !unlikely.length;
  redraw($("unlikely-list"), JSON.stringify(unlikely), () => $("unlikely-list").replaceChildren(...unlikely.map((each) => {
    const text = `${each.name}: counted ${span(each)}, expected ${each.expected} (chance ${chance(each.chance)})`;
    const button = element("button", { type: "button", textContent: text });
    button.onclick = () => attempt(async () => {
      const bag = await call("bag", { bag: each.bag });
      show(bag, true);
      say("Count this bag again, or leave it as it is.");
    });
    return element("li", {}, button);
  })));
  const unsure = state.unsure ?? [];
  $("unsure-items").hidden = !unsure.length;
  redraw($("unsure-wall"), String(state.trainings), () => fill($("unsure-wall"), unsure, true));
  if (state.people.length) {
    const each = state.people.map((p) => `${p.name}: ${several(p.bags, "bag")}, ${(p.seconds / Math.max(1, p.bags)).toFixed(1)} s per bag`);
    const agreed = state.compared ? ` Of ${several(state.compared, "bag")} counted by several people, they agreed on ${state.agreed}.` : "";
    const same = state.labels_compared ? ` Of ${several(state.labels_compared, "item")} labelled by several people, they agreed on ${state.labels_agreed}.` : "";
    $("people").textContent = `${each.join("; ")}.${agreed}${same}`;
  }
  $("beliefs").hidden = !newest;
  $("use").hidden = !state.commands.length || !(state.counted || state.labels);
  redraw($("commands"), JSON.stringify(state.commands), () => $("commands").replaceChildren(...state.commands.map((command) => {
    const copy = element("button", { type: "button", textContent: "Copy", ariaLabel: `Copy ${command.split(" ", 2).join(" ")}` });
    copy.onclick = () => attempt(async () => {
      await navigator.clipboard.writeText(command);
      say("Copied.");
    });
    const words = command.split(" ").flatMap((word) => [element("span", { textContent: word }), " "]);
    return element("li", {}, element("code", {}, ...words), copy);
  })));
  $("demo").hidden = !state.demo;
  if (state.demo) demo(state.demo);
}

function demo(simulation) {
  chart($("demo-chart"), simulation.curves.map((c, i) => ({ ...c, style: i ? "b" : "a" })),
    { x: { name: "minutes", show: (v) => v.toFixed(1) }, y: { range: [0.5, 1], show: percent } });
  $("demo-text").textContent = simulation.text;
  if (simulation.last && simulation.last.bag !== demo.shown) {
    demo.shown = simulation.last.bag;
    last(simulation.last);
  }
}

// Start

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === $("person")) return;
  const tiled = event.target.classList?.contains("tile");
  const keys = {
    ArrowUp: () => step(1),
    ArrowDown: () => step(-1),
    Escape: escape,
    "?": notSure,
    u: () => attempt(undo),
    b: () => attempt(beliefs),
    ...(tiled && {
      ArrowLeft: () => event.target.previousElementSibling?.focus(),
      ArrowRight: () => event.target.nextElementSibling?.focus(),
    }),
  };
  if (Object.hasOwn(keys, event.key)) {
    event.preventDefault();
    keys[event.key]();
  } else if (/^[0-9]$/.test(event.key) && !["low", "high"].includes(event.target.id)) {
    $("low").focus();
  } else if (event.key === "Enter" && !["BUTTON", "A"].includes(event.target.tagName)) {
    event.preventDefault();
    if (!event.repeat) attempt(save);
  }
});
$("answer").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(save);
});
for (const id of ["low", "high"]) $(id).oninput = () => put(id, $(id).value.replace(/[^0-9]/g, ""));
$("less").onclick = () => step(-1);
$("more").onclick = () => step(1);
$("unsure").onclick = notSure;
$("leave").onclick = () => attempt(leave);
$("undo").onclick = () => attempt(undo);
$("beliefs").onclick = () => attempt(beliefs);
// In a cookie, because the next server has another port and so another local storage.
$("person").value = decodeURIComponent(document.cookie.match(/llpkit-person=([^;]*)/)?.[1] ?? "me");
$("person").onchange = () => {
  document.cookie = `llpkit-person=${encodeURIComponent(person())}; max-age=31536000; samesite=strict; path=/`;
  // The bag on this page was offered to somebody else.
  if (page.recount || whole("low") === null) attempt(async () => show(await call("next")));
};
page.positive = document.querySelector("h1 em").textContent;
if (location.search.includes("token=")) history.replaceState(null, "", location.pathname); // the cookie has it now
attempt(async () => show(await call("next"))).then(refresh);
setInterval(() => {
  refresh();
  // Another person may have left a bag uncounted.
  if (page.bag === null && document.activeElement !== $("person")) attempt(async () => {
    const bag = await call("next");
    if (page.bag === null && bag.bag !== null) show(bag);
  });
}, 2000);
