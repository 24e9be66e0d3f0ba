// @ts-check
/** Where the time of an utterance went, as parts of a bar. No I/O. */

/** @import { ResultTimings } from "./types.js" */

/**
 * @typedef {object} Part
 * @property {string} name the key of its text: audio, pause, dispatch, a stage, rest, node, deliver.
 * @property {number} ms
 */

const STAGES = new Set(["ASR", "SEMANTIC", "NMT", "TTS", "TONE"]);

/**
 * Consecutive parts. What a node did beside its stages is "rest"; without stages it is "node".
 *
 * @param {ResultTimings} timings
 * @returns {Part[]}
 */
export function timeline(timings) {
  const { audioMs, hangoverMs, dispatchMs, nodeMs, deliverMs, stages } = timings;
  let left = Math.max(0, nodeMs);
  const staged = stages.slice(0, 16).map(({ stage, tookMs }) => {
    // Stages may overlap; the bar must not be longer than the time that passed.
    const ms = Math.min(Math.max(0, tookMs), left);
    left -= ms;
    return { name: STAGES.has(stage) ? stage : "OTHER", ms };
  });
  return [
    { name: "audio", ms: audioMs },
    { name: "pause", ms: hangoverMs },
    { name: "dispatch", ms: dispatchMs },
    ...staged,
    { name: staged.length === 0 ? "node" : "rest", ms: left },
    { name: "deliver", ms: deliverMs },
  ].filter((part) => part.ms > 0);
}

/**
 * From the end of speech to the translation: how long people waited.
 *
 * @param {ResultTimings} timings
 */
export function waitedMs({ hangoverMs, dispatchMs, nodeMs, deliverMs }) {
  return hangoverMs + dispatchMs + nodeMs + deliverMs;
}

/**
 * @param {number} ms
 * @param {string} language for the decimal separator.
 */
export function duration(ms, language) {
  if (ms < 1000) {
    return `${Math.round(ms)} ms`;
  }
  return `${new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(ms / 1000)} s`;
}
