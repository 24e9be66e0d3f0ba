// @ts-check
/** Which languages can be chosen, by what nodes offer. No I/O. */

/** @import { Languages, OfferedDirection, Side } from "./types.js" */
/** @typedef {readonly OfferedDirection[]} Directions */

const ANY = "*";

/**
 * @param {string} one
 * @param {string} other
 */
function same(one, other) {
  return one.toLowerCase() === other.toLowerCase();
}

/**
 * The direction that nodes offer from one language to another. If some of them can speak, it is what
 * those offer: the page asks for speech then.
 *
 * @param {Directions} directions
 * @param {string} src
 * @param {string} tgt
 * @returns {OfferedDirection | undefined}
 */
export function offered(directions, src, tgt) {
  const found = directions.filter(
    (each) => same(each.src, src) && (same(each.tgt, tgt) || each.tgt === ANY),
  );
  const speaking = found.filter((each) => each.speech);
  const best = speaking.length > 0 ? speaking : found;
  return best.find((each) => each.room) ?? best[0];
}

/**
 * Every language that nodes translate from or to.
 *
 * @param {Directions} directions
 * @returns {string[]}
 */
export function languagesOf(directions) {
  const all = directions.flatMap(({ src, tgt }) => (tgt === ANY ? [src] : [src, tgt]));
  return [...new Set(all)].sort();
}

/**
 * How well two languages go together: 2 if each is translated to the other, 1 if one of them is.
 *
 * @param {Directions} directions
 * @param {string} a
 * @param {string} b
 */
function fit(directions, a, b) {
  if (same(a, b)) {
    return 0;
  }
  return Number(!!offered(directions, a, b)) + Number(!!offered(directions, b, a));
}

/**
 * @param {Directions} directions
 * @param {string} language
 * @returns {string} the language that goes with it best, or "".
 */
function partner(directions, language) {
  let best = "";
  for (const each of languagesOf(directions)) {
    if (fit(directions, language, each) > (best === "" ? 0 : fit(directions, language, best))) {
      best = each;
    }
  }
  return best;
}

/**
 * The languages after somebody has chosen one. If both would be the same, they are exchanged; if the
 * other one does not go with it, that changes too.
 *
 * @param {Languages} languages
 * @param {Side} side
 * @param {string} language
 * @param {Directions} directions
 * @returns {Languages}
 */
export function choose(languages, side, language, directions) {
  const other = side === "a" ? "b" : "a";
  let theirs = same(languages[other], language) ? languages[side] : languages[other];
  if (fit(directions, language, theirs) === 0) {
    theirs = partner(directions, language) || theirs;
  }
  return side === "a" ? { a: language, b: theirs } : { a: theirs, b: language };
}

/**
 * The languages after the offer has changed: those that were chosen stay, even if nobody offers them
 * at the moment.
 *
 * @param {Languages} languages
 * @param {Directions} directions
 * @param {string} preferred the language to begin with.
 * @returns {Languages}
 */
export function settle(languages, directions, preferred) {
  if (languages.a !== "" && languages.b !== "" && !same(languages.a, languages.b)) {
    return languages;
  }
  const all = languagesOf(directions);
  const a =
    languages.a ||
    (all.find((each) => same(each, preferred)) ??
      all.find((each) => partner(directions, each) !== "") ??
      "");
  const b = partner(directions, a);
  return a === "" || b === "" ? languages : { a, b };
}

/**
 * What a half can choose from.
 *
 * @param {Languages} languages
 * @param {Side} side
 * @param {Directions} directions
 * @returns {{ code: string, busy: boolean, isOffered: boolean }[]} with the chosen one in any case.
 */
export function choices(languages, side, directions) {
  const other = languages[side === "a" ? "b" : "a"];
  const chosen = languages[side];
  const all = languagesOf(directions).filter((each) => partner(directions, each) !== "");
  const codes = chosen === "" || all.some((each) => same(each, chosen)) ? all : [chosen, ...all];
  return codes.map((code) => {
    const found = offered(directions, code, other);
    return {
      code,
      busy: found !== undefined && !found.room,
      isOffered: all.includes(code),
    };
  });
}

/**
 * Whether a session may ask for speech: if it does, nodes that do not speak are not used. So every
 * direction that is offered has to be spoken.
 *
 * @param {Languages} languages
 * @param {Directions} directions
 */
export function bothSpeak({ a, b }, directions) {
  const found = [offered(directions, a, b), offered(directions, b, a)].filter(
    (each) => each !== undefined,
  );
  return found.length > 0 && found.every((each) => each.speech);
}
