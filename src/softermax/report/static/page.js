"use strict";
// The page is whole without this script, which adds the theme's switch, values on hover and downloads.

const root = document.documentElement;
const tip = document.getElementById("tip");
const toggle = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
let chosen = false;

function setTheme(name) {
  root.dataset.theme = name;
  toggle.textContent = name === "dark" ? "Light" : "Dark";
  toggle.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
}
setTheme(system.matches ? "dark" : "light");
system.addEventListener("change", () => { if (!chosen) setTheme(system.matches ? "dark" : "light"); });
toggle.addEventListener("click", () => { chosen = true; setTheme(root.dataset.theme === "dark" ? "light" : "dark"); });

// The contents stand beside a wide page; on a narrow one they are a menu that closes when it is used.
const contents = document.querySelector("#contents details");
const beside = matchMedia("(min-width: 1240px)");
const fold = () => { contents.open = beside.matches; };
fold();
beside.addEventListener("change", fold);
contents.addEventListener("click", (event) => { if (event.target.closest("a")) fold(); });
addEventListener("keydown", (event) => { if (event.key === "Escape") fold(); });
const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) links.get(target.id)?.classList.toggle("here", isIntersecting);
}, { rootMargin: "-20% 0px -79% 0px" });
for (const section of document.querySelectorAll("main > section")) watch.observe(section);

let current = null;

function hide() {
  tip.hidden = true;
  if (current) current.classList.remove("on");
  current = null;
}

function place() {
  if (!current) return;
  const at = current.getBoundingClientRect();
  const left = at.left + at.width / 2 - tip.offsetWidth / 2;
  const above = at.top - tip.offsetHeight - 8;
  tip.style.left = `${Math.max(6, Math.min(left, root.clientWidth - tip.offsetWidth - 6))}px`;
  tip.style.top = `${above > 4 ? above : at.bottom + 8}px`;
}

function show(mark) {
  hide();
  current = mark;
  mark.classList.add("on");
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  place();
}
addEventListener("scroll", place, { passive: true, capture: true });
addEventListener("resize", hide);

function nearest(svg, x, y) {
  let best = null, least = 28;
  for (const mark of svg.querySelectorAll(".mark")) {
    const r = mark.getBoundingClientRect();
    const dx = Math.max(r.left - x, 0, x - r.right), dy = Math.max(r.top - y, 0, y - r.bottom);
    const far = Math.hypot(dx, dy);
    if (far < least) { least = far; best = mark; }
  }
  return best;
}

for (const svg of document.querySelectorAll("svg.chart")) {
  const marks = [...svg.querySelectorAll(".mark")];
  const point = (event) => {
    const mark = nearest(svg, event.clientX, event.clientY);
    if (mark) show(mark); else hide();
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") return hide();
    if (!step || !marks.length) return;
    event.preventDefault();
    const now = marks.indexOf(current);
    show(marks[now < 0 ? (step > 0 ? 0 : marks.length - 1) : (now + step + marks.length) % marks.length]);
  });
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Colours come from the page's style sheet: a drawing that leaves the page takes them along.
const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "font-family", "font-size"];
function standalone(figure) {
  const svg = [...figure.querySelectorAll("svg.chart")].find((one) => one.getClientRects().length);
  hide();
  const copy = svg.cloneNode(true);
  const from = svg.querySelectorAll("*"), to = copy.querySelectorAll("*");
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const property of KEPT) to[i].style.setProperty(property, style.getPropertyValue(property));
  });
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", getComputedStyle(root).getPropertyValue("--panel").trim());
  copy.prepend(ground);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return { text: new XMLSerializer().serializeToString(copy), box: svg.viewBox.baseVal };
}

const KINDS = {
  svg(figure, name) { save(`${name}.svg`, new Blob([standalone(figure).text], { type: "image/svg+xml" })); },
  png(figure, name) {
    const { text, box } = standalone(figure);
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 2 * box.width;
      canvas.height = 2 * box.height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(`${name}.png`, blob), "image/png");
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  },
  csv(figure, name) {
    const cell = (value) => {
      const text = value === null ? "" : String(value);
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const rows = JSON.parse(figure.querySelector("script").textContent);
    save(`${name}.csv`, new Blob([rows.map((row) => row.map(cell).join(",")).join("\n") + "\n"], { type: "text/csv" }));
  },
};
for (const button of document.querySelectorAll("button[data-save]")) {
  const figure = button.closest("figure");
  button.addEventListener("click", () => KINDS[button.dataset.save](figure, figure.id));
}
document.body.dataset.ready = "yes";
