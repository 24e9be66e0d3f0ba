// @ts-check
/** Starts the room page. */

import { html, render } from "../app/html.js";
import { Store } from "../app/store.js";
import { Controller } from "./controller.js";
import { storedChoices } from "./memory.js";
import { initialState, reduce } from "./state.js";
import { roomTextsOf } from "./texts.js";
import { Page } from "./view-page.js";

const store = new Store(initialState(storedChoices()), reduce);
const controller = new Controller(store);
const root = /** @type {HTMLElement} */ (document.getElementById("page"));

function show() {
  const { state } = store;
  const text = roomTextsOf(state.interface);
  const name = state.room?.name ?? "";
  document.documentElement.lang = state.interface;
  document.title = name === "" ? text("room.title") : `${name} · Lingua`;
  render(html`<${Page} ...${{ state, text, controller }} />`, root);
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    controller.stop();
  }
});
store.listen(show);
root.replaceChildren();
show();
controller.start();
