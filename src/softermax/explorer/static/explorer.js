// The page's controls, and the requests that keep its numbers up to date.

import { BarChart, ScoreChart } from "./charts.js";
import { showFront } from "./front.js";
import { bindRivals, showRival } from "./rivals.js";
import { fromFragment, holder, isDeferred, number, parseScores, rowsOf, toFragment, writeScores } from "./state.js";
import { counted, exactOf, fraction, short, showLanes, showRow, showSilicon, showSlices } from "./steps.js";

const WORDS = ["input", "max", "unnormed", "weight", "powsum", "reciprocal", "product", "output"];
const SEGMENTS = ["pow2_segments", "reciprocal_segments"];
const ROUNDINGS = ["input_rounding", "max_rounding", "unnormed_rounding", "powsum_rounding", "output_rounding"];
const CHOICES = [...ROUNDINGS, "normalization", "base"];
const UNITS = [["top", "whole Softermax"], ["unnormed-softmax", "UnnormedSoftmax"], ["normalization", "Normalization"]];
const DEFERRED_UNITS = [["deferred", "attention tail"]];

const $ = (id) => document.getElementById(id);
let presets = {};
let state = { scores: [], spec: {} };
let answer = null;
let slice = 0;
/** What is wrong with the scores as typed; then nothing is asked. */
let unreadable = null;
/** What is wrong now, whatever it is about. */
let trouble = null;

const scoreChart = new ScoreChart($("score-chart"), (scores) => {
  takeScores(scores);
  scoreChart.draw();
  update();
});
const resultChart = new BarChart($("result-chart"), ["exact", "two"]);
const unnormedChart = new BarChart($("unnormed-chart"));

// Controls from the state, and the state from controls.

function takeScores(scores) {
  state.scores = scores;
  unreadable = null;
  $("scores").value = writeScores(scores, " ");
}

function readScores() {
  try {
    state.scores = parseScores($("scores").value);
    unreadable = null;
    scoreChart.show(state.scores, null);
  } catch (error) {
    unreadable = error.message;
  }
}

function place(slider, value) {
  // A link may hold more than a slider's range shows.
  if (value > Number(slider.max)) slider.max = value;
  if (value < Number(slider.min)) slider.min = value;
  slider.value = value;
}

function writeControls() {
  const { spec } = state;
  const deferred = isDeferred(spec);
  for (const part of document.querySelectorAll("[data-mode]")) {
    part.hidden = (part.dataset.mode === "deferred") !== deferred;
  }
  for (const name of WORDS) {
    const [, integer, fraction] = /^Q\((\d+),(\d+)\)$/.exec(holder(spec, name)[name]) ?? [];
    if (integer === undefined) continue;
    place($(`${name}-integer`), Number(integer));
    place($(`${name}-fraction`), Number(fraction));
    $(`${name}-format`).textContent = holder(spec, name)[name];
  }
  $("powsum-fraction").disabled = deferred;
  for (const name of SEGMENTS) {
    const segments = Math.log2(holder(spec, name)[name]);
    if (Number.isInteger(segments)) place($(name), segments);
    showSegments(name);
  }
  const rows = rowsOf(spec);
  for (const name of CHOICES) $(name).value = rows[name];
  $("output_mode").value = deferred ? "deferred" : rows.output_mode;
  const whole = rows.slice_width === null;
  $("whole-row").checked = whole;
  $("slice-width").disabled = $("slice-slider").disabled = whole;
  if (!whole) $("slice-width").value = $("slice-slider").value = rows.slice_width;
  const units = deferred ? DEFERRED_UNITS : UNITS;
  if ($("unit").options[0]?.value !== units[0][0]) {
    $("unit").replaceChildren(...units.map(([value, text]) => new Option(text, value)));
  }
  writePreset();
}

function writePreset() {
  const text = JSON.stringify(state.spec);
  const names = Object.keys(presets);
  $("preset").value = names.find((name) => JSON.stringify(presets[name]) === text) ?? "";
  // The last option stands for all other specs; those that only differ in the base have a name.
  const folded = names.find((name) => JSON.stringify(presets[name]).replace('"base":"paper"', '"base":"fold"') === text);
  $("preset").options[names.length].text = folded?.replace(/(:deferred)?$/, "+fold$1") ?? "changed";
}

function showSegments(name) {
  const segments = holder(state.spec, name)[name];
  $(`${name}-count`).textContent = segments;
  $(name).setAttribute("aria-valuetext", `${segments} segments`);
}

function change(name, value) {
  holder(state.spec, name)[name] = value;
  writePreset();
  update();
}

function takeSpec(spec) {
  state.spec = structuredClone(spec);
  writeControls();
  return update();
}

function bindWord(name) {
  const integer = $(`${name}-integer`);
  const fraction = $(`${name}-fraction`);
  const moved = () => {
    const format = `Q(${integer.value},${fraction.value})`;
    $(`${name}-format`).textContent = format;
    if (name === "weight") {
      // PowSum adds up weights, so it has their fraction.
      state.spec.powsum = `Q(${$("powsum-integer").value},${fraction.value})`;
      $("powsum-format").textContent = state.spec.powsum;
      place($("powsum-fraction"), Number(fraction.value));
    }
    change(name, format);
  };
  integer.addEventListener("input", moved);
  fraction.addEventListener("input", moved);
}

function bindControls() {
  WORDS.forEach(bindWord);
  for (const name of SEGMENTS) {
    $(name).addEventListener("input", () => {
      change(name, 2 ** Number($(name).value));
      showSegments(name);
    });
  }
  for (const name of CHOICES) $(name).addEventListener("change", () => change(name, $(name).value));
  $("output_mode").addEventListener("change", () => {
    const mode = $("output_mode").value;
    const rows = rowsOf(state.spec);
    takeSpec(mode === "deferred" ? { ...presets["paper:deferred"], scores: rows } : { ...rows, output_mode: mode });
  });
  $("slice-slider").addEventListener("input", () => {
    $("slice-width").value = $("slice-slider").value;
    change("slice_width", Number($("slice-slider").value));
  });
  $("slice-width").addEventListener("input", () => {
    $("slice-slider").value = $("slice-width").value;
    change("slice_width", number($("slice-width").value));
  });
  $("whole-row").addEventListener("change", () => {
    const whole = $("whole-row").checked;
    $("slice-width").disabled = $("slice-slider").disabled = whole;
    change("slice_width", whole ? null : number($("slice-width").value));
  });
  $("preset").addEventListener("change", () => presets[$("preset").value] && takeSpec(presets[$("preset").value]));
  $("scores").addEventListener("input", () => {
    readScores();
    update();
  });
  $("random").addEventListener("click", drawScores);
  $("show").addEventListener("change", () => answer && renderSteps());
  $("slice").addEventListener("input", () => chooseSlice(Number($("slice").value) - 1));
  $("slice-back").addEventListener("click", () => chooseSlice(slice - 1));
  $("slice-next").addEventListener("click", () => chooseSlice(slice + 1));
  $("link").addEventListener("click", copyLink);
  $("save-spec").addEventListener("click", saveSpec);
  $("open-spec").addEventListener("click", () => $("spec-file").click());
  $("spec-file").addEventListener("change", openSpec);
  $("save-verilog").addEventListener("click", saveVerilog);
  window.addEventListener("hashchange", () => {
    if (location.hash.slice(1) !== toFragment(state, presets)) start();
  });
}

function drawScores() {
  const count = Math.min(4096, Math.max(1, Math.round(Number($("count").value)) || 1));
  const spread = Number($("spread").value) || 0;
  const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  takeScores(Array.from({ length: count }, () => Math.round(normal() * spread * 100) / 100));
  scoreChart.show(state.scores, null);
  update();
}

function chooseSlice(to) {
  if (!answer || !Number.isInteger(to)) return;
  slice = Math.min(answer.slices - 1, Math.max(0, to));
  renderSteps();
}

// What is wrong stands beside the control that made it so, and there is no result.

function fail(message, field) {
  clearTrouble();
  answer = null;
  trouble = message;
  // A spec of deferred normalisation says "scores.input" of what its scores' spec has.
  const inner = field?.startsWith("scores.") ? field.slice("scores.".length) : null;
  const control = inner !== null && holder(state.spec, inner) === rowsOf(state.spec) ? inner : field;
  const shown = $(`${control}-problem`)?.closest("[hidden]:not(.problem)") === null;
  const beside = shown ? $(`${control}-problem`) : $("spec-problem");
  beside.textContent = message;
  beside.hidden = false;
  for (const invalid of controlsOf(control)) invalid.setAttribute("aria-invalid", "true");
  beside.closest("details")?.setAttribute("open", "");
  document.body.classList.add("failed");
  document.body.classList.toggle("unreadable", unreadable !== null);
  scoreChart.show(state.scores, null);
  $("no-result").textContent = `No result: ${message}`;
  $("no-result").hidden = false;
  $("summary").textContent = `No result: ${message}`;
}

function controlsOf(field) {
  if (field === "scores") return [$("scores")];
  return document.querySelectorAll(`[data-field="${CSS.escape(field ?? "")}"] :is(input, select)`);
}

function clearTrouble() {
  trouble = null;
  for (const beside of document.querySelectorAll(".problem")) beside.hidden = true;
  for (const control of document.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  document.body.classList.remove("failed", "unreadable");
}

// Requests: one at a time, and after it the newest state.

let asking = false;
let again = false;

async function post(path, request) {
  try {
    const reply = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    });
    const value = await reply.json();
    return value.error === undefined ? value : { refused: value.error, field: value.field };
  } catch {
    return { refused: "The explorer does not answer: is it still running?", field: null };
  }
}

async function update() {
  document.body.dataset.ready = "no";
  if (unreadable !== null) fail(unreadable, "scores");
  again = true;
  if (asking) return;
  asking = true;
  while (again) {
    again = false;
    if (unreadable === null) await ask();
  }
  asking = false;
  document.body.dataset.ready = "yes";
}

async function ask() {
  const begun = performance.now();
  const asked = structuredClone(state);
  const value = await post("/api/compute", asked);
  // What was typed meanwhile cannot be read: an answer to what stood there before is none.
  if (unreadable !== null) return;
  if (value.refused) {
    fail(value.refused, value.field);
    return;
  }
  clearTrouble();
  answer = { ...value, scores: asked.scores };
  $("time").textContent = `Answered in ${(performance.now() - begun).toFixed(1)} ms.`;
  say("");
  history.replaceState(null, "", `#${toFragment(asked, presets)}`);
  render();
  await askRival();
}

async function askRival() {
  if (answer === null || unreadable !== null) return;
  const value = await post("/api/rival", { scores: answer.scores, rival: $("rival").value });
  if (answer !== null) showRival(value, answer);
}

function render() {
  const { errors, value, softmax, base_two } = answer;
  const { name, key } = exactOf(answer);
  const rough = (number) => short(Number(number.toPrecision(3)));
  const bits = (divergence) => (divergence === null ? "no divergence" : `divergence ${rough(divergence)} bit`);
  const count = answer.scores.length;
  $("score-count").textContent = `${counted(count, "score")} in ${counted(answer.slices, "slice")}`;
  $("row-sum").textContent = short(answer.row_sum);
  $("error-two").textContent = short(errors.base_two.max_abs);
  $("error-exact").textContent = short(errors.softmax.max_abs);
  $("kl-two").textContent = bits(errors.base_two.kl);
  $("kl-exact").textContent = bits(errors.softmax.kl);
  $("summary").textContent = `Row sum ${rough(answer.row_sum)}, largest error ${rough(errors[key].max_abs)} against ${name}`;
  // Newer scores than those of the answer may be there already.
  const current = state.scores.length === count;
  scoreChart.show(state.scores, current ? answer : null);
  resultChart.show(value, [softmax, base_two], answer.lanes, (i) =>
    `element ${i + 1}: Softermax ${short(value[i])}, softmax ${short(softmax[i])}, base two ${short(base_two[i])}`);
  const one = 2 ** -fraction(rowsOf(answer.spec).unnormed);
  unnormedChart.show(answer.unnormed.map((u) => u * one), [], answer.lanes, (i) =>
    `element ${i + 1}: ${short(answer.unnormed[i] * one)}`);
  showSilicon(answer.silicon);
  renderSteps();
}

function renderSteps() {
  slice = Math.min(slice, answer.slices - 1);
  $("slice").max = answer.slices;
  $("slice").value = slice + 1;
  $("slice-count").textContent = `of ${answer.slices}`;
  $("slice-back").disabled = slice === 0;
  $("slice-next").disabled = slice === answer.slices - 1;
  const raw = $("show").value === "raw";
  showSlices(answer, slice, raw, chooseSlice);
  showLanes(answer, slice, raw);
  showRow(answer, raw);
}

// Link and files.

let fading = null;

function say(text, isProblem = false) {
  clearTimeout(fading);
  $("status").textContent = text;
  $("status").classList.toggle("bad", isProblem);
  if (!isProblem) fading = setTimeout(() => say(""), 8000);
}

async function copyLink() {
  if (trouble !== null) {
    say(`No link was copied: ${trouble}`, true);
    return;
  }
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is copied.");
  } catch {
    say(`The link is in the address bar: ${location.href.length} characters.`);
  }
}

async function saveSpec() {
  const value = await post("/api/spec", { spec: state.spec });
  if (value.refused) say(`Nothing was saved: ${value.refused}`, true);
  else download("spec.json", JSON.stringify(value.spec, null, 2) + "\n", "application/json");
}

async function openSpec() {
  const [file] = $("spec-file").files;
  $("spec-file").value = "";
  if (!file) return;
  let spec = null;
  try {
    spec = JSON.parse(await file.text());
  } catch {
    // Not JSON is no spec either.
  }
  if (spec === null || typeof spec !== "object" || Array.isArray(spec)) {
    say(`${file.name} is not a spec: must be a JSON object.`, true);
    return;
  }
  const value = await post("/api/spec", { spec });
  if (value.refused) {
    say(`${file.name}: ${value.refused}`, true);
    return;
  }
  await takeSpec(value.spec);
  say(`${file.name} is open.`);
}

async function saveVerilog() {
  const button = $("save-verilog");
  button.disabled = true;
  say("Making Verilog …");
  const value = await post("/api/verilog", { spec: state.spec, unit: $("unit").value });
  button.disabled = false;
  if (value.refused) {
    say(value.refused, true);
    return;
  }
  say(`${value.name} is ready.`);
  download(value.name, value.text, "text/plain");
}

function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Sections. Their links must not touch what is after the #: that is the state.

function bindSections() {
  const links = [...document.querySelectorAll("a[data-section]")];
  for (const link of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const section = $(link.dataset.section);
      section.scrollIntoView();
      section.focus({ preventScroll: true });
    });
  }
  const seen = new Set();
  const sections = links.filter((link) => link.closest("nav")).map((link) => $(link.dataset.section));
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target) : seen.delete(target);
    const current = sections.find((section) => seen.has(section));
    for (const link of links) {
      if (current && link.dataset.section === current.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const section of sections) observer.observe(section);
}

function start() {
  const link = fromFragment(location.hash.slice(1), presets);
  state = { scores: link.scores, spec: link.spec };
  takeScores(state.scores);
  if (link.unreadable !== null) {
    $("scores").value = link.unreadable;
    readScores();
  }
  writeControls();
  scoreChart.show(state.scores, null);
  update();
}

presets = await (await fetch("/api/presets")).json();
for (const name of [...Object.keys(presets), ""]) $("preset").append(new Option(name, name));
$("preset").options[$("preset").length - 1].disabled = true;
bindControls();
bindSections();
await bindRivals(askRival);
start();
const { points } = await (await fetch("/api/front")).json();
if (points.length) {
  $("front-panel").hidden = false;
  showFront($("front-chart"), $("front-note"), points, (spec) => {
    state.spec = structuredClone(spec);
    writeControls();
    update();
  });
}
