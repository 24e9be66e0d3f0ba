// @ts-check
/** Keeps the user's choices in the browser. Nothing that was said is stored. */

import { interfaceFor } from "./texts.js";

/** @import { State } from "./types.js" */

const KEY = "lingua.choices";
const LANGUAGE = /^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$/;

/** @returns {Partial<State>} */
export function storedChoices() {
  /** @type {Record<string, unknown>} */
  let stored = {};
  try {
    /** @type {unknown} */
    const read = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    stored = typeof read === "object" && read !== null ? { ...read } : {};
  } catch {
    // Damaged, or the browser keeps nothing for this page.
  }
  const code = (/** @type {unknown} */ value) =>
    typeof value === "string" && LANGUAGE.test(value) ? value : "";
  const browsers = navigator.languages.map(interfaceFor).find((each) => each !== null);
  return {
    interface: interfaceFor(code(stored.interface)) ?? browsers ?? "en",
    languages: { a: code(stored.a), b: code(stored.b) },
    handsFree: stored.handsFree === true,
    turned: stored.turned === true,
  };
}

/** @param {State} state */
export function storeChoices({ interface: shown, languages, handsFree, turned }) {
  try {
    const { a, b } = languages;
    localStorage.setItem(KEY, JSON.stringify({ interface: shown, a, b, handsFree, turned }));
  } catch {
    // The browser keeps nothing for this page: the choices last until it is closed.
  }
}
