// @ts-check
/** Symbols. They are decoration: what they stand for has a name of its own. */

import { html } from "./html.js";

/** @param {string} path */
function icon(path) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d=${path} />
  </svg>`;
}

export const overview = () => icon("M4 13h6V4H4v9Zm0 7h6v-5H4v5Zm8 0h8v-9h-8v9Zm0-16v5h8V4h-8Z");
export const nodes = () =>
  icon("M4 4h16v6H4V4Zm0 10h16v6H4v-6Zm3-8v2h2V6H7Zm0 10v2h2v-2H7Zm5-10v2h6V6h-6Zm0 10v2h6v-2h-6Z");
export const jobs = () => icon("M4 5h9v3H4V5Zm5 5.500h11v3H9v-3ZM6 16h10v3H6v-3Z");
export const sessions = () => icon("M4 4h12v8H9l-3 3v-3H4V4Zm14 5h3v8h-2v3l-3-3h-5v-3h7V9Z");
export const rooms = () =>
  icon(
    "M12 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8ZM4.500 9a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5Zm15 0a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5ZM12 13c3.500 0 6 2 6 5v3H6v-3c0-3 2.500-5 6-5Z",
  );
export const instances = () =>
  icon(
    "M12 2 3 7v10l9 5 9-5V7l-9-5Zm0 2.300L18 7.700l-6 3.300-6-3.300 6-3.400ZM5 9.400l6 3.300v6.600l-6-3.300V9.400Zm8 9.900v-6.600l6-3.300v6.600l-6 3.300Z",
  );
export const search = () =>
  icon(
    "M10.500 4a6.500 6.500 0 1 0 4 11.600l4.900 4.900 1.400-1.400-4.900-4.900A6.500 6.500 0 0 0 10.500 4Zm0 2a4.500 4.500 0 1 1 0 9 4.500 4.500 0 0 1 0-9Z",
  );
export const warning = () => icon("M12 3 1.500 21h21L12 3Zm-1 7h2v5h-2v-5Zm0 6.500h2v2h-2v-2Z");
export const outside = () =>
  icon("M5 5h6v2H7v10h10v-4h2v6H5V5Zm9 0h5v5h-2V8.400l-6.300 6.300-1.400-1.400L15.600 7H14V5Z");
export const keyboard = () =>
  icon(
    "M3 6h18v12H3V6Zm2 2v2h2V8H5Zm4 0v2h2V8H9Zm4 0v2h2V8h-2Zm4 0v2h2V8h-2ZM5 12v4h2v-4H5Zm4 2v2h6v-2H9Zm8-2v4h2v-4h-2Zm-8-.5v1.500h2v-1.500H9Zm4 0v1.500h2v-1.500h-2Z",
  );
export const up = () => icon("m12 7 6 8H6l6-8Z");
export const down = () => icon("m12 17-6-8h12l-6 8Z");
