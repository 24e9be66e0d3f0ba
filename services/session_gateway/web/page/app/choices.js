// @ts-check
/** Keeps the user's choices in the browser. Nothing that was said is stored. */

import { interfaceFor } from "./texts.js";

/** @import { Interface, State } from "./types.js" */

const KEY = "lingua.choices";
const LANGUAGE = /^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$/;

/**
 * @param {string} key
 * @returns {Record<string, unknown>} what was kept with it; nothing if it is damaged, or if the browser
 *   keeps nothing for this page.
 */
export function readChoices(key) {
  try {
    /** @type {unknown} */
    const read = JSON.parse(localStorage.getItem(key) ?? "{}");
    return typeof read === "object" && read !== null ? { ...read } : {};
  } catch {
    return {};
  }
}

/**
 * @param {string} key
 * @param {object} choices
 */
export function writeChoices(key, choices) {
  try {
    localStorage.setItem(key, JSON.stringify(choices));
  } catch {
    // The browser keeps nothing for this page: the choices last until it is closed.
  }
}

/**
 * @param {unknown} value
 * @returns {string} a language code, or "".
 */
export function codeOf(value) {
  return typeof value === "string" && LANGUAGE.test(value) ? value : "";
}

/**
 * @param {unknown} stored what the user has chosen earlier.
 * @returns {Interface} the language of the page.
 */
export function chosenInterface(stored) {
  const browsers = navigator.languages.map(interfaceFor).find((each) => each !== null);
  return interfaceFor(codeOf(stored)) ?? browsers ?? "en";
}

/** @returns {Partial<State>} */
export function storedChoices() {
  const stored = readChoices(KEY);
  return {
    interface: chosenInterface(stored.interface),
    languages: { a: codeOf(stored.a), b: codeOf(stored.b) },
    handsFree: stored.handsFree === true,
    turned: stored.turned === true,
  };
}

/** @param {State} state */
export function storeChoices({ interface: shown, languages, handsFree, turned }) {
  writeChoices(KEY, { interface: shown, ...languages, handsFree, turned });
}
