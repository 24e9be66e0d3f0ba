// @ts-check
/**
 * The geometry of a session's timeline: for each direction a lane of what was spoken, and a lane of
 * what was waited for. Long silence is shortened, or a minute of it would hide the rest.
 */

import { coarse } from "./format.js";
import { wordOf, CUTS, RESULT_KINDS } from "./words.js";
import { duration } from "./format.js";

/** @import { Utterance } from "./types.js" */

/**
 * @typedef {object} Mark
 * @property {string} place of the utterance, as `placeOf` names it.
 * @property {number} index
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} height
 * @property {"spoken" | "waited"} part
 * @property {"done" | "held" | "quiet" | "missing" | "open"} look
 *
 * @typedef {object} Lane
 * @property {string} src
 * @property {string} tgt
 * @property {number} y
 * @property {number} height
 * @property {number} waitY where the second lane begins.
 * @property {readonly Mark[]} marks
 *
 * @typedef {object} Join
 * @property {string} from the place of the utterance that was held.
 * @property {string} to the place of the utterance that contains it.
 * @property {string} path
 *
 * @typedef {object} Timeline
 * @property {number} width
 * @property {number} height
 * @property {number} left
 * @property {readonly Lane[]} lanes
 * @property {readonly Join[]} joins
 * @property {readonly { x: number, width: number, label: string }[]} breaks
 * @property {readonly { x: number, ms: number }[]} ticks
 */

/** Silence longer than this is drawn as short as this. */
export const MAX_GAP_MS = 8000;
/** A wait is drawn no longer than this, or one job that hangs would hide the rest. */
const MAX_WAIT_MS = 60_000;
const AXIS = 26;
const TITLE = 24;
const SPOKEN = 18;
const WAITED = 12;
const STEP = 14;
/** Waits that overlap lie below each other, up to this many. */
const ROWS = 4;
const LANE_GAP = 14;
const LEAST = 4;
/** A second is never narrower than this: the drawing is scrolled instead. */
const PX_PER_SECOND = 6;
const PER_TICK = 110;
/** The room of a tick's label, to the right of it. */
const LABEL = 50;
/** Labels have whole seconds, so ticks are on them. */
const TICK_STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].map((s) => s * 1000);

/** @typedef {{ utterance: Utterance, from: number, cut: number, end: number }} Span */

/**
 * @param {readonly Utterance[]} utterances
 * @param {number} room the visible width in pixels.
 * @param {number} nowMs the end of what is still waited for.
 * @returns {Timeline | null} null if no utterance has times.
 */
export function timeline(utterances, room, nowMs) {
  const spans = utterances.flatMap((utterance) => spanOf(utterance, nowMs));
  if (spans.length === 0) {
    return null;
  }
  const pieces = busyPieces(spans);
  const totalMs = pieces.reduce((sum, piece) => sum + piece.to - piece.from + piece.gap, 0);
  const left = 12;
  const inner = Math.max(room - 2 * left, (totalMs / 1000) * PX_PER_SECOND, 200);
  const scale = inner / Math.max(totalMs, 1);
  /** @param {number} ms */
  const place = (ms) => left + placeIn(pieces, ms) * scale;
  let y = AXIS;
  /** @type {Lane[]} */
  const lanes = [];
  for (const own of byDirection(spans)) {
    const lane = laneOf(own, y, place);
    lanes.push(lane);
    y += lane.height + LANE_GAP;
  }
  return {
    width: inner + 2 * left,
    height: y,
    left,
    lanes,
    joins: joinsOf(utterances, lanes),
    breaks: breaksOf(pieces, scale, left),
    ticks: ticksOf(pieces, place, inner),
  };
}

/**
 * @param {Utterance} utterance
 * @param {number} nowMs
 * @returns {Span[]}
 */
function spanOf(utterance, nowMs) {
  const cut = utterance.cut_ms ?? utterance.spoken_from_ms;
  if (cut === undefined) {
    return [];
  }
  const from = Math.min(utterance.spoken_from_ms ?? cut, cut);
  const isOver = utterance.missing || utterance.kind !== undefined || utterance.state === "failed";
  const end = utterance.result_ms ?? (isOver ? cut : Math.min(nowMs, cut + MAX_WAIT_MS));
  return [{ utterance, from, cut, end: Math.max(end, cut) }];
}

/** @typedef {{ from: number, to: number, gap: number, silence: number }} Piece `gap`: drawn before it. */

/**
 * Times in which something happens, with shortened silence before each.
 *
 * @param {readonly Span[]} spans
 * @returns {Piece[]}
 */
function busyPieces(spans) {
  /** @type {Piece[]} */
  const pieces = [];
  for (const { from, end } of [...spans].sort((a, b) => a.from - b.from)) {
    const last = pieces.at(-1);
    if (last !== undefined && from - last.to <= MAX_GAP_MS) {
      last.to = Math.max(last.to, end);
    } else {
      const silence = last === undefined ? 0 : from - last.to;
      pieces.push({ from, to: end, gap: last === undefined ? 0 : MAX_GAP_MS, silence });
    }
  }
  return pieces;
}

/**
 * @param {readonly Piece[]} pieces
 * @param {number} ms
 */
function placeIn(pieces, ms) {
  let at = 0;
  for (const { from, to, gap } of pieces) {
    at += gap;
    if (ms <= to) {
      return at + Math.max(ms - from, 0);
    }
    at += to - from;
  }
  return at;
}

/** Directions in the order in which they were spoken first. @param {readonly Span[]} spans */
function byDirection(spans) {
  /** @type {Map<string, Span[]>} */
  const groups = new Map();
  for (const span of [...spans].sort((a, b) => a.from - b.from)) {
    const key = `${span.utterance.src}:${span.utterance.tgt}`;
    groups.set(key, [...(groups.get(key) ?? []), span]);
  }
  return [...groups.values()];
}

/**
 * @param {readonly Span[]} spans of one direction, by start.
 * @param {number} y
 * @param {(ms: number) => number} place
 * @returns {Lane}
 */
function laneOf(spans, y, place) {
  const waitY = y + TITLE + SPOKEN + 4;
  /** @type {number[]} */
  const taken = [];
  const marks = spans.flatMap(({ utterance, from, cut, end }) => {
    const look = lookOf(utterance);
    const own = placeOf(utterance);
    const [x, middle, right] = [place(from), place(cut), place(end)];
    const width = Math.max(right - middle, LEAST);
    const row = rowFor(taken, middle, middle + width);
    return /** @type {Mark[]} */ ([
      {
        ...{ place: own, index: utterance.index, part: "spoken", look, x, height: SPOKEN },
        y: y + TITLE,
        width: Math.max(middle - x, LEAST),
      },
      {
        ...{ place: own, index: utterance.index, part: "waited", look, x: middle, width },
        height: WAITED,
        y: waitY + row * STEP,
      },
    ]);
  });
  const first = spans[0]?.utterance;
  return {
    src: first?.src ?? "",
    tgt: first?.tgt ?? "",
    y,
    waitY,
    height: waitY - y + Math.max(taken.length, 1) * STEP,
    marks,
  };
}

/**
 * The first row that is free from `x` on; the last one if there is none.
 *
 * @param {number[]} taken up to where each row is taken; changed.
 * @param {number} x
 * @param {number} end
 */
function rowFor(taken, x, end) {
  let row = taken.findIndex((until) => until + 1 <= x);
  if (row === -1) {
    row = Math.min(taken.length, ROWS - 1);
  }
  taken[row] = Math.max(taken[row] ?? 0, end);
  return row;
}

/**
 * @param {Utterance} utterance
 * @returns {Mark["look"]}
 */
export function lookOf(utterance) {
  if (utterance.missing || utterance.state === "failed" || utterance.state === "cancelled") {
    return "missing";
  }
  if (utterance.kind === "HELD") {
    return "held";
  }
  if (utterance.kind === "NO_SPEECH") {
    return "quiet";
  }
  return utterance.kind !== undefined || utterance.result_ms !== undefined ? "done" : "open";
}

/**
 * Names an utterance and its direction: what is said to a room has one row for each language.
 *
 * @param {{ index: number, src: string, tgt: string }} utterance
 */
export function placeOf({ index, src, tgt }) {
  return `${src}:${tgt}/${index}`;
}

/**
 * Lines from utterances that were held to the one that contains them.
 *
 * @param {readonly Utterance[]} utterances
 * @param {readonly Lane[]} lanes
 * @returns {Join[]}
 */
function joinsOf(utterances, lanes) {
  /** @type {Map<string, Mark>} */
  const spoken = new Map();
  for (const mark of lanes.flatMap((lane) => lane.marks)) {
    if (mark.part === "spoken") {
      spoken.set(mark.place, mark);
    }
  }
  return utterances.flatMap((utterance) => {
    const { joined_into: index } = utterance;
    if (index === undefined) {
      return [];
    }
    const [from, to] = [placeOf(utterance), placeOf({ ...utterance, index })];
    const [a, b] = [spoken.get(from), spoken.get(to)];
    if (a === undefined || b === undefined) {
      return [];
    }
    const [x1, x2, y] = [a.x + a.width / 2, b.x + b.width / 2, a.y];
    const path = `M${x1.toFixed(1)},${y}C${x1.toFixed(1)},${y - 12} ${x2.toFixed(1)},${b.y - 12} ${x2.toFixed(1)},${b.y}`;
    return [{ from, to, path }];
  });
}

/**
 * @param {readonly Piece[]} pieces
 * @param {number} scale
 * @param {number} left
 */
function breaksOf(pieces, scale, left) {
  let at = 0;
  /** @type {{ x: number, width: number, label: string }[]} */
  const breaks = [];
  for (const { from, to, gap, silence } of pieces) {
    if (gap > 0) {
      breaks.push({ x: left + at * scale, width: gap * scale, label: coarse(silence) });
    }
    at += gap + to - from;
  }
  return breaks;
}

/**
 * @param {readonly Piece[]} pieces
 * @param {(ms: number) => number} place
 * @param {number} inner
 */
function ticksOf(pieces, place, inner) {
  /** @type {{ x: number, ms: number }[]} */
  const ticks = [];
  const most = inner / PER_TICK;
  const rough = pieces.reduce((sum, { from, to }) => sum + to - from, 0) / most;
  const stepMs = TICK_STEPS_MS.find((each) => each >= rough) ?? rough;
  for (const { from, to } of pieces) {
    const first = Math.ceil(from / stepMs) * stepMs;
    for (let ms = first <= to ? first : from; ms <= to; ms += stepMs) {
      const x = place(ms);
      const last = ticks.at(-1);
      const hasRoom = x <= inner - LABEL || ticks.length === 0;
      if (hasRoom && (last === undefined || x - last.x >= PER_TICK * 0.8)) {
        ticks.push({ x, ms });
      }
    }
  }
  return ticks;
}

/** All of an utterance in one line, without what was said. @param {Utterance} utterance */
export function utteranceText(utterance) {
  const { index, src, tgt, cut, kind, node, attempts, error, latency_ms, joined } = utterance;
  const parts = [`${index}: ${src} → ${tgt}`];
  if (utterance.spoken_from_ms !== undefined && utterance.cut_ms !== undefined) {
    parts.push(`spoken for ${duration(utterance.cut_ms - utterance.spoken_from_ms)}`);
  }
  parts.push(`cut: ${wordOf(CUTS, cut).label.toLowerCase()}`);
  parts.push(...resultWords(utterance, kind, error));
  if (latency_ms !== undefined) {
    parts.push(`after ${duration(latency_ms)}`);
  }
  if (node !== "") {
    parts.push(`node ${node}`);
  }
  if (attempts > 1) {
    parts.push(`${attempts} attempts`);
  }
  if (joined.length > 0) {
    parts.push(`contains ${joined.join(", ")}`);
  }
  return parts.join(", ");
}

/**
 * @param {Utterance} utterance
 * @param {string | undefined} kind
 * @param {string | undefined} error
 */
function resultWords(utterance, kind, error) {
  const look = lookOf(utterance);
  if (look === "missing") {
    return [`missing${error ? ` (${error})` : ""}`];
  }
  if (look === "open") {
    return ["no result yet"];
  }
  const parts = [wordOf(RESULT_KINDS, kind ?? "TRANSLATED").label.toLowerCase()];
  if (utterance.joined_into !== undefined) {
    parts.push(`joined into ${utterance.joined_into}`);
  }
  return parts;
}
