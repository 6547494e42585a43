// The tables and figures of the steps. Numbers are the golden model's raw words; a word's real value
// is its raw integer times 2^-fraction.

import { rowsOf } from "./state.js";

const MAX_ROWS = 256;

export const fraction = (format) => Number(format.slice(format.indexOf(",") + 1, -1));

export function short(value) {
  if (value === null) return "none";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

export const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/** What a spec is measured against, the exact softmax of its own base: its name, and its key in an answer. */
export function exactOf({ spec }) {
  return rowsOf(spec).base === "fold" ? { name: "softmax", key: "softmax" } : { name: "base two", key: "base_two" };
}

export function table(host, heads, rows, chosen = -1, choose = null) {
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  for (const [text, title] of heads) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    if (title) cell.title = title;
    head.append(cell);
  }
  const body = made.createTBody();
  rows.forEach((values, index) => {
    const row = body.insertRow();
    values.forEach((value, column) => {
      const cell = column ? row.insertCell() : row.appendChild(document.createElement("th"));
      if (!column) cell.scope = "row";
      if (!column && choose) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = value;
        button.setAttribute("aria-label", `show slice ${value}`);
        button.setAttribute("aria-pressed", String(index === chosen));
        button.addEventListener("click", () => choose(index));
        cell.append(button);
      } else {
        cell.textContent = value;
      }
    });
    if (index === chosen) row.className = "chosen";
  });
  const top = host.scrollTop;
  const left = host.scrollLeft;
  host.replaceChildren(made);
  host.scrollTop = top;
  host.scrollLeft = left;
}

const cut = (count) => (count > MAX_ROWS ? ` The first ${MAX_ROWS} of ${count} are listed.` : "");

/** Whether an element's probability is made of its score and one of its row's products (A10). */
const hasProducts = ({ spec, mode }) => mode !== "deferred" && spec.normalization === "row-products";

/** By how much an element's product is shifted: its integer part, the word and, fixed, the leading one's place. */
function productShift(answer, i) {
  const { spec, mode } = answer;
  const scale = 2 ** fraction(spec.input);
  const k = -Math.floor((answer.input[i] - answer.running_max.at(-1) * scale) / scale);
  const e = mode === "fixed" ? answer.leading_one - fraction(spec.powsum) : 0;
  return k + fraction(spec.product) - fraction(spec.output) + e;
}

/** Writes words as they are, or times their unit. */
const writer = (raw) => (value, format) => short(raw ? value : value * 2 ** -fraction(format));

export function showSlices(answer, chosen, raw, choose) {
  const { spec, mode } = answer;
  const deferred = mode === "deferred";
  const word = writer(raw);
  const later = (s) => (deferred ? answer.shift[s * answer.lanes] : answer.numerator_shift[s]);
  /** Head, what it means, and the cell of slice s. */
  const columns = [
    ["slice", "", (s) => String(s + 1)],
    ["LocalMax", "largest integer of the slice's scores", (s) => String(answer.local_max[s])],
    ["running max", "m", (s) => String(answer.running_max[s])],
    // A sum of 0 is not shifted: the first slice only sets the max.
    ["shift", "of the sum so far: how far the max grew", (s) => (s ? `≫ ${answer.renorm_shift[s]}` : "first")],
    ...(deferred ? [
      ["Σ w", "the slice's weights, exact", (s) => word(answer.slice_sum[s], spec.powsum)],
    ] : [
      ["Σ 2^(x−m)", "exact, in the unnormed word's fraction", (s) => word(answer.slice_sum[s], spec.unnormed)],
      ["rounded", "to PowSum's fraction", (s) => word(answer.slice_powsum[s], spec.powsum)],
    ]),
    ["PowSum", "running sum after this slice", (s) => word(answer.powsum[s], spec.powsum)],
    // With row products nothing of a slice waits but its scores.
    ...(hasProducts(answer) ? [] : [["later shift", "the row's max less the slice's", (s) => `≫ ${later(s)}`]]),
  ];
  const rows = answer.local_max.slice(0, MAX_ROWS).map((_, s) => columns.map(([, , cell]) => cell(s)));
  const focused = document.activeElement?.closest("#slices-table button") ? chosen : -1;
  const host = document.getElementById("slices-table");
  table(host, columns, rows, chosen, choose);
  if (focused >= 0) host.querySelectorAll("tbody button")[focused]?.focus();
  const whole = rowsOf(spec).slice_width === null;
  const lanes = whole ? "The whole row is one slice." : `${counted(answer.slices, "slice")} of ${answer.lanes} lanes.`;
  document.getElementById("slices-note").textContent =
    `${lanes} d = (d ≫ shift) + ${deferred ? "Σ w" : "rounded sum"}, at most ${spec.powsum}'s largest.${cut(answer.slices)}`;
}

export function showLanes(answer, slice, raw) {
  const { spec, mode, scores } = answer;
  const deferred = mode === "deferred";
  const exact = exactOf(answer);
  const scoreSpec = rowsOf(spec);
  const word = writer(raw);
  const start = slice * answer.lanes;
  const end = Math.min(start + answer.lanes, scores.length);
  const max = answer.running_max[slice] * 2 ** fraction(scoreSpec.input);
  const columns = [
    ["element", "", (i) => String(i + 1)],
    ["score", "", (i) => short(scores[i])],
    ["word x", scoreSpec.input, (i) => word(answer.input[i], scoreSpec.input)],
    ["integer", scoreSpec.max_rounding, (i) => String(answer.integer[i])],
    ["x − m", "", (i) => word(answer.input[i] - max, scoreSpec.input)],
    ["u = 2^(x−m)", scoreSpec.unnormed, (i) => word(answer.unnormed[i], scoreSpec.unnormed)],
    ...(deferred ? [
      ["weight w", spec.weight, (i) => word(answer.output[i], spec.weight)],
      ["later shift", "how far the max grew after the slice", (i) => `≫ ${answer.shift[i]}`],
      ["w·r/2^e", "what P·V effectively multiplies a value by", (i) => short(answer.value[i])],
    ] : [
      ...(hasProducts(answer) ? [
        ["product p", `${spec.product}, of the score's fraction`, (i) => word(answer.numerator[i], spec.product)],
        ["shift", "of the product: integer part and leading one's place", (i) => `≫ ${productShift(answer, i)}`],
      ] : [
        ["numerator", "u shifted to the row's max", (i) => word(answer.numerator[i], scoreSpec.unnormed)],
      ]),
      ["y", spec.output, (i) => String(answer.output[i])],
      ["probability", "", (i) => short(answer.value[i])],
    ]),
    ["softmax", "exact, base e", (i) => short(answer.softmax[i])],
    ["base two", "exact", (i) => short(answer.base_two[i])],
    ["error", `against ${exact.name}`, (i) => short(answer.value[i] - answer[exact.key][i])],
  ];
  const rows = [];
  for (let i = start; i < Math.min(end, start + MAX_ROWS); i++) {
    const masked = (at) => (at === 0 ? String(i + 1) : at === 1 ? "masked" : at < 5 ? "" : "0");
    rows.push(columns.map(([, , cell], at) => (answer.mask[i] ? cell(i) : masked(at))));
  }
  table(document.getElementById("lanes-table"), columns, rows);
  const used = answer.tables.pow2;
  document.getElementById("lanes-note").textContent =
    `Slice ${slice + 1}: x − m splits into a shift and a fraction; the table of ${used.segments} ` +
    `segments gives 2^fraction${used.uses_m ? " by a line each" : " exactly, point by point"}.${cut(end - start)}`;
}

const NORMALISING = {
  fixed: "y = numerator · r, shifted by the leading one's place",
  "row-scaled": "y = numerator · r, shifted; the exponent travels beside the row",
  products: "they are made of it once, and an element takes the one of its fraction, shifted",
  deferred: "P·V adds up weights times values; each of its sums is multiplied by r and shifted by the leading one's place",
};

export function showRow(answer, raw) {
  const { spec, mode } = answer;
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  const word = writer(raw);
  const last = answer.powsum.at(-1);
  const e = answer.leading_one;
  put("powsum", word(last, spec.powsum));
  put("leading-one", raw ? `bit ${e}` : `2^${e - fraction(spec.powsum)}`);
  put("mantissa", short(Math.max(last, 1) / 2 ** e));
  put("reciprocal", word(answer.reciprocal, spec.reciprocal));
  put("exponent", mode === "row-scaled" ? `2^${-answer.exponent}` : "none");
  const { reciprocal } = answer.tables;
  const products = answer.products?.map((p) => word(p, spec.product)).join(", ");
  const how = hasProducts(answer) ? `the row's products are ${products}: ${NORMALISING.products}` : NORMALISING[mode];
  put("tables-note",
    `The reciprocal comes from a table of ${reciprocal.segments} segments that reads ${reciprocal.used_bits} ` +
    `bits of the mantissa; ${how}.`);
}

const UNITS = { unnormed: "UnnormedSoftmax", normalization: "Normalization", "deferred tail": "attention tail" };
const SILICON = [
  ["unit"], ["library"], ["clock"], ["area"], ["per element", "energy"], ["scores", "that the energy was measured with"],
];

export function showSilicon(figures) {
  const host = document.getElementById("silicon");
  const wires = (f) => (figures.some((g) => g.library === f.library && g.wire !== f.wire) ? `, ${f.wire}` : "");
  const rows = figures.map((f) => [
    UNITS[f.unit] ?? f.unit, f.library + wires(f), `${short(f.clock_ns)} ns${f.slack_ns < 0 ? ", missed" : ""}`,
    `${Math.round(f.area_um2)} µm²`, `${short(Number(f.pj_per_element.toPrecision(3)))} pJ`, f.stimulus,
  ]);
  table(host, SILICON, rows);
  host.hidden = rows.length === 0;
  document.getElementById("silicon-note").hidden = rows.length > 0;
}
