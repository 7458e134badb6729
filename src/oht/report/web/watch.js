"use strict";
// The live page: asks the server every few seconds, and draws what has changed.

const PAUSE = 2000; // milliseconds between two looks at the runs
const COLUMNS = [
  { key: "label", title: "method", class: "method", cell: methodCell },
  { key: "task", title: "task", class: "wide-only" },
  { key: "seed", title: "seed", class: "number wide-only" },
  { key: "state", title: "state", cell: stateCell },
  { key: "progress", title: "progress", class: "wide-only", cell: progressCell },
  { key: "speed", title: "steps/s", class: "number wide-only", text: (run) => number(run.speed, 0) },
  { key: "eta", title: "time left", class: "number wide-only", text: (run) => duration(run.eta) },
  { key: "last", title: "last eval.", hint: "mean return of the last evaluation", class: "number", text: (run) => number(run.last) },
  { key: "best", title: "best eval.", hint: "mean return of the best evaluation", class: "number", text: (run) => number(run.best) },
  { key: "name", title: "folder", class: "folder wide-only" },
];
const STATES = ["running", "done", "stopped", "failed"];
const saved = JSON.parse(sessionStorage.getItem("oht") || "{}");
const view = {
  runs: [], selected: new Set(saved.selected || []), touched: Boolean(saved.selected), focus: saved.focus || null,
  other: saved.other || "", sort: saved.sort || { key: null, up: true }, filter: "", states: new Set(),
  by: saved.by || "steps", each: saved.each || "mean", onlyDifferences: false,
};
const shown = {}; // what each part shows now, as text, to draw only what has changed
const turns = {}; // how often each part was asked for
const $ = (id) => document.getElementById(id);

function keep() {
  const { focus, other, sort, by, each } = view;
  sessionStorage.setItem("oht", JSON.stringify({ selected: view.touched ? [...view.selected] : undefined, focus, other, sort, by, each }));
}

// Words and numbers

function number(value, digits) {
  if (value === null || value === undefined) return "–";
  const places = digits ?? (Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 10 ? 1 : 3);
  return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${(seconds / 60).toFixed(1)} min`;
  const minutes = Math.round(seconds / 60);
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min` : `${(minutes / 1440).toFixed(1)} days`;
}

function titleOf(run) { return `${run.label}, seed ${run.seed}, ${run.task} (${run.name})`; }

// The table of runs

function methodCell(run) {
  const small = make("div", { class: "second narrow-only" }, `${run.task}, seed ${run.seed}`);
  return [make("span", { title: run.name }, run.label), small];
}

function stateCell(run) {
  const small = make("div", { class: "second narrow-only" }, `${Math.floor(100 * run.progress)} %`);
  return [make("span", { class: `state ${run.state}`, title: run.reason }, run.state), small];
}

function progressCell(run) {
  const percent = Math.floor(100 * run.progress);
  const bar = make("i", {}, make("b"));
  bar.firstChild.style.width = `${percent}%`;
  const words = `${run.env_steps.toLocaleString("en")} of ${run.steps.toLocaleString("en")} env steps in ${duration(run.wall_time)}`;
  return [make("div", { class: "progress", title: words }, bar, make("span", {}, `${percent} %`))];
}

function visibleRuns() {
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => `${run.task} ${run.label} ${run.algo} seed ${run.seed} s${run.seed} ${run.state} ${run.name}`.toLowerCase();
  const found = view.runs.filter((run) => (!view.states.size || view.states.has(run.state)) && words.every((w) => text(run).includes(w)));
  const { key, up } = view.sort;
  if (!key) return found;
  const order = (a, b) => {
    const [x, y] = [a[key], b[key]];
    if (x === null || y === null) return (x === null) - (y === null); // what is not known comes last
    const less = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return up ? less : -less;
  };
  return found.sort(order);
}

function showHead() {
  const all = make("input", { type: "checkbox", id: "all", title: "select all that are shown" });
  all.setAttribute("aria-label", "select all runs that are shown");
  all.addEventListener("change", () => {
    for (const run of visibleRuns()) all.checked ? view.selected.add(run.id) : view.selected.delete(run.id);
    view.touched = true;
    refresh();
  });
  const cells = COLUMNS.map((column) => {
    const button = make("button", { type: "button", title: column.hint || `sort by ${column.title}` }, column.title);
    button.addEventListener("click", () => {
      const same = view.sort.key === column.key;
      if (same && !view.sort.up) view.sort = { key: null, up: true };
      else view.sort = { key: column.key, up: !same };
      refresh();
    });
    const cell = make("th", { class: column.class || "", scope: "col" }, button);
    if (view.sort.key === column.key) cell.setAttribute("aria-sort", view.sort.up ? "ascending" : "descending");
    return cell;
  });
  $("runs").tHead.replaceChildren(make("tr", {}, make("th", { scope: "col" }, all), ...cells));
}

function showTable() {
  const visible = visibleRuns();
  const text = JSON.stringify([visible, [...view.selected], view.focus, view.sort]);
  if (shown.table === text) return;
  shown.table = text;
  showHead();
  const rows = visible.map((run) => {
    const box = make("input", { type: "checkbox", checked: view.selected.has(run.id) });
    box.setAttribute("aria-label", `select ${titleOf(run)}`);
    box.addEventListener("change", () => {
      box.checked ? view.selected.add(run.id) : view.selected.delete(run.id);
      view.touched = true;
      refresh();
    });
    const cells = COLUMNS.map((c) => make("td", { class: c.class || "" }, ...(c.cell ? c.cell(run) : [c.text ? c.text(run) : String(run[c.key])])));
    const row = make("tr", { class: run.id === view.focus ? "focus" : "" }, make("td", {}, box), ...cells);
    row.dataset.run = run.id;
    row.addEventListener("click", (event) => {
      if (event.target === box) return;
      view.focus = run.id;
      view.selected.add(run.id);
      view.touched = true;
      refresh();
    });
    return row;
  });
  if (!rows.length) {
    const words = view.runs.length ? "No run matches the filter." : "There is no run here yet. Start one: oht train Pendulum-v1";
    rows.push(make("tr", {}, make("td", { class: "empty", colSpan: COLUMNS.length + 1 }, words)));
  }
  $("runs").tBodies[0].replaceChildren(...rows);
  const chosen = visible.filter((run) => view.selected.has(run.id)).length;
  $("all").checked = chosen > 0 && chosen === visible.length;
  $("all").indeterminate = chosen > 0 && chosen < visible.length;
  $("selection").textContent = view.runs.length
    ? `${view.selected.size} of ${view.runs.length} runs selected. Tick runs to compare them; click on one to look into it.` : "";
}

function showStates() {
  const chips = STATES.map((state) => {
    const count = view.runs.filter((run) => run.state === state).length;
    const chip = make("button", { type: "button", class: "chip" }, `${count} ${state}`);
    chip.setAttribute("aria-pressed", view.states.has(state));
    chip.addEventListener("click", () => {
      view.states.has(state) ? view.states.delete(state) : view.states.add(state);
      refresh();
    });
    return chip;
  });
  $("states").replaceChildren(...chips);
}

// What the server is asked for

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.text();
}

async function showPart(name, path, show) {
  const turn = (turns[name] = (turns[name] || 0) + 1);
  const text = await ask(path);
  if (shown[name] === text || turn !== turns[name]) return; // nothing new, or something else was asked for meanwhile
  shown[name] = text;
  await show(JSON.parse(text));
}

const plotlyIsHere = new Promise((resolve) => { // it is large: the table does not wait for it
  if (window.Plotly) resolve();
  else $("plotly").addEventListener("load", resolve);
});

async function showReturns() {
  const chosen = view.runs.filter((run) => view.selected.has(run.id));
  $("returns-part").hidden = !view.runs.length;
  if (!chosen.length) {
    shown.returns = undefined;
    for (const card of $("returns").querySelectorAll(".card")) forget(card);
    $("returns").replaceChildren(make("p", { class: "empty" }, "No run is selected."));
    return;
  }
  const query = `by=${view.by}&each=${view.each === "each" ? 1 : 0}&runs=${chosen.map((run) => run.id).join(",")}`;
  await showPart("returns", `api/returns?${query}`, async (figures) => {
    $("returns").querySelector(".empty")?.remove();
    await plotlyIsHere;
    await drawAll($("returns"), figures);
  });
}

async function showFocus() {
  for (const part of ["tuning-part", "config-part"]) $(part).hidden = !view.focus;
  if (!view.focus) return;
  fill($("focus"), view.runs, view.focus);
  fill($("other"), view.runs.filter((run) => run.id !== view.focus), view.other, "no other run");
  const details = showPart("tuning", `api/tuning?run=${view.focus}`, async (answer) => {
    $("tuning-note").textContent = answer.note;
    await plotlyIsHere;
    await drawAll($("tuning"), answer.figures);
  });
  const config = showPart("config", `api/config?run=${view.focus}&other=${view.other}`, showConfig);
  await Promise.all([details, config]);
}

function fill(select, runs, value, none) {
  const text = JSON.stringify([runs.map((run) => [run.id, titleOf(run)]), value]);
  if (shown[select.id] === text) return;
  shown[select.id] = text;
  const options = runs.map((run) => make("option", { value: run.id }, titleOf(run)));
  if (none) options.unshift(make("option", { value: "" }, none));
  select.replaceChildren(...options);
  select.value = value;
}

function showConfig(answer) {
  const rows = answer.rows.filter((row) => !view.onlyDifferences || row.differs || answer.columns.length < 2);
  const head = ["setting", ...answer.columns].map((title) => make("th", { scope: "col" }, title));
  $("config").tHead.replaceChildren(make("tr", {}, ...head));
  const lines = rows.map((row) => make("tr", { class: row.differs ? "differs" : "" },
    make("td", { class: "setting" }, row.name), ...row.values.map((value) => make("td", { class: "text" }, value))));
  if (!lines.length) lines.push(make("tr", {}, make("td", { class: "empty", colSpan: 3 }, "The two runs do not differ.")));
  $("config").tBodies[0].replaceChildren(...lines);
}

// The page

function chooseAtFirst() {
  const known = new Set(view.runs.map((run) => run.id));
  for (const id of view.selected) if (!known.has(id)) view.selected.delete(id);
  const newest = [...view.runs].sort((a, b) => (b.state === "running") - (a.state === "running") || b.started.localeCompare(a.started))[0];
  if (!known.has(view.focus)) view.focus = newest ? newest.id : null;
  if (!known.has(view.other) || view.other === view.focus) view.other = "";
  if (!view.touched && newest) view.selected = new Set(view.runs.filter((run) => run.task === newest.task).map((run) => run.id));
}

let round = 0;
async function refresh() {
  const mine = ++round;
  chooseAtFirst();
  keep();
  showStates();
  showTable();
  for (const [id, value] of [["by", view.by], ["each", view.each]]) {
    for (const button of $(id).children) button.setAttribute("aria-pressed", button.value === value);
  }
  try {
    await Promise.all([showReturns(), showFocus()]);
    if (mine === round) document.body.dataset.drawn = mine;
  } catch (error) {
    lost(error);
  }
}

function lost(error) {
  if (error instanceof TypeError) $("gone").hidden = false; // the server does not answer
  else $("status").textContent = error.message;
}

async function look() {
  try {
    const text = await ask("api/runs");
    $("gone").hidden = true;
    const answer = JSON.parse(text);
    $("root").textContent = answer.root;
    document.title = `oht watch: ${answer.root}`;
    const running = answer.runs.filter((run) => run.state === "running").length;
    $("status").textContent = running ? `live: ${running} training, read every ${PAUSE / 1000} s` : "no run is training";
    $("problems").hidden = !answer.problems.length;
    $("problems").textContent = answer.problems.join(" ");
    view.runs = answer.runs;
    await refresh();
  } catch (error) {
    lost(error);
  }
  setTimeout(again, PAUSE);
}

function again() {
  if (document.hidden) document.addEventListener("visibilitychange", look, { once: true });
  else look();
}

$("filter").addEventListener("input", (event) => { view.filter = event.target.value; refresh(); });
$("focus").addEventListener("change", (event) => { view.focus = event.target.value; refresh(); });
$("other").addEventListener("change", (event) => { view.other = event.target.value; refresh(); });
$("differences").addEventListener("change", (event) => { view.onlyDifferences = event.target.checked; shown.config = undefined; refresh(); });
for (const id of ["by", "each"]) {
  $(id).addEventListener("click", (event) => {
    if (event.target.value) { view[id] = event.target.value; refresh(); }
  });
}
look();
