// The charts, as SVG. Each keeps its nodes as long as the number of bars stays the same, so that a bar
// that is being dragged or has the focus survives a redraw.

import { rowsOf } from "./state.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 38;
const TOP = 8;
const BOTTOM = 8;

function node(name, attributes = {}, parent = null) {
  const made = document.createElementNS(SVG, name);
  set(made, attributes);
  if (parent) parent.append(made);
  return made;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

class Chart {
  constructor(host) {
    this.host = host;
    this.svg = node("svg", {}, null);
    host.append(this.svg);
    this.axis = node("g", { class: "axis" }, this.svg);
    this.bands = node("g", { class: "bands" }, this.svg);
    this.grown = false;
    new ResizeObserver(() => this.grown && this.draw()).observe(host);
  }

  /** Sizes, the bands of slices and the labelled lines; `low` and `high` are the ends of the y axis. */
  frame(count, lanes, low, high, ticks, label) {
    this.grown = true;
    this.width = Math.max(this.host.clientWidth, 160);
    this.height = this.host.clientHeight;
    this.low = low;
    this.high = high;
    this.step = (this.width - LEFT - 4) / count;
    set(this.svg, { width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}` });
    this.axis.replaceChildren();
    for (const tick of ticks) {
      const y = this.y(tick);
      node("line", { x1: LEFT, x2: this.width, y1: y, y2: y }, this.axis);
      node("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.axis).textContent = label(tick);
    }
    this.bands.replaceChildren();
    if (this.step * lanes > 3) {
      for (let start = lanes; start < count; start += 2 * lanes) {
        const end = Math.min(start + lanes, count);
        const box = { x: this.x(start), y: TOP, width: (end - start) * this.step, height: this.height - TOP - BOTTOM };
        node("rect", box, this.bands);
      }
    }
  }

  x(index) { return LEFT + index * this.step; }

  y(value) {
    const share = (value - this.low) / (this.high - this.low);
    return this.height - BOTTOM - share * (this.height - TOP - BOTTOM);
  }

  valueAt(y) {
    const share = (this.height - BOTTOM - y) / (this.height - TOP - BOTTOM);
    return Math.min(this.high, Math.max(this.low, this.low + share * (this.high - this.low)));
  }

  bars(group, count) {
    while (group.childElementCount > count) group.lastElementChild.remove();
    while (group.childElementCount < count) node("rect", {}, group);
    return [...group.children];
  }

  place(bar, index, value, from = 0) {
    const gap = this.step > 6 ? Math.min(3, this.step / 5) : 0;
    const [a, b] = [this.y(value), this.y(from)];
    set(bar, {
      x: this.x(index) + gap / 2,
      y: Math.min(a, b) - (Math.abs(a - b) < 2 ? 1 : 0),
      width: Math.max(this.step - gap, 0.5),
      height: Math.max(Math.abs(a - b), 2),
      rx: this.step > 8 ? 2 : 0,
    });
  }
}

/** Scores as bars that are sliders: dragged, or moved with the keys once focused. */
export class ScoreChart extends Chart {
  constructor(host, changed) {
    super(host);
    this.changed = changed;
    this.scores = [];
    this.current = 0;
    this.group = node("g", { class: "scores" }, this.svg);
    this.line = node("path", { class: "running-max" }, this.svg);
    this.svg.addEventListener("pointerdown", (event) => this.grab(event));
    this.svg.addEventListener("pointermove", (event) => this.drag(event));
    this.svg.addEventListener("pointerup", () => this.release());
    this.svg.addEventListener("pointercancel", () => this.release());
    this.group.addEventListener("keydown", (event) => this.key(event));
    this.group.addEventListener("focusin", (event) => this.choose([...this.group.children].indexOf(event.target)));
  }

  /** `answer` is the one to these scores, or null. */
  show(scores, answer) {
    this.scores = scores;
    this.answer = answer;
    if (this.current >= scores.length) this.current = scores.length - 1;
    this.draw();
  }

  draw() {
    const scores = this.scores;
    if (!this.dragging) {
      const present = scores.filter((score) => score !== null);
      this.top = Math.max(8, Math.ceil(Math.max(...present, ...this.maxima(), 0) / 4) * 4);
      this.bottom = Math.min(-8, Math.floor(Math.min(...present, 0) / 4) * 4);
    }
    const unit = Math.max(4, 2 ** Math.ceil(Math.log2((this.top - this.bottom) / 6)));
    const ticks = [];
    for (let t = Math.ceil(this.bottom / unit) * unit; t <= this.top; t += unit) ticks.push(t);
    const lanes = this.answer ? this.answer.lanes : scores.length;
    this.frame(scores.length, lanes, this.bottom, this.top, ticks, String);
    this.bars(this.group, scores.length).forEach((bar, index) => {
      const score = scores[index];
      this.place(bar, index, score ?? 0);
      const saturated = this.answer && this.answer.saturated[index];
      bar.setAttribute("class", score === null ? "masked" : saturated ? "saturated" : "score");
      set(bar, {
        role: "slider",
        tabindex: index === this.current ? 0 : -1,
        "aria-label": `score ${index + 1}`,
        "aria-orientation": "vertical",
        "aria-valuemin": this.bottom,
        "aria-valuemax": this.top,
        "aria-valuenow": score ?? 0,
        "aria-valuetext": score === null ? "masked" : String(score),
      });
    });
    this.drawMax();
  }

  /** The running max of each slice, as a score: with the fold, words are scores times log2(e). */
  maxima() {
    if (!this.answer) return [];
    const { spec, running_max } = this.answer;
    const scale = rowsOf(spec).base === "fold" ? Math.LOG2E : 1;
    return running_max.map((max) => max / scale);
  }

  drawMax() {
    let path = "";
    this.maxima().forEach((max, slice) => {
      const { lanes } = this.answer;
      const y = this.y(Math.min(this.top, Math.max(this.bottom, max)));
      const end = Math.min((slice + 1) * lanes, this.scores.length);
      path += `${slice ? "L" : "M"}${this.x(slice * lanes)} ${y}L${this.x(end)} ${y}`;
    });
    this.line.setAttribute("d", path);
  }

  choose(index) {
    if (index < 0 || index === this.current) return;
    const bars = this.group.children;
    if (bars[this.current]) bars[this.current].setAttribute("tabindex", -1);
    bars[index].setAttribute("tabindex", 0);
    this.current = index;
  }

  change(index, score) {
    this.scores = this.scores.with(index, score);
    this.changed(this.scores);
  }

  grab(event) {
    const index = Math.floor((event.offsetX - LEFT) / this.step);
    if (index < 0 || index >= this.scores.length || event.button !== 0) return;
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    this.choose(index);
    this.group.children[index].focus({ preventScroll: true });
    this.dragging = true;
    this.drag(event);
  }

  drag(event) {
    if (!this.dragging) return;
    const y = event.clientY - this.svg.getBoundingClientRect().top;
    this.change(this.current, Math.round(this.valueAt(y) * 8) / 8);
  }

  release() {
    if (!this.dragging) return;
    this.dragging = false;
    this.draw();
  }

  key(event) {
    const index = this.current;
    const score = this.scores[index] ?? 0;
    const moves = { ArrowUp: 0.25, ArrowDown: -0.25, PageUp: 1, PageDown: -1 };
    const goes = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: this.scores.length - 1 };
    if (event.key in moves) {
      this.change(index, score + moves[event.key]);
    } else if (event.key in goes) {
      const to = Math.min(this.scores.length - 1, Math.max(0, goes[event.key]));
      this.group.children[to].focus();
    } else if (event.key === "x") {
      this.change(index, this.scores[index] === null ? 0 : null);
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Values from 0 up as bars, with markers of other values over them. */
export class BarChart extends Chart {
  constructor(host, markers = []) {
    super(host);
    this.group = node("g", { class: "values" }, this.svg);
    this.markers = markers.map((name) => node("path", { class: `marker ${name}` }, this.svg));
  }

  show(values, others, lanes, note) {
    Object.assign(this, { values, others, lanes, note });
    this.draw();
  }

  draw() {
    const { values, others, lanes } = this;
    const largest = Math.max(...values, ...others.flat(), 1e-9);
    const unit = 10 ** Math.floor(Math.log10(largest));
    const tick = [1, 2, 5, 10].map((n) => (n * unit) / 2).find((n) => largest / n <= 5);
    const ticks = [];
    for (let n = 0; n * tick <= largest * 1.05; n++) ticks.push(n * tick);
    const label = (value) => Number(value.toPrecision(3)).toString();
    this.frame(values.length, lanes, 0, Math.max(largest * 1.05, ticks.at(-1)), ticks, label);
    this.bars(this.group, values.length).forEach((bar, index) => {
      this.place(bar, index, values[index]);
      const title = bar.firstElementChild || node("title", {}, bar);
      title.textContent = this.note(index);
    });
    this.markers.forEach((marker, at) => {
      const inset = this.step > 6 ? 1 : 0;
      const dots = others[at].map(
        (value, index) => `M${this.x(index) + inset} ${this.y(value)}h${Math.max(this.step - 2 * inset, 1.5)}`,
      );
      marker.setAttribute("d", dots.join(""));
    });
  }
}
