// A rival's row beside ours: what it makes of the same scores, step by step.

import { showFront } from "./front.js";
import { short, table } from "./steps.js";

const MAX_ROWS = 256;
const $ = (id) => document.getElementById(id);

/** Fill the list of designs, and draw those that were built; `change` is called when another one is chosen. */
export async function bindRivals(change) {
  const { names, points } = await (await fetch("/api/rivals")).json();
  for (const name of names) $("rival").append(new Option(name, name));
  $("rival").addEventListener("change", change);
  if (!points.length) return;
  $("rival-front").hidden = false;
  showFront($("rival-front-chart"), $("rival-front-note"), points, (name) => {
    if (name === null) return;
    $("rival").value = name;
    change();
  });
}

/** The rival's answer beside ours, for the same scores. */
export function showRival(rival, ours) {
  $("rival-problem").hidden = !rival.refused;
  $("rival-problem").textContent = rival.refused ?? "";
  $("rival-answer").hidden = Boolean(rival.refused);
  if (rival.refused) return;
  $("rival-about").textContent =
    `${rival.title}; known from: ${rival.confidence}. Output: ${rival.gives}.` +
    (rival.scale === null ? "" : ` A step of its scores is ${short(rival.scale)}, calibrated on this row.`);
  const fixed = (number) => String(Number(number.toFixed(4)));
  const l1 = (value) => value.reduce((sum, each, i) => sum + Math.abs(each - rival.softmax[i]), 0);
  const none = (value) => (value === null ? "none" : short(value));
  table($("rival-row"), [["of the row"], [rival.name], ["Softermax"]], [
    ["max", none(rival.max), short(ours.running_max[ours.running_max.length - 1])],
    ["sum of exponentials, words", none(rival.total), short(ours.powsum[ours.powsum.length - 1])],
    ["exp(0), word", none(rival.unit), ""],
    ["sum of probabilities", fixed(rival.row_sum), fixed(ours.row_sum)],
    ["L1 to softmax", fixed(rival.l1), fixed(l1(ours.value))],
    ["largest error to softmax", fixed(rival.errors.max_abs), fixed(ours.errors.softmax.max_abs)],
  ]);
  const rows = rival.value.slice(0, MAX_ROWS).map((value, i) => rival.mask[i]
    ? [i + 1, rival.input[i], rival.exponentials ? rival.exponentials[i] : "", rival.output[i], short(value),
      ours.unnormed[i], ours.output[i], short(ours.value[i]), short(rival.softmax[i])]
    : [i + 1, "masked", "", rival.output[i], short(value), "", ours.output[i], short(ours.value[i]), "0"]);
  table($("rival-elements"), [
    ["element"], ["score word"], ["exponential", "word of the rival"], ["output", "word of the rival"], ["probability", "of the rival"],
    ["our u", "unnormed word"], ["our y", "output word"], ["our probability"], ["softmax"],
  ], rows);
}
