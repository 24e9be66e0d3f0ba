// @ts-check
/** Keys that work everywhere on the page. */

import { keysOpen } from "./state.js";

export function startKeys() {
  addEventListener("keydown", (event) => {
    const isChord = event.ctrlKey || event.metaKey || event.altKey;
    // A dialog has keys of its own.
    if (event.defaultPrevented || isChord || document.querySelector("dialog[open]") !== null) {
      return;
    }
    const target = /** @type {HTMLElement} */ (event.target);
    if (!target.matches("input, textarea, select")) {
      pressed(event, target);
    } else if (event.key === "Escape") {
      // A field of type search would be cleared, too.
      event.preventDefault();
      target.blur();
    }
  });
}

/**
 * @param {KeyboardEvent} event
 * @param {HTMLElement} target
 */
function pressed(event, target) {
  if (event.key === "/") {
    focusSearch(event);
  } else if (event.key === "?") {
    event.preventDefault();
    keysOpen.value = true;
  } else if (event.key === "ArrowDown" && target.closest("tbody, [role=grid], .scroll") === null) {
    focusFirstRow(event);
  }
}

/** The field of the view, or the one that finds every id. @param {Event} event */
function focusSearch(event) {
  const field =
    document.querySelector("[data-search=main]") ?? document.querySelector("[data-search=global]");
  if (field instanceof HTMLInputElement) {
    event.preventDefault();
    field.focus();
    field.select();
  }
}

/** @param {Event} event */
function focusFirstRow(event) {
  const link = document.querySelector("main tr.opens a");
  if (link instanceof HTMLElement) {
    event.preventDefault();
    link.focus();
  }
}
