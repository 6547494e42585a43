// The page's state, its controls, and the requests that keep the numbers up to date.

import { BarChart, ScoreChart } from "./charts.js";
import { short, showLanes, showRow, showSilicon, showSlices } from "./steps.js";

const WORDS = ["input", "max", "unnormed", "powsum", "reciprocal", "output"];
const SEGMENTS = ["pow2_segments", "reciprocal_segments"];
const CHOICES = [
  "input_rounding", "max_rounding", "unnormed_rounding", "powsum_rounding", "output_rounding", "output_mode", "base",
];
const FIRST_SCORES = [
  0.5, -1.25, 2, 1, -3.5, 3.25, 1.5, 2.75, -0.5, 0.75, 1.25, -2, 2.25, 0, -1.5, 1.75,
  2.5, 4.5, 1, -0.75, 3, 5.25, 0.25, 2, 1.5, -2.25, 3.75, 4, 0.5, 1, 2.5, -1,
  3.5, 6.75, 2.25, 7.5, 1.25, 5, 0, 4.25,
];

const $ = (id) => document.getElementById(id);
let presets = {};
let state = { scores: FIRST_SCORES, spec: {} };
let answer = null;
let slice = 0;

const scoreChart = new ScoreChart($("score-chart"), (scores) => {
  state.scores = scores;
  writeScores();
  scoreChart.draw();
  update();
});
const resultChart = new BarChart($("result-chart"), ["exact", "two"]);
const unnormedChart = new BarChart($("unnormed-chart"));

// The link: scores and what differs from the paper's spec, behind the #.

function toFragment() {
  const pairs = [["scores", state.scores.map((score) => (score === null ? "x" : score)).join(",")]];
  for (const [name, value] of Object.entries(state.spec)) {
    if (value !== presets.paper[name]) pairs.push([name, value === null ? "row" : value]);
  }
  return pairs.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`).join("&");
}

function fromFragment(text) {
  const spec = { ...presets.paper };
  let scores = FIRST_SCORES;
  for (const [name, value] of new URLSearchParams(text)) {
    if (name === "scores") scores = parseScores(value);
    else if (name === "slice_width") spec[name] = value === "row" ? null : number(value);
    else if (SEGMENTS.includes(name)) spec[name] = number(value);
    else spec[name] = value;
  }
  return { scores, spec };
}

const number = (text) => (text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text));

function parseScores(text) {
  const parts = text.split(/[\s,;]+/).filter((part) => part !== "");
  if (!parts.length) throw new Error("at least one score is needed");
  return parts.map((part) => {
    if (part.toLowerCase() === "x") return null;
    const value = Number(part);
    if (!Number.isFinite(value)) throw new Error(`${part} is not a score: must be numbers, and x where masked`);
    return value;
  });
}

// Controls from the state, and the state from controls.

function writeScores() {
  $("scores").value = state.scores.map((score) => (score === null ? "x" : String(score))).join(" ");
}

function raise(slider, value) {
  // A link may hold more than a slider's range shows.
  if (value > Number(slider.max)) slider.max = value;
  if (value < Number(slider.min)) slider.min = value;
  slider.value = value;
}

function writeControls() {
  const { spec } = state;
  for (const name of WORDS) {
    const [, integer, fraction] = /^Q\((\d+),(\d+)\)$/.exec(spec[name]) ?? [];
    if (integer === undefined) continue;
    raise($(`${name}-integer`), Number(integer));
    raise($(`${name}-fraction`), Number(fraction));
    $(`${name}-format`).textContent = spec[name];
  }
  for (const name of SEGMENTS) {
    if (Number.isInteger(Math.log2(spec[name]))) raise($(name), Math.log2(spec[name]));
    showSegments(name);
  }
  for (const name of CHOICES) $(name).value = spec[name];
  const whole = spec.slice_width === null;
  $("whole-row").checked = whole;
  $("slice-width").disabled = $("slice-slider").disabled = whole;
  if (!whole) {
    $("slice-width").value = spec.slice_width;
    $("slice-slider").value = spec.slice_width;
  }
  writePreset();
}

function writePreset() {
  const same = (name) => Object.entries(presets[name]).every(([field, value]) => state.spec[field] === value);
  $("preset").value = Object.keys(presets).find(same) ?? "";
}

function showSegments(name) {
  $(`${name}-count`).textContent = state.spec[name];
  $(name).setAttribute("aria-valuetext", `${state.spec[name]} segments`);
}

function change(name, value) {
  state.spec[name] = value;
  writePreset();
  update();
}

function bindControls() {
  for (const name of WORDS) {
    const integer = $(`${name}-integer`);
    const fraction = $(`${name}-fraction`);
    const moved = () => {
      const format = `Q(${integer.value},${fraction.value})`;
      $(`${name}-format`).textContent = format;
      change(name, format);
    };
    integer.addEventListener("input", moved);
    fraction.addEventListener("input", moved);
  }
  for (const name of SEGMENTS) {
    $(name).addEventListener("input", () => {
      change(name, 2 ** Number($(name).value));
      showSegments(name);
    });
  }
  for (const name of CHOICES) $(name).addEventListener("change", () => change(name, $(name).value));
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
  $("preset").addEventListener("change", () => {
    if (!presets[$("preset").value]) return;
    state.spec = { ...presets[$("preset").value] };
    writeControls();
    update();
  });
  $("scores").addEventListener("input", () => {
    try {
      state.scores = parseScores($("scores").value);
    } catch (error) {
      problem(error.message, "scores");
      return;
    }
    scoreChart.show(state.scores, null);
    update();
  });
  $("random").addEventListener("click", draw);
  $("show").addEventListener("change", render);
  $("slice").addEventListener("input", () => chooseSlice(Number($("slice").value) - 1));
  $("slice-back").addEventListener("click", () => chooseSlice(slice - 1));
  $("slice-next").addEventListener("click", () => chooseSlice(slice + 1));
  $("link").addEventListener("click", copyLink);
  $("save-spec").addEventListener("click", () => {
    if (answer) download("spec.json", JSON.stringify(answer.spec, null, 2) + "\n", "application/json");
  });
  $("save-verilog").addEventListener("click", saveVerilog);
  window.addEventListener("hashchange", () => {
    if (location.hash.slice(1) !== toFragment()) start();
  });
}

function draw() {
  const count = Math.min(4096, Math.max(1, Math.round(Number($("count").value)) || 1));
  const spread = Number($("spread").value) || 0;
  const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  state.scores = Array.from({ length: count }, () => Math.round(normal() * spread * 100) / 100);
  writeScores();
  scoreChart.show(state.scores, null);
  update();
}

function chooseSlice(to) {
  if (!answer || !Number.isInteger(to)) return;
  slice = Math.min(answer.slices - 1, Math.max(0, to));
  renderSteps();
}

// What is wrong stands beside the control that made it so.

function problem(message, field) {
  const beside = $(`${field}-problem`) ?? $("scores-problem");
  beside.textContent = message;
  beside.hidden = false;
  for (const control of controlsOf(field)) control.setAttribute("aria-invalid", "true");
  beside.closest("details")?.setAttribute("open", "");
  document.body.classList.add("stale");
}

function controlsOf(field) {
  if (field === "scores") return [$("scores")];
  return document.querySelectorAll(`[data-field="${field}"] input, [data-field="${field}"] select`);
}

function noProblem() {
  for (const beside of document.querySelectorAll(".problem")) beside.hidden = true;
  for (const control of document.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  document.body.classList.remove("stale");
}

// Requests: one at a time, and after it the newest state.

let asking = false;
let again = false;

async function post(path, request) {
  const reply = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
  });
  const value = await reply.json();
  return value.error === undefined ? value : { refused: value.error, field: value.field };
}

async function update() {
  document.body.dataset.ready = "no";
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  do {
    again = false;
    await ask();
  } while (again);
  asking = false;
  document.body.dataset.ready = "yes";
}

async function ask() {
  const begun = performance.now();
  try {
    const value = await post("/api/compute", { scores: state.scores, spec: state.spec });
    noProblem();
    if (value.refused) {
      problem(value.refused, value.field);
      return;
    }
    answer = value;
    $("time").textContent = `${(performance.now() - begun).toFixed(1)} ms`;
    $("status").textContent = "";
    history.replaceState(null, "", `#${toFragment()}`);
    render();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    $("status").textContent = "The explorer does not answer: is it still running?";
    document.body.classList.add("stale");
  }
}

function render() {
  if (!answer || answer.mask.length !== state.scores.length) return;
  const { errors } = answer;
  $("score-count").textContent = `${state.scores.length} scores in ${answer.slices} ${answer.slices === 1 ? "slice" : "slices"}`;
  $("row-sum").textContent = short(answer.row_sum);
  $("error-two").textContent = short(errors.base_two.max_abs);
  $("error-exact").textContent = short(errors.softmax.max_abs);
  const bits = (value) => (value === null ? "none" : `${short(value)} bit`);
  $("kl-two").textContent = bits(errors.base_two.kl);
  $("kl-exact").textContent = bits(errors.softmax.kl);
  scoreChart.show(state.scores, answer);
  resultChart.show(answer.value, [answer.softmax, answer.base_two], answer.lanes, (i) =>
    `element ${i + 1}: Softermax ${short(answer.value[i])}, softmax ${short(answer.softmax[i])}, base two ${short(answer.base_two[i])}`);
  const one = 2 ** -Number(answer.spec.unnormed.split(",")[1].slice(0, -1));
  unnormedChart.show(answer.unnormed.map((u) => u * one), [], answer.lanes, (i) => `element ${i + 1}: ${short(answer.unnormed[i] * one)}`);
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
  showLanes(answer, state.scores, slice, raw);
  showRow(answer, raw);
}

// Link and files.

async function copyLink() {
  const link = location.href;
  try {
    await navigator.clipboard.writeText(link);
    $("status").textContent = "Link copied.";
  } catch {
    $("status").textContent = `The link is in the address bar: ${link.length} characters.`;
  }
}

async function saveVerilog() {
  const button = $("save-verilog");
  button.disabled = true;
  $("status").textContent = "Making Verilog …";
  const value = await post("/api/verilog", { spec: state.spec, unit: $("unit").value });
  button.disabled = false;
  $("status").textContent = value.refused ?? `${value.name} is ready.`;
  if (!value.refused) download(value.name, value.text, "text/plain");
}

function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function start() {
  try {
    state = fromFragment(location.hash.slice(1));
  } catch (error) {
    state = { scores: FIRST_SCORES, spec: { ...presets.paper } };
    writeControls();
    problem(error.message, "scores");
    return;
  }
  writeScores();
  writeControls();
  scoreChart.show(state.scores, null);
  update();
}

presets = await (await fetch("/api/presets")).json();
for (const name of [...Object.keys(presets), ""]) {
  $("preset").append(new Option(name || "changed", name, false, name === "paper"));
}
$("preset").options[$("preset").length - 1].disabled = true;
bindControls();
start();
