// @ts-check
/** Names of languages, in English like the rest of the console. */

const NAMES = new Intl.DisplayNames("en", { type: "language", fallback: "none" });

/** A text target that stands for any language. */
export const ANY = "*";

/** @type {Map<string, string>} */
const known = new Map();

/** The name of a language, or its code if it has none. @param {string} code */
export function languageName(code) {
  let name = known.get(code);
  if (name === undefined) {
    name = code === ANY ? "any language" : (nameOrNone(code) ?? code);
    // Codes come from nodes: what is remembered has a limit.
    if (known.size < 1000) {
      known.set(code, name);
    }
  }
  return name;
}

/** @param {string} code */
function nameOrNone(code) {
  try {
    return NAMES.of(code);
  } catch {
    return undefined;
  }
}

/**
 * "English to Spanish"
 *
 * @param {string} src
 * @param {string} tgt
 */
export function directionName(src, tgt) {
  return `${languageName(src)} to ${languageName(tgt)}`;
}
