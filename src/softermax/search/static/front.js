// Points of a search: a picture of them, each a button. Who is clicked shows its figures, its spec to copy or to keep, and
// how its Verilog is made. The explorer and the report both show this; neither needs anything else for it.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 640, HEIGHT = 340, LEFT = 56, BOTTOM = 36, TOP = 12, RIGHT = 16;

const drawn = (name, attributes, text) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

const made = (name, attributes, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

const rounded = (value) =>
  Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));

/** A design that is no spec has null there, or the name by which its page chooses it. */
const isSpec = (point) => point.spec !== null && typeof point.spec === "object";

const described = ({ name, area, energy, l1 }) =>
  `${name}: ${rounded(area)} µm², ${rounded(energy)} pJ per score, L1 ${rounded(l1)}`;

/** A scale that spreads ratios evenly, over the values' own range. */
function logarithmic(values, from, to) {
  const low = Math.log(Math.min(...values)), high = Math.log(Math.max(...values));
  return (value) => from + ((Math.log(value) - low) / (high - low || 1)) * (to - from);
}

/** 1, 2 and 5 times powers of ten within the values' own range. */
function ticks(values) {
  const low = Math.min(...values), high = Math.max(...values), found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    found.push(...[1, 2, 5].map((digit) => Number(`${digit}e${power}`)).filter((tick) => low <= tick && tick <= high));
  }
  return found;
}

const FIGURES = [
  ["area", "area of the units, µm²"], ["energy", "energy, pJ per score"], ["l1", "L1 to softmax"], ["kl", "KL"], ["mass", "mass"],
  ["whole_area", "area with the memory between the units, µm²"], ["whole_energy", "energy with that memory, pJ per score"],
  ["measured_area", "area of its own netlists, µm²"], ["measured_energy", "energy of its own netlists, pJ per score"],
  ["measured_slack_ns", "slack of its own netlists, ns"], ["perplexity", "perplexity"], ["score_lost", "points lost"],
];

function keep(name, text) {
  const link = made("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Of the point that was chosen: figures, and of a spec its words and where its Verilog comes from. */
function details(point) {
  const parts = [made("h4", {}, point.name)];
  const list = made("dl", {});
  for (const [key, label] of FIGURES) {
    if (typeof point[key] === "number") list.append(made("dt", {}, label), made("dd", {}, rounded(point[key])));
  }
  parts.push(list);
  if (point.note) parts.push(made("p", {}, point.note));
  if (!isSpec(point)) return parts;
  const file = `${point.name.replaceAll(":", "-")}.json`;
  const text = JSON.stringify(point.spec, null, 2) + "\n";
  const copy = made("button", { type: "button", "data-do": "copy" }, "Copy spec");
  const save = made("button", { type: "button", "data-do": "save" }, `Download ${file}`);
  const shown = made("pre", { tabindex: 0, "aria-label": `spec of ${point.name}` }, text);
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      // A page that was opened as a file may not write there: the text is marked instead.
      getSelection().selectAllChildren(shown);
      copy.textContent = "Marked: copy it with Ctrl-C";
    }
  });
  save.addEventListener("click", () => keep(file, text));
  parts.push(
    made("p", {}, copy, " ", save),
    made("p", {}, "Its Verilog, with bench, vectors and datasheet: ", made("code", {}, `softermax rtl --spec ${file} --out build/${point.name.replaceAll(":", "-")}`)),
    made("details", {}, made("summary", {}, "The spec"), shown),
  );
  return parts;
}

function mark(point, x, y, r) {
  const beside = point.spec === null && point.note;
  const kind = !beside ? `${point.front ? "on-front" : "behind"}${point.trial === null ? " preset" : ""}` : "rival";
  const common = {
    class: `point ${kind}`, tabindex: 0, role: "button", "aria-label": described(point), "data-name": point.name,
  };
  const shape = !beside
    ? drawn("circle", { cx: x, cy: y, r, ...common })
    : drawn("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...common });
  shape.append(drawn("title", {}, described(point)));
  return shape;
}

/** Draw the points into a box; `note` shows the one that is clicked, or chosen with Enter, and `choose` gets its spec. */
export function showFront(box, note, points, choose = () => {}) {
  const shown = points.filter((point) => point.l1 > 0);
  const x = logarithmic(shown.map((p) => p.area), LEFT + 10, WIDTH - RIGHT - 10);
  const y = logarithmic(shown.map((p) => p.l1), HEIGHT - BOTTOM - 10, TOP + 10);
  const size = logarithmic(shown.map((p) => p.energy), 3, 8);
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "front" });
  svg.append(
    drawn("path", { class: "axis", d: `M${LEFT},${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }),
    drawn("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "area, µm² (logarithmic)"),
    drawn("text", { x: -HEIGHT / 2, y: 12, transform: "rotate(-90)", "text-anchor": "middle" }, "L1 to softmax (logarithmic)"),
  );
  const floor = HEIGHT - BOTTOM;
  for (const tick of ticks(shown.map((p) => p.area))) {
    svg.append(
      drawn("path", { class: "tick", d: `M${x(tick)},${TOP}V${floor}` }),
      drawn("text", { x: x(tick), y: floor + 12, "text-anchor": "middle" }, tick.toLocaleString("en")),
    );
  }
  for (const tick of ticks(shown.map((p) => p.l1))) {
    svg.append(
      drawn("path", { class: "tick", d: `M${LEFT},${y(tick)}H${WIDTH - RIGHT}` }),
      drawn("text", { x: LEFT - 4, y: y(tick) + 3, "text-anchor": "end" }, String(tick)),
    );
  }
  const labels = [];
  for (const point of shown) {
    const shape = mark(point, x(point.area), y(point.l1), size(point.energy));
    const take = () => {
      for (const other of svg.querySelectorAll(".chosen")) other.classList.remove("chosen");
      shape.classList.add("chosen");
      note.replaceChildren(...details(point));
      if (point.spec !== null) choose(point.spec);
    };
    shape.addEventListener("click", take);
    shape.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        take();
      }
    });
    svg.append(shape);
    if (point.trial === null) labels.push({ x: x(point.area) + 9, y: y(point.l1) - 7, text: point.name });
  }
  // One below the other where they would lie on each other.
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, n) => {
    for (const other of labels.slice(0, n)) {
      if (Math.abs(label.x - other.x) < 110 && Math.abs(label.y - other.y) < 11) label.y = other.y + 11;
    }
    const left = label.x > WIDTH - 130;
    svg.append(drawn("text", { x: left ? label.x - 18 : label.x, y: label.y, class: "name", "text-anchor": left ? "end" : "start" }, label.text));
  });
  box.replaceChildren(svg);
}
