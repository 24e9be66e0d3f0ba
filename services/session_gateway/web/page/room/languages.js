// @ts-check
/** Which languages can be spoken in a room, and listened to. No I/O. */

import { languagesOf, offered } from "../app/offer.js";

/** @import { Attendance, OfferedDirection } from "./types.js" */

/**
 * @param {readonly string[]} codes
 * @param {readonly string[]} allowed empty: all.
 * @returns {string[]} each once, sorted.
 */
function among(codes, allowed) {
  const lower = new Set(allowed.map((each) => each.toLowerCase()));
  const found = new Map(codes.map((each) => [each.toLowerCase(), each]));
  return [...found]
    .filter(([code]) => lower.size === 0 || lower.has(code))
    .map(([, code]) => code)
    .sort();
}

/**
 * What nodes understand.
 *
 * @param {readonly OfferedDirection[]} directions
 * @param {readonly string[]} allowed
 */
export function speakable(directions, allowed) {
  return among(
    directions.map(({ src }) => src),
    allowed,
  );
}

/**
 * What can be translated from the languages of the speakers, and these languages. Nobody may have come
 * yet: then everything that nodes offer.
 *
 * @param {readonly OfferedDirection[]} directions
 * @param {Attendance | null} attendance
 * @param {readonly string[]} allowed
 */
export function listenable(directions, attendance, allowed) {
  const spoken = (attendance?.speakers ?? []).map(({ language }) => language);
  const sources = spoken.length > 0 ? spoken : directions.map(({ src }) => src);
  const all = [...new Set([...languagesOf(directions), ...allowed])];
  const targets = all.filter((each) => sources.some((src) => offered(directions, src, each)));
  const used = (attendance?.languages ?? []).map(({ language }) => language);
  return among([...targets, ...sources, ...used], allowed);
}

/**
 * The one to begin with.
 *
 * @param {readonly string[]} codes that can be chosen.
 * @param {readonly string[]} preferred best first.
 * @returns {string} "" if there are none.
 */
export function firstChoice(codes, preferred) {
  const base = (/** @type {string} */ code) => code.toLowerCase().split("-")[0];
  for (const wanted of preferred) {
    const exact = codes.find((each) => each.toLowerCase() === wanted.toLowerCase());
    const found = exact ?? codes.find((each) => base(each) === base(wanted));
    if (found !== undefined) {
      return found;
    }
  }
  return codes[0] ?? "";
}
