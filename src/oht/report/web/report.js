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

const parts = [...document.querySelectorAll("details")];
for (const part of parts) part.addEventListener("toggle", () => showRun(part));
Promise.all([showReturns(), ...parts.map(showRun)]).then(() => { document.body.dataset.drawn = 1; });
