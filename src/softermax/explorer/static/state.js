// The page's state and its link: scores and what differs from the paper's spec, after the #.
// softermax/explorer/state.py writes the same links.

/** What deferred normalisation has of its own; its other fields are those of its scores' spec. */
const DEFERRED = ["weight", "powsum", "reciprocal", "reciprocal_segments"];
const NUMBERS = ["slice_width", "pow2_segments", "reciprocal_segments"];
const FIRST_SCORES = [
  0.5, -1.25, 2, 1, -3.5, 3.25, 1.5, 2.75, -0.5, 0.75, 1.25, -2, 2.25, 0, -1.5, 1.75,
  2.5, 4.5, 1, -0.75, 3, 5.25, 0.25, 2, 1.5, -2.25, 3.75, 4, 0.5, 1, 2.5, -1,
  3.5, 6.75, 2.25, 7.5, 1.25, 5, 0, 4.25,
];

export const isDeferred = (spec) => spec.scores !== undefined;

/** The SoftermaxSpec: the spec itself, or the one of its scores. */
export const rowsOf = (spec) => (isDeferred(spec) ? spec.scores : spec);

/** The object that holds a field which a control shows. */
export const holder = (spec, field) => (DEFERRED.includes(field) ? spec : rowsOf(spec));

export const number = (text) => (text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text));

export const writeScores = (scores, between) => scores.map((score) => (score === null ? "x" : score)).join(between);

export function parseScores(text) {
  const parts = text.split(/[\s,;]+/).filter((part) => part !== "");
  if (!parts.length) throw new Error("at least one score is needed");
  return parts.map((part) => {
    if (part.toLowerCase() === "x") return null;
    const value = Number(part);
    if (!Number.isFinite(value)) throw new Error(`${part} is not a score: must be numbers, and x where masked`);
    return value;
  });
}

export function toFragment({ scores, spec }, presets) {
  const pairs = [["scores", writeScores(scores, ",")]];
  const add = (values, usual, prefix) => {
    for (const [name, value] of Object.entries(values)) {
      if (name !== "scores" && value !== usual[name]) pairs.push([prefix + name, value === null ? "row" : value]);
    }
  };
  add(rowsOf(spec), presets.paper, "");
  if (isDeferred(spec)) {
    pairs.push(["normalisation", "deferred"]);
    add(spec, presets["paper:deferred"], "deferred.");
  }
  return pairs.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`).join("&");
}

/** Scores and spec of a link, and the text of its scores where they cannot be read. */
export function fromFragment(text, presets) {
  const given = new URLSearchParams(text);
  const deferred = given.get("normalisation") === "deferred";
  const rows = { ...presets.paper };
  const spec = deferred ? { ...presets["paper:deferred"], scores: rows } : rows;
  let scores = [...FIRST_SCORES];
  let unreadable = null;
  for (const [name, value] of given) {
    const own = DEFERRED.find((field) => deferred && name === `deferred.${field}`);
    const field = own ?? name;
    if (name === "scores") {
      try {
        scores = parseScores(value);
      } catch {
        unreadable = value;
      }
    } else if (!deferred || name !== "normalisation") {
      const whole = field === "slice_width" && value === "row";
      (own ? spec : rows)[field] = whole ? null : NUMBERS.includes(field) ? number(value) : value;
    }
  }
  return { scores, spec, unreadable };
}
