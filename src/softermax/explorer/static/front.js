// Points of a search: a picture of them, each a button that puts its spec into the page.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 640, HEIGHT = 260, LEFT = 56, BOTTOM = 36, TOP = 12, RIGHT = 16;

const made = (name, attributes, text) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

const figure = (value) => (value >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3)));

const described = ({ name, area, energy, l1 }) =>
  `${name}: ${figure(area)} µm², ${figure(energy)} pJ per score, L1 ${figure(l1)}`;

/** A scale that spreads ratios evenly, over the values' own range. */
function logarithmic(values, from, to) {
  const low = Math.log(Math.min(...values)), high = Math.log(Math.max(...values));
  return (value) => from + ((Math.log(value) - low) / (high - low || 1)) * (to - from);
}

/** Draw the points into a box; `choose` gets the one that is clicked, or chosen with Enter. */
export function showFront(box, note, points, choose) {
  const shown = points.filter((point) => point.l1 > 0);
  const x = logarithmic(shown.map((p) => p.area), LEFT + 10, WIDTH - RIGHT - 10);
  const y = logarithmic(shown.map((p) => p.l1), HEIGHT - BOTTOM - 10, TOP + 10);
  const size = logarithmic(shown.map((p) => p.energy), 4, 10);
  const svg = made("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "front" });
  svg.append(
    made("path", { class: "axis", d: `M${LEFT},${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }),
    made("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, "area, µm² (logarithmic)"),
    made("text", { x: -HEIGHT / 2, y: 16, transform: "rotate(-90)", "text-anchor": "middle" }, "L1 to softmax (logarithmic)"),
  );
  const labels = [];
  for (const point of shown) {
    const kind = `${point.front ? "on-front" : "behind"}${point.trial === null ? " preset" : ""}`;
    const circle = made("circle", {
      cx: x(point.area), cy: y(point.l1), r: size(point.energy), class: kind,
      tabindex: 0, role: "button", "aria-label": described(point), "data-name": point.name,
    });
    circle.append(made("title", {}, described(point)));
    const take = () => {
      for (const other of svg.querySelectorAll(".chosen")) other.classList.remove("chosen");
      circle.classList.add("chosen");
      note.textContent = described(point);
      choose(point.spec);
    };
    circle.addEventListener("click", take);
    circle.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        take();
      }
    });
    svg.append(circle);
    if (point.trial === null) {
      const left = x(point.area) + 9;
      let base = y(point.l1) - 7;
      // Below a label that it would cover.
      while (labels.some(([otherLeft, otherBase]) => Math.abs(otherLeft - left) < 110 && Math.abs(otherBase - base) < 11)) base += 12;
      labels.push([left, base]);
      svg.append(made("text", { x: left, y: base, class: "name" }, point.name));
    }
  }
  box.replaceChildren(svg);
}
