// @ts-check
/** How long to wait before the next connection. */

const FIRST_MS = 500;
const MOST_MS = 30_000;
/** A connection that lived this long was a good one. */
export const STABLE_MS = 10_000;

/**
 * Waits double with each loss. Only a connection that stayed for a while starts over: a server that
 * accepts and closes at once would otherwise be asked twice a second by everybody.
 */
export class Backoff {
  #losses = 0;
  /** @type {number | null} */
  #sinceMs = null;

  /** The connection has delivered something. @param {number} nowMs */
  working(nowMs) {
    this.#sinceMs ??= nowMs;
  }

  /**
   * The connection is gone. Returns how long to wait: between half of the step and all of it.
   *
   * @param {number} nowMs
   * @param {number} random from 0 to 1.
   */
  lost(nowMs, random) {
    if (this.#sinceMs !== null && nowMs - this.#sinceMs >= STABLE_MS) {
      this.#losses = 0;
    }
    this.#sinceMs = null;
    const step = Math.min(MOST_MS, FIRST_MS * 2 ** Math.min(this.#losses, 16));
    this.#losses += 1;
    return Math.round(step * (0.5 + random / 2));
  }

  /** Somebody asked to try now. */
  reset() {
    this.#losses = 0;
    this.#sinceMs = null;
  }
}
