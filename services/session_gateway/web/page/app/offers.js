// @ts-check
/** Asks which languages there are, again and again. */

import { SessionRefusedError, offeredDirections } from "./sdk.js";

/** @import { OfferStore } from "./types.js" */

/** How old the shown languages may be. */
const EVERY_MS = 15_000;
/** While there are none, or the service does not answer. */
const SOON_MS = 3_000;
const ANSWER_MS = 10_000;

export class Offers {
  #store;
  #token;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #asking = false;

  /**
   * @param {OfferStore} store
   * @param {{ readonly current: string, ask(): Promise<unknown> }} token the one to use, and what to
   *   do if it is refused: the languages are asked for again after that.
   */
  constructor(store, token) {
    this.#store = store;
    this.#token = token;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) {
        void this.ask();
      }
    });
  }

  async ask() {
    if (this.#asking) {
      return;
    }
    this.#asking = true;
    clearTimeout(this.#timer);
    let afterMs = SOON_MS;
    try {
      const token = this.#token.current;
      const signal = AbortSignal.timeout(ANSWER_MS);
      const options = token === "" ? { signal } : { signal, token };
      const { directions } = await offeredDirections(location.origin, options);
      this.#store.dispatch({ type: "offer", directions });
      afterMs = directions.length > 0 ? EVERY_MS : SOON_MS;
    } catch (error) {
      if (isRefusal(error, "UNAUTHENTICATED") || isRefusal(error, "PERMISSION_DENIED")) {
        await this.#token.ask();
        afterMs = 0;
      } else {
        this.#store.dispatch({ type: "offer-failed" });
      }
    }
    this.#asking = false;
    if (!document.hidden) {
      this.#timer = setTimeout(() => void this.ask(), afterMs);
    }
  }
}

/**
 * @param {unknown} error
 * @param {string} reason
 */
function isRefusal(error, reason) {
  return error instanceof SessionRefusedError && error.reason === reason;
}
