// @ts-check
/** Looks up texts, in the language of the page or of a half. No I/O. */

import { EN } from "./text-en.js";
import { ES } from "./text-es.js";
import { ZH } from "./text-zh.js";

/** @import { Interface } from "./types.js" */
/** @typedef {keyof typeof EN} TextKey */
/** @typedef {(key: TextKey, values?: Record<string, string | number>) => string} Text */

/** @type {Record<Interface, Record<TextKey, string>>} */
export const TEXTS = { en: EN, es: ES, zh: ZH };

/** What the languages of the page call themselves. */
export const INTERFACES = /** @type {const} */ ([
  ["en", "English"],
  ["es", "Español"],
  ["zh", "中文"],
]);

/**
 * The page's language for a language code, if there is one.
 *
 * @param {string} code
 * @returns {Interface | null}
 */
export function interfaceFor(code) {
  const base = code.toLowerCase().split("-")[0];
  return base === "en" || base === "es" || base === "zh" ? base : null;
}

/**
 * @template {string} K
 * @param {Record<K, string>} table
 * @returns {(key: K, values?: Record<string, string | number>) => string}
 */
export function lookUpIn(table) {
  return (key, values = {}) =>
    table[key].replace(/\{(\w+)\}/g, (_, /** @type {string} */ name) => String(values[name] ?? ""));
}

/**
 * @param {Interface} language
 * @returns {Text}
 */
export function textsOf(language) {
  return lookUpIn(TEXTS[language]);
}

/**
 * The text for a reason, or the general one that names it.
 *
 * @param {Text} text
 * @param {"missing" | "problem"} table
 * @param {string} reason
 */
export function reasonText(text, table, reason) {
  const key = `${table}.${reason}`;
  return key in EN
    ? text(/** @type {TextKey} */ (key))
    : text(`${table}.OTHER`, { reason: reason.slice(0, 60) || "?" });
}

/**
 * What a language is called in a sentence of another language; its code if nobody knows. Spanish and
 * others do not capitalize it.
 *
 * @param {string} code
 * @param {string} inLanguage
 */
export function languageNameIn(code, inLanguage) {
  try {
    return new Intl.DisplayNames([inLanguage], { type: "language" }).of(code) ?? code;
  } catch {
    // Not a code that the browser knows.
    return code;
  }
}

/**
 * What a language calls itself, to stand alone; its code if nobody knows.
 *
 * @param {string} code
 */
export function languageName(code) {
  const name = languageNameIn(code, code);
  return name.charAt(0).toUpperCase() + name.slice(1);
}
