"use strict";
// Draws the figures that Python made, in the colours of the page: shared by the live page and the report.

const wanted = new Map(); // element -> the figure that it is to show
const late = new Set(); // elements that are out of sight, and will show their figure when they come into it
const MARGIN = 300; // pixels around the window in which figures are drawn

function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: colour("ink"), muted: colour("muted"), faint: colour("faint"), paper: colour("paper"), line: colour("line") };
}

function withTheme(value, colours) {
  if (typeof value === "string") return value[0] === "@" ? colours[value.slice(1)] : value;
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map((v) => withTheme(v, colours)) : value;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, withTheme(v, colours)]));
}

function layoutOf(figure, element, colours) {
  const layout = figure.layout;
  const narrow = element.clientWidth < 560;
  const axis = (own) => ({
    gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.line, automargin: true, ticks: "",
    ...own, title: { font: { size: 12, color: colours.muted }, standoff: 8, ...own.title },
  });
  const legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, xanchor: "left", font: { size: 11 }, bgcolor: "rgba(0,0,0,0)" };
  const titles = withTheme(layout.coloraxis || {}, colours);
  const coloraxis = { ...titles, colorbar: { ...titles.colorbar, tickfont: { size: 11 }, title: { text: narrow ? "" : "return", side: "right", font: { size: 12, color: colours.muted } } } };
  return {
    ...withTheme(layout, colours),
    xaxis: axis(withTheme(layout.xaxis, colours)),
    yaxis: axis(withTheme(layout.yaxis, colours)),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colours.ink, size: 12, family: getComputedStyle(document.body).fontFamily },
    hoverlabel: { bgcolor: colours.paper, bordercolor: colours.line, font: { color: colours.ink, size: 12 }, align: "left" },
    margin: { l: narrow ? 44 : 56, r: 12, t: 12, b: 40 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.muted, activecolor: colours.ink },
    legend, coloraxis, uirevision: figure.title, autosize: true, height: heightOf(figure, element),
  };
}

/** On a narrow screen the names in the legend take lines of their own. */
function heightOf(figure, element) {
  const named = figure.data.filter((trace) => trace.showlegend !== false).length;
  const lines = Math.ceil(named / Math.max(1, Math.floor(element.clientWidth / 190)));
  return figure.layout.height + 20 * Math.max(0, lines - 1);
}

/** Draw a figure now or, if it is out of sight, when it comes into it: drawing is what takes time. */
function draw(element, figure) {
  if (!wanted.has(element)) sight.observe(element);
  wanted.set(element, figure);
  element.style.height = `${heightOf(figure, element)}px`;
  if (isWithin(element, 0)) return drawNow(element);
  late.add(element);
  setTimeout(() => { if (late.has(element) && isWithin(element, MARGIN)) drawNow(element); }, 100); // what is near comes next
}

function isWithin(element, margin) {
  const place = element.getBoundingClientRect();
  return place.top < innerHeight + margin && place.bottom > -margin;
}

function drawNow(element) {
  late.delete(element);
  const colours = themeColours();
  const figure = wanted.get(element);
  const options = { responsive: true, displaylogo: false, displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"] };
  return Plotly.react(element, withTheme(figure.data, colours), layoutOf(figure, element, colours), options);
}

const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting && late.has(entry.target)) drawNow(entry.target);
}, { rootMargin: `${MARGIN}px` });
addEventListener("beforeprint", () => { for (const element of late) drawNow(element); });

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Draw figures as cards in `box`; cards of figures that are there already stay, so that a zoom stays. */
function drawAll(box, figures) {
  const known = new Map([...box.children].map((card) => [card.dataset.title, card]));
  const cards = figures.map((figure) => {
    let card = known.get(figure.title);
    if (!card) {
      card = make("div", { class: "card" }, make("h3"), make("p", { class: "note" }), make("div", { class: "plot" }));
      card.dataset.title = figure.title;
    }
    card.children[0].textContent = figure.title;
    card.children[1].textContent = figure.caption;
    return card;
  });
  for (const card of box.children) if (!cards.includes(card)) forget(card);
  box.classList.toggle("one", figures.length < 2);
  if (cards.length !== box.children.length || cards.some((card, i) => card !== box.children[i])) box.replaceChildren(...cards);
  return Promise.all(figures.map((figure, i) => draw(cards[i].children[2], figure)));
}

function forget(card) {
  const element = card.children[2];
  wanted.delete(element);
  late.delete(element);
  sight.unobserve(element);
  Plotly.purge(element);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [element, figure] of wanted) draw(element, figure);
});
