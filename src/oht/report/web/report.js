// The report: draws the figures that the file holds; those of a run when its part is opened.

const data = JSON.parse(document.getElementById("data").textContent);
const choice = { by: "steps", each: "mean" };

function showReturns() {
  for (const id of ["by", "each"]) {
    for (const button of document.getElementById(id).children) button.setAttribute("aria-pressed", button.value === choice[id]);
  }
  return drawAll(document.getElementById("returns"), data.returns[`${choice.by}-${choice.each}`]);
}

for (const id of ["by", "each"]) {
  document.getElementById(id).addEventListener("click", (event) => {
    if (event.target.value) { choice[id] = event.target.value; showReturns(); }
  });
}

function showRun(part) {
  const box = part.querySelector(".figures");
  if (part.open && box && !box.children.length) return drawAll(box, data.runs[box.dataset.run]);
}

/** Also what is out of sight, one after the other, so that the page is complete for printing and for screenshots. */
function drawRest() {
  const [element] = late;
  if (!element) return;
  drawNow(element);
  setTimeout(drawRest, 20);
}

const parts = [...document.querySelectorAll("details")];
for (const part of parts) part.addEventListener("toggle", async () => { await showRun(part); drawRest(); });
Promise.all([showReturns(), ...parts.map(showRun)]).then(() => { document.body.dataset.drawn = 1; drawRest(); });
