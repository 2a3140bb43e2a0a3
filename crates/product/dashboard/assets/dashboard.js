// The live parts of the dashboard. Pages are complete without it; it uses nothing but the API of the same server:
// events (one stream for each page, closed while the page is hidden), and the requests that forms describe.

const API = "/api/v1";
const MISSING = "–";

// Numbers, as `figures.rs` writes them.

function scaled(value, step, units, gap) {
  let unit = 0;
  value = Math.max(value, 0);
  while (value >= step * 0.9995 && unit + 1 < units.length) {
    value /= step;
    unit += 1;
  }
  let digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  if (unit === 0) digits = value >= 9.95 || value % 1 < 0.05 ? 0 : 1;
  return value.toFixed(digits) + gap + units[unit];
}

const count = (value) => scaled(value, 1000, ["", " k", " M", " G", " T"], "");
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"], " ");
const bytesPerSecond = (value) => `${bytes(value)}/s`;
const percent = (value) => `${value.toFixed(1)} %`;

function time(nanoseconds) {
  if (nanoseconds === undefined || nanoseconds === null) return MISSING;
  const us = nanoseconds / 1e3;
  if (us >= 999500) return `${(us / 1e6).toFixed(2)} s`;
  if (us >= 99950) return `${(us / 1e3).toFixed(0)} ms`;
  if (us >= 999.5) return `${(us / 1e3).toFixed(2)} ms`;
  if (us >= 99.95) return `${us.toFixed(0)} µs`;
  return `${us.toFixed(1)} µs`;
}

const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function announce(text) {
  setText(document.getElementById("announcement"), text);
}

// What the server does: rates of the last second.

function showRates(rates) {
  const operations = sum(rates.volumes, (it) => it.reads + it.writes);
  const followed = sum(rates.stages, (it) => it.followed);
  const spent = sum(rates.stages, (it) => it.followed * it["mean-ns"]);
  const budget = rates["memory-budget-bytes"];
  const values = {
    operations: count(operations),
    "read-bytes": bytesPerSecond(sum(rates.volumes, (it) => it["read-bytes"])),
    "written-bytes": bytesPerSecond(sum(rates.volumes, (it) => it["written-bytes"])),
    mean: time(followed > 0 ? spent / followed : undefined),
    memory: budget > 0 ? `${bytes(rates["memory-used-bytes"])} of ${bytes(budget)}` : MISSING,
    "limited-by": rates["limited-by"],
    basis: "mean of the last second",
  };
  for (const place of all("[data-live]")) {
    if (place.closest("[data-volume], [data-core], [data-peer]") === null) {
      const text = values[place.dataset.live];
      if (text !== undefined) setText(place, text);
    }
  }
  const volumes = new Map(rates.volumes.map((it) => [it.name, it]));
  for (const row of all("[data-volume]")) {
    // Volumes without operations are left out.
    const it = volumes.get(row.dataset.volume) ?? { reads: 0, writes: 0, "read-bytes": 0, "written-bytes": 0 };
    fill(row, {
      operations: count(it.reads + it.writes),
      bytes: bytesPerSecond(it["read-bytes"] + it["written-bytes"]),
      mean: time(it["mean-ns"]),
    });
  }
  for (const row of all("[data-core]")) {
    const it = rates.cores.find((core) => String(core.core) === row.dataset.core);
    if (it) showCore(row, it);
  }
  const connections = new Map(rates.connections.map((it) => [it.peer, it]));
  for (const row of all("[data-peer]")) {
    const it = connections.get(row.dataset.peer);
    if (!it) continue;
    fill(row, {
      core: String(it.core),
      operations: count(it.operations),
      received: bytesPerSecond(it["received-bytes"]),
      sent: bytesPerSecond(it["sent-bytes"]),
      pending: bytes(it["pending-bytes"]),
    });
  }
  for (const chart of charts) chart.add(rates);
}

function fill(row, values) {
  for (const place of all("[data-live]", row)) {
    const text = values[place.dataset.live];
    if (text !== undefined) setText(place, text);
  }
}

function showCore(row, core) {
  fill(row, {
    working: percent(core.working),
    polling: percent(core.polling),
    waiting: percent(core.waiting),
    asleep: percent(core.asleep),
    operations: count(core.operations),
    turns: count(core.turns),
  });
  let from = 0;
  for (const part of all("[data-bar]", row)) {
    const width = Math.min(Math.max(core[part.dataset.bar], 0), 100 - from);
    part.setAttribute("x", from.toFixed(2));
    part.setAttribute("width", width.toFixed(2));
    from += width;
  }
}

// Charts are drawn from their tables.

const POINTS = 120;
const charts = [];

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.kind = figure.dataset.chart;
    this.canvas = figure.querySelector("[data-canvas]");
    this.body = figure.querySelector("[data-history]");
    const keys = this.kind === "working" ? ["working"] : ["reads", "writes"];
    const rows = all("tr", this.body);
    this.data = [rows.map((row) => Number(row.dataset.time) / 1000)];
    for (const key of keys) this.data.push(rows.map((row) => Number(row.dataset[key])));
    this.draw();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  size() {
    return { width: Math.max(this.canvas.clientWidth, 200), height: 190 };
  }

  draw() {
    const colours = getComputedStyle(document.documentElement);
    const colour = (name) => colours.getPropertyValue(name).trim();
    const show = this.kind === "working" ? percent : count;
    const series = (label, stroke, dash) => ({
      label,
      stroke,
      dash,
      width: 2,
      points: { show: false },
      value: (_, value) => (value === null || value === undefined ? MISSING : show(value)),
    });
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const lines = this.kind === "working"
      ? [series("working", colour("--one"))]
      : [series("reads/s", colour("--one")), series("writes/s", colour("--two"), [6, 3])];
    const options = {
      ...this.size(),
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      cursor: { drag: { x: false, y: false } },
      scales: { x: { range: (_, first, last) => [Math.min(first, last - 30), last] }, y: { range: (_, low, high) => [0, this.kind === "working" ? 100 : Math.max(high * 1.15, 1)] } },
      axes: [{ ...axis, space: 88, values: (_, times) => times.map((seconds) => clock(seconds * 1000)) }, { ...axis, size: 64, values: (_, values) => values.map((value) => (this.kind === "working" ? `${value} %` : count(value))) }],
      series: [{ value: (_, seconds) => (seconds ? clock(seconds * 1000) : MISSING) }, ...lines],
    };
    this.plot?.destroy();
    this.plot = new uPlot(options, this.data, this.canvas);
  }

  resize() {
    this.plot.setSize(this.size());
  }

  add(rates) {
    const ms = rates["time-ms"];
    const point = this.kind === "working"
      ? [sum(rates.cores, (it) => it.working) / Math.max(rates.cores.length, 1)]
      : [sum(rates.volumes, (it) => it.reads), sum(rates.volumes, (it) => it.writes)];
    const times = this.data[0];
    if (times.length > 0 && ms / 1000 <= times[times.length - 1]) return;
    times.push(ms / 1000);
    point.forEach((value, place) => this.data[place + 1].push(value));
    const row = element("tr");
    const head = element("th", clock(ms));
    head.scope = "row";
    const cells = this.kind === "working"
      ? [percent(point[0])]
      : [count(point[0]), count(point[1]), bytesPerSecond(sum(rates.volumes, (it) => it["read-bytes"])), bytesPerSecond(sum(rates.volumes, (it) => it["written-bytes"]))];
    row.append(head, ...cells.map((text) => {
      const cell = element("td", text);
      cell.className = "number";
      return cell;
    }));
    this.body.append(row);
    while (times.length > POINTS) {
      for (const list of this.data) list.shift();
      this.body.firstElementChild?.remove();
    }
    this.plot.setData(this.data);
  }
}

// Parts of the page that the server writes anew when something has changed.

let refreshing = false;
let again = false;
let timer = 0;

function refreshSoon(after = 150) {
  if (timer === 0) timer = setTimeout(refresh, after);
}

async function refresh() {
  timer = 0;
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  try {
    const response = await fetch(location.pathname + location.search, { cache: "no-store" });
    if (response.redirected) return location.assign(response.url);
    if (response.ok) {
      const text = await response.text();
      replaceParts(new DOMParser().parseFromString(text, "text/html"));
    } else if (response.status === 404) {
      announce("This object is not there any more");
    }
  } catch {
    // The stream of events tells when the server is back.
  } finally {
    refreshing = false;
    if (again) {
      again = false;
      refreshSoon(1000);
    }
  }
}

function replaceParts(fresh) {
  for (const part of all("[data-part]")) {
    const other = fresh.getElementById(part.id);
    // Whoever is in the middle of something is left alone.
    const isBusy = part.querySelector("dialog[open], details[open]") || (part.contains(document.activeElement) && document.activeElement.closest("form, dialog"));
    if (!other || isBusy || same(part, other)) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && all("a, button, [tabindex]", part).indexOf(focused);
    part.replaceChildren(...[...other.childNodes].map((node) => document.importNode(node, true)));
    if (focused) all("a, button, [tabindex]", part)[place]?.focus();
  }
}

// Numbers that change all the time are no reason to write a part anew.
function same(part, other) {
  const text = (it) => {
    const copy = it.cloneNode(true);
    for (const live of all("[data-live]", copy)) live.textContent = "";
    for (const bar of all("[data-bar]", copy)) bar.removeAttribute("width"), bar.removeAttribute("x");
    return copy.outerHTML;
  };
  return text(part) === text(other);
}

// One stream of events for each page, closed while nobody looks.

let stream = null;
const pid = document.body.dataset.pid;

function live(state, text) {
  const dot = document.querySelector("[data-live-state]");
  if (dot) dot.dataset.liveState = state;
  setText(document.querySelector("[data-live-text]"), text);
  document.body.dataset.live = state;
}

function open() {
  if (stream || document.hidden || !pid) return;
  stream = new EventSource(`${API}/events?topics=rates,change,session,volume,audit,log,gap`);
  stream.onopen = () => {
    live("on", "live");
    refreshSoon();
  };
  stream.onerror = () => {
    live("lost", "not connected");
    if (stream?.readyState === EventSource.CLOSED) {
      close();
      // Logged out, or the server was started anew: the page says which.
      setTimeout(() => refresh().finally(open), 5000);
    }
  };
  stream.addEventListener("rates", (event) => showRates(JSON.parse(event.data)));
  for (const topic of ["change", "session", "volume", "gap"]) {
    stream.addEventListener(topic, (event) => {
      announce(JSON.parse(event.data).message);
      refreshSoon();
    });
  }
  for (const topic of ["audit", "log"]) {
    stream.addEventListener(topic, () => {
      if (document.getElementById("part-events")) refreshSoon(1000);
    });
  }
}

function close() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    close();
    live("off", "paused");
  } else {
    open();
  }
});
addEventListener("pagehide", close);
addEventListener("pageshow", open);

// Forms.

function filled(template, form) {
  return template.replace(/\{([a-z-]+)\}/g, (_, key) => encodeURIComponent(form.elements.namedItem(key)?.value.trim() ?? ""));
}

function requestOf(form) {
  const body = {};
  const query = new URLSearchParams();
  for (const field of form.elements) {
    const { in: place, type } = field.dataset;
    if (!place || field.closest("[hidden]")) continue;
    const value = type === "flag" || field.type === "checkbox" ? field.checked : field.value.trim();
    if (value === "" || value === false) continue;
    if (place === "query") query.set(field.name, "true");
    else if (place === "body") body[field.name] = field.name === "block-size" || type === "number" ? Number(value) : value;
  }
  return { body, query };
}

async function ask(method, path, query, body, headers = {}) {
  const address = query.size > 0 ? `${path}?${query}` : path;
  const options = { method, headers: { ...headers } };
  if (body !== undefined && method !== "DELETE") {
    options.headers["Content-Type"] = "application/json";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    return { problem: { title: "the server does not answer", advice: "try again in a moment" } };
  }
  const text = await response.text();
  let document = {};
  try {
    document = text === "" ? {} : JSON.parse(text);
  } catch {
    document = { title: `the answer is no JSON (status ${response.status})` };
  }
  if (response.status === 401) return { problem: { title: "you are logged out", advice: "log in again: longshore dashboard" } };
  if (!response.ok) return { problem: document };
  return { document };
}

function clearProblems(form) {
  for (const place of all(".error, .problem", form)) setText(place, "");
  for (const field of all("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
}

function sentence(problem) {
  const place = problem.location ? ` (${problem.location})` : "";
  const advice = problem.advice ? `\n${problem.advice}` : "";
  return `${problem.title ?? "it was refused"}${place}${advice}`;
}

// The field that a problem is about: the one whose key it names.
function fieldOf(form, problem) {
  const text = `${problem.title ?? ""} ${problem.location ?? ""}`.toLowerCase();
  const visible = [...form.elements].filter((field) => field.dataset.in && !field.closest("[hidden]"));
  const quoted = visible.find((field) => text.includes(`\`${field.name}\``));
  return quoted ?? visible.find((field) => new RegExp(`(^|[^a-z-])${field.name}([^a-z-]|$)`).test(text));
}

function showProblem(form, problem) {
  const rest = [];
  let first = null;
  for (const one of [problem, ...(problem.further ?? [])]) {
    const field = fieldOf(form, one);
    if (!field) {
      rest.push(sentence(one));
      continue;
    }
    field.setAttribute("aria-invalid", "true");
    setText(document.getElementById(`${field.id}-error`), sentence(one));
    first ??= field;
  }
  setText(form.querySelector(".problem"), rest.join("\n"));
  if (first) {
    announce(document.getElementById(`${first.id}-error`).textContent);
    first.focus();
  }
}

function checkRequired(form) {
  const empty = [...form.elements].filter((field) => field.required && !field.closest("[hidden]") && field.value.trim() === "");
  for (const field of empty) {
    field.setAttribute("aria-invalid", "true");
    setText(document.getElementById(`${field.id}-error`), "This is needed.");
  }
  empty[0]?.focus();
  return empty.length === 0;
}

async function once(form, act) {
  if (form.dataset.busy !== undefined) return;
  form.dataset.busy = "";
  const buttons = all("button[type=submit]", form);
  for (const button of buttons) button.setAttribute("aria-disabled", "true");
  try {
    await act();
  } finally {
    delete form.dataset.busy;
    for (const button of buttons) button.removeAttribute("aria-disabled");
  }
}

async function submit(form) {
  clearProblems(form);
  if (!checkRequired(form)) return;
  const { method, path, next } = form.dataset;
  const { body, query } = requestOf(form);
  const headers = form.dataset.create === undefined ? {} : { "If-None-Match": "*" };
  const { problem } = await ask(method, filled(path, form), query, body, headers);
  if (problem) return showProblem(form, problem);
  if (next) return location.assign(filled(next, form));
  form.closest("dialog")?.close();
  form.reset();
  announce("Done");
  await refresh();
}

// Changes that show their plan first.

async function plan(form, submitter) {
  clearProblems(form);
  const apply = submitter?.dataset.step === "apply";
  const editor = form.querySelector("[data-document]");
  const { query } = requestOf(form);
  const headers = apply ? { "If-Match": `"${form.dataset.planned}"` } : {};
  if (!apply) query.set("dry-run", "true");
  const { document: answer, problem } = await ask(form.dataset.method, form.dataset.path, query, editor?.value, headers);
  const place = form.querySelector("[data-plan]");
  if (problem) {
    forgetPlan(form);
    return showProblem(form, problem);
  }
  if (apply) {
    forgetPlan(form);
    place.replaceChildren(element("p", `Done: revision ${answer.revision}.`));
    if (editor) editor.dataset.clean = "";
    form.closest("dialog")?.close();
    return refresh();
  }
  form.dataset.planned = answer.revision;
  place.replaceChildren(...planned(answer));
  const isEmpty = answer.steps.length + (answer.listeners ?? []).length + (answer.settings ?? []).length === 0;
  form.querySelector("[data-step=apply]").hidden = isEmpty;
}

function forgetPlan(form) {
  delete form.dataset.planned;
  form.querySelector("[data-plan]").replaceChildren();
  form.querySelector("[data-step=apply]").hidden = true;
}

const WORDS = { add: "Add", change: "Change", adopt: "Adopt", remove: "Remove" };

function planned(answer) {
  const value = (it) => (it === undefined ? "not set" : JSON.stringify(it));
  const key = (it) => element("li", `${it.key}: ${value(it.before)} → ${value(it.after)}`);
  const items = answer.steps.map((step) => {
    const item = element("li", `${WORDS[step.action] ?? step.action} ${step.kind} ${step.name}${step.effect ? ` (${step.effect})` : ""}`);
    if (step.changes?.length) item.append(element("ul", "", ...step.changes.map(key)));
    return item;
  });
  items.push(...(answer.listeners ?? []).map((it) => element("li", `${WORDS[it.action]} listener ${it.address} (${it.service})`)));
  items.push(...(answer.settings ?? []).map(key));
  const notes = [
    ...(answer["needs-restart"] ?? []).map((it) => `${it} takes effect at the next start`),
    ...(answer.warnings ?? []),
  ].map((text) => element("li", `Note: ${text}`));
  if (items.length === 0) return [element("p", `No changes to revision ${answer.revision}.`), element("ul", "", ...notes)];
  return [element("ul", "", ...items, ...notes)];
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("form.change")) {
    event.preventDefault();
    once(form, () => submit(form));
  } else if (form.matches("form.planned")) {
    event.preventDefault();
    once(form, () => plan(form, event.submitter));
  }
});

document.addEventListener("input", (event) => {
  const form = event.target.closest("form.planned");
  if (form) forgetPlan(form);
});

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.opens);
    dialog.showModal();
    showBackend(dialog);
  }
  event.target.closest("[data-close]")?.closest("dialog")?.close();
});

// Fields that belong to some kinds of storage alone.
function showBackend(within) {
  const backend = within.querySelector("select[name=backend]");
  if (!backend) return;
  for (const field of all("[data-backends]", within)) {
    field.hidden = !field.dataset.backends.split(" ").includes(backend.value);
  }
}
document.addEventListener("change", (event) => {
  if (event.target.name === "backend") showBackend(event.target.form);
});

// Colours are kept in a cookie, so that the server writes them into the page before it is drawn.

const theme = document.getElementById("theme");
theme?.addEventListener("change", () => {
  const year = 365 * 24 * 3600;
  document.cookie = `longshore_theme=${theme.value}; Path=/; SameSite=Strict; Max-Age=${year}`;
  document.documentElement.dataset.theme = theme.value;
  for (const chart of charts) chart.draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.draw();
});

// The code of a log-in is behind the # of the URL, where neither logs nor servers see it.

const code = document.getElementById("code");

function logIn() {
  if (!code || location.hash.length < 2) return;
  code.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  code.form.requestSubmit();
}

// The page of the log-in may be open already.
addEventListener("hashchange", logIn);
logIn();

for (const figure of all("figure[data-chart]")) charts.push(new Chart(figure));
const every = Number(document.querySelector("[data-refresh]")?.dataset.refresh);
if (every > 0) setInterval(() => document.hidden || refreshSoon(), every * 1000);
open();
