// @ts-check
/** Starts the page. */

import { storedChoices } from "./choices.js";
import { Controller } from "./controller.js";
import { html, render } from "./html.js";
import { initialState, reduce } from "./state.js";
import { Store } from "./store.js";
import { textsOf } from "./texts.js";
import { Page } from "./view-page.js";

/** Two people on either side of a phone. */
const NARROW = "(max-width: 760px) and (orientation: portrait)";

const store = new Store(initialState(storedChoices()), reduce);
const controller = new Controller(store);
const narrow = matchMedia(NARROW);
const root = /** @type {HTMLElement} */ (document.getElementById("page"));

function show() {
  const { state } = store;
  document.documentElement.lang = state.interface;
  document.title = textsOf(state.interface)("page.title");
  render(html`<${Page} state=${state} narrow=${narrow.matches} controller=${controller} />`, root);
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    controller.stop();
  }
});
narrow.addEventListener("change", show);
store.listen(show);
root.replaceChildren();
show();
controller.start();
