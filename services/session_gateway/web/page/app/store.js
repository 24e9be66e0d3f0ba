// @ts-check
/** Holds the state. Listeners are told once for all actions of a task. */

/**
 * @template S the state.
 * @template A the actions.
 */
export class Store {
  /** @type {S} */
  state;
  #reduce;
  /** @type {(() => void)[]} */
  #listeners = [];
  #told = true;

  /**
   * @param {S} state
   * @param {(state: S, action: A) => S} reduce returns the state after an action.
   */
  constructor(state, reduce) {
    this.state = state;
    this.#reduce = reduce;
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.#listeners.push(listener);
  }

  /** @param {A} action */
  dispatch(action) {
    const next = this.#reduce(this.state, action);
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
