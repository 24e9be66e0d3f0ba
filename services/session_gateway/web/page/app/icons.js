// @ts-check
/** Symbols. They are decoration: the controls have names of their own. */

import { html } from "./html.js";

/** @param {string} path */
function icon(path) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d=${path} />
  </svg>`;
}

export const microphone = () =>
  icon(
    "M12 15a4 4 0 0 0 4-4V6a4 4 0 0 0-8 0v5a4 4 0 0 0 4 4Zm7-4a1 1 0 0 0-2 0 5 5 0 0 1-10 0 1 1 0 0 0-2 0 7 7 0 0 0 6 6.9V21a1 1 0 0 0 2 0v-3.1A7 7 0 0 0 19 11Z",
  );
export const speaker = () =>
  icon(
    "M12 4.5v15a1 1 0 0 1-1.6.8L6 17H4a2 2 0 0 1-2-2V9c0-1.1.9-2 2-2h2l4.4-3.3a1 1 0 0 1 1.6.8Zm3.5 3.2a1 1 0 0 1 1.4.1 6.5 6.5 0 0 1 0 8.4 1 1 0 1 1-1.5-1.3 4.5 4.5 0 0 0 0-5.8 1 1 0 0 1 .1-1.4Zm3-2.6a1 1 0 0 1 1.4.1 10.5 10.5 0 0 1 0 13.6 1 1 0 1 1-1.5-1.3 8.5 8.5 0 0 0 0-11 1 1 0 0 1 .1-1.4Z",
  );
export const stop = () =>
  icon("M7 6h10a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1H7a1 1 0 0 1-1-1V7a1 1 0 0 1 1-1Z");
export const turn = () =>
  icon(
    "M12 3a9 9 0 0 1 7.5 4H22a1 1 0 0 1 .7 1.7l-3 3a1 1 0 0 1-1.4 0l-3-3A1 1 0 0 1 16 7h1a7 7 0 0 0-11.8 3.4 1 1 0 1 1-2-.4A9 9 0 0 1 12 3Zm-6.3 9.3 3 3A1 1 0 0 1 8 17H7a7 7 0 0 0 11.8-3.4 1 1 0 1 1 2 .4A9 9 0 0 1 4.500 17H2a1 1 0 0 1-.7-1.7l3-3a1 1 0 0 1 1.4 0Z",
  );
export const hands = () =>
  icon(
    "M12 3a8 8 0 0 0-8 8v5.500A2.500 2.500 0 0 0 6.500 19H8a1 1 0 0 0 1-1v-5a1 1 0 0 0-1-1H6v-1a6 6 0 0 1 12 0v1h-2a1 1 0 0 0-1 1v5c0 .6.4 1 1 1h1.500l-.3.500A2 2 0 0 1 15.500 20.500H13a1 1 0 0 0 0 2h2.500a4 4 0 0 0 3.500-2.100l1-2A2.500 2.500 0 0 0 20 16.500V11a8 8 0 0 0-8-8Z",
  );
export const warning = () =>
  icon(
    "M10.300 4 2.300 18a2 2 0 0 0 1.700 3h16a2 2 0 0 0 1.700-3l-8-14a2 2 0 0 0-3.400 0ZM12 9a1 1 0 0 1 1 1v4a1 1 0 0 1-2 0v-4a1 1 0 0 1 1-1Zm0 9.200a1.200 1.200 0 1 1 0-2.400 1.200 1.200 0 0 1 0 2.400Z",
  );
