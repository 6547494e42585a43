// The tables and figures of the steps. Numbers are the golden model's raw words; a word's real value
// is its raw integer times 2^-fraction.

const MAX_ROWS = 256;

export const fraction = (format) => Number(format.slice(format.indexOf(",") + 1, -1));

export function short(value) {
  if (value === null) return "none";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

function table(host, heads, rows, chosen = -1, choose = null) {
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

export function showSlices(answer, chosen, raw, choose) {
  const { spec } = answer;
  const word = (value, field) => short(raw ? value : value * 2 ** -fraction(spec[field]));
  const heads = [
    ["slice"], ["LocalMax", "largest integer of the slice's scores"], ["running max", "m"],
    ["shift", "by how much the sum so far is shifted: how far the max grew"],
    ["Σ 2^(x−m)", "exact, in the unnormed word's fraction"], ["rounded", "to PowSum's fraction"],
    ["PowSum", "running sum after this slice"], ["numerator shift", "the row's max less the slice's"],
  ];
  const rows = answer.local_max.slice(0, MAX_ROWS).map((local, s) => [
    String(s + 1), String(local), String(answer.running_max[s]),
    // A sum of 0 is not shifted: the first slice only sets the max.
    s ? `≫ ${answer.renorm_shift[s]}` : "first",
    word(answer.slice_sum[s], "unnormed"), word(answer.slice_powsum[s], "powsum"),
    word(answer.powsum[s], "powsum"), `≫ ${answer.numerator_shift[s]}`,
  ]);
  const had = document.activeElement?.closest("#slices-table button") ? chosen : -1;
  const host = document.getElementById("slices-table");
  table(host, heads, rows, chosen, choose);
  if (had >= 0) host.querySelectorAll("tbody button")[had]?.focus();
  const lanes = spec.slice_width === null ? "The whole row is one slice." : `${answer.slices} of ${answer.lanes} lanes.`;
  document.getElementById("slices-note").textContent =
    `${lanes} d = (d ≫ shift) + rounded sum, at most ${spec.powsum}'s largest.${cut(answer.slices)}`;
}

export function showLanes(answer, scores, slice, raw) {
  const { spec } = answer;
  const word = (value, field) => short(raw ? value : value * 2 ** -fraction(spec[field]));
  const start = slice * answer.lanes;
  const end = Math.min(start + answer.lanes, scores.length);
  const heads = [
    ["element"], ["score"], ["word x", spec.input], ["integer", spec.max_rounding], ["x − m"],
    ["u = 2^(x−m)", spec.unnormed], ["numerator", "u shifted to the row's max"],
    ["y", spec.output], ["probability"], ["softmax", "exact, base e"], ["base two", "exact"], ["error", "against base two"],
  ];
  const max = answer.running_max[slice];
  const rows = [];
  for (let i = start; i < Math.min(end, start + MAX_ROWS); i++) {
    if (!answer.mask[i]) {
      rows.push([String(i + 1), "masked", "", "", "", "0", "0", "0", "0", "0", "0", "0"]);
      continue;
    }
    const difference = answer.input[i] - max * 2 ** fraction(spec.input);
    rows.push([
      String(i + 1), short(scores[i]), word(answer.input[i], "input"), String(answer.integer[i]),
      word(difference, "input"), word(answer.unnormed[i], "unnormed"), word(answer.numerator[i], "unnormed"),
      String(answer.output[i]), short(answer.value[i]), short(answer.softmax[i]), short(answer.base_two[i]),
      short(answer.value[i] - answer.base_two[i]),
    ]);
  }
  table(document.getElementById("lanes-table"), heads, rows);
  const used = answer.tables.pow2;
  document.getElementById("lanes-note").textContent =
    `Slice ${slice + 1}: x − m splits into a shift and a fraction; the table of ${used.segments} ` +
    `segments gives 2^fraction${used.uses_m ? " by a line each" : " exactly, point by point"}.${cut(end - start)}`;
}

export function showRow(answer, raw) {
  const { spec } = answer;
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  const last = answer.powsum.at(-1);
  const e = answer.leading_one;
  put("powsum", short(raw ? last : last * 2 ** -fraction(spec.powsum)));
  put("leading-one", raw ? `bit ${e}` : `2^${e - fraction(spec.powsum)}`);
  put("mantissa", short(Math.max(last, 1) / 2 ** e));
  put("reciprocal", short(raw ? answer.reciprocal : answer.reciprocal * 2 ** -fraction(spec.reciprocal)));
  put("exponent", spec.output_mode === "row-scaled" ? `2^${-answer.exponent}` : "none");
  const { reciprocal } = answer.tables;
  put("tables-note",
    `The reciprocal comes from a table of ${reciprocal.segments} segments that reads ${reciprocal.used_bits} ` +
    `bits of the mantissa; y = numerator · r, shifted${spec.output_mode === "fixed" ? " by the leading one's place" : "; the exponent travels beside the row"}.`);
}

export function showSilicon(figures) {
  const host = document.getElementById("silicon");
  const units = { unnormed: "UnnormedSoftmax", normalization: "Normalization" };
  const rows = figures.map((f) => [
    units[f.unit] ?? f.unit, f.library, `${short(f.clock_ns)} ns${f.slack_ns < 0 ? ", missed" : ""}`,
    `${Math.round(f.area_um2)} µm²`, `${short(Number(f.pj_per_element.toPrecision(3)))} pJ`, f.stimulus,
  ]);
  table(host, [["unit"], ["library"], ["clock"], ["area"], ["energy an element"], ["scores"]], rows);
  host.hidden = rows.length === 0;
  document.getElementById("silicon-note").hidden = rows.length > 0;
}
