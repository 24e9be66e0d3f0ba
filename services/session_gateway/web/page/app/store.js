// @ts-check
/** Holds the state. Listeners are told once for all actions of a task. */

import { reduce } from "./state.js";

/** @import { Action, State } from "./types.js" */

export class Store {
  /** @type {State} */
  state;
  /** @type {(() => void)[]} */
  #listeners = [];
  #told = true;

  /** @param {State} state */
  constructor(state) {
    this.state = state;
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.#listeners.push(listener);
  }

  /** @param {Action} action */
  dispatch(action) {
    const next = reduce(this.state, action);
    if (next === this.state) {
      return;
    }
    this.state = next;
    if (this.#told) {
      this.#told = false;
      queueMicrotask(() => {
        this.#told = true;
        for (const listener of this.#listeners) {
          listener();
        }
      });
    }
  }
}
