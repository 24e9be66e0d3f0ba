// @ts-check
/** Fields that filter a list. What they say is in the address. */

import { useEffect, useRef } from "preact/hooks";

import { html } from "./html.js";
import { count } from "./format.js";
import * as icons from "./icons.js";
import { changed } from "./router.js";
import { navigate, route } from "./state.js";
import { wordOf } from "./words.js";

/** @import { Word } from "./words.js" */

/** Somebody who types does not want an answer to each letter. */
const TYPING_MS = 250;

/**
 * A field whose text is a parameter of the address.
 *
 * @param {{ name: string, label: string, placeholder?: string, main?: boolean }} props `main`: the
 *   one that "/" focuses.
 */
export function TextFilter({ name, label, placeholder = "", main = false }) {
  const input = /** @type {import("preact").RefObject<HTMLInputElement>} */ (
    useRef(/** @type {HTMLInputElement | null} */ (null))
  );
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  const value = route.value.query[name] ?? "";
  useEffect(() => {
    // The history moved, or a filter was removed; but nobody's typing is overwritten.
    if (input.current !== null && document.activeElement !== input.current) {
      input.current.value = value;
    }
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const apply = () => {
    clearTimeout(timer.current);
    navigate(changed(route.value, { [name]: input.current?.value.trim() }), { replace: true });
  };
  return html`<label class=${main ? "field main" : "field"}>
    <span class=${main ? "visually-hidden" : "field-name"}>${label}</span>
    ${main && icons.search()}
    <input
      type="search"
      name=${name}
      defaultValue=${value}
      placeholder=${placeholder}
      maxlength="128"
      autocomplete="off"
      autocapitalize="off"
      spellcheck=${false}
      data-search=${main ? "main" : undefined}
      ref=${input}
      onInput=${() => {
        clearTimeout(timer.current);
        timer.current = setTimeout(apply, TYPING_MS);
      }}
      onChange=${apply}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter") {
          apply();
        }
      }}
    />
    ${main && html`<kbd aria-hidden="true">/</kbd>`}
  </label>`;
}

/**
 * @param {{ name: string, label: string, all: string,
 *   options: readonly { value: string, text: string }[] }} props
 */
export function ChoiceFilter({ name, label, all, options }) {
  const value = route.value.query[name] ?? "";
  const known = options.some((option) => option.value === value) || value === "";
  const shown = known ? options : [...options, { value, text: value }];
  return html`<label class="field">
    <span class="field-name">${label}</span>
    <select
      name=${name}
      value=${value}
      onChange=${(/** @type {Event} */ event) => {
        const chosen = /** @type {HTMLSelectElement} */ (event.currentTarget).value;
        navigate(changed(route.value, { [name]: chosen }), { replace: true });
      }}
    >
      <option value="" selected=${value === ""}>${all}</option>
      ${shown.map(
        (option) =>
          html`<option key=${option.value} value=${option.value} selected=${option.value === value}>
            ${option.text}
          </option>`,
      )}
    </select>
  </label>`;
}

/**
 * States as links, with how many there are of each.
 *
 * @param {{ name: string, label: string, words: Readonly<Record<string, Word>>,
 *   counts: Readonly<Record<string, number>> | undefined }} props
 */
export function StateFilter({ name, label, words, counts }) {
  const current = route.value.query[name] ?? "";
  const all = counts && Object.values(counts).reduce((sum, each) => sum + each, 0);
  const choices = [{ key: "", label: "All", number: all }].concat(
    Object.keys(words).map((key) => ({
      key,
      label: wordOf(words, key).label,
      number: counts && (counts[key] ?? 0),
    })),
  );
  return html`<nav class="states" aria-label=${label}>
    ${choices.map(
      (choice) =>
        html`<a
          key=${choice.key}
          href=${changed(route.value, { [name]: choice.key })}
          data-replace
          data-state=${choice.key || "all"}
          class=${wordOf(words, choice.key).tone}
          aria-current=${choice.key === current ? "true" : undefined}
          >${choice.label}${
            choice.number !== undefined &&
            html` <span class="states-count">${count(choice.number)}</span>`
          }</a
        >`,
    )}
  </nav>`;
}

/**
 * Filters without a field of their own, and a way to remove each.
 *
 * @param {{ names: readonly string[] }} props
 */
export function SetFilters({ names }) {
  const { query } = route.value;
  return names
    .filter((name) => query[name] !== undefined)
    .map(
      (name) =>
        html`<a
          key=${name}
          class="set-filter"
          href=${changed(route.value, { [name]: undefined })}
          data-replace
          aria-label=${`Remove the filter ${name}: ${query[name]}`}
          >${name}: <b>${query[name]}</b> ×</a
        >`,
    );
}
