/**
 * Detects a frozen gateway by its silence. No I/O, no clock.
 *
 * A process that is stopped, or whose machine hangs, keeps its connections: they do not break, and
 * its kernel still accepts what is sent to it. Only its silence shows that it is frozen.
 */

/** A gateway is frozen after SILENT_BEATS without a message, if it also had ANSWER_BEATS to answer. */
const SILENT_BEATS = 6;
const ANSWER_BEATS = 3;
/** A gateway that receives messages sends something at least every half of its silence. */
const ASK_BEATS = 3;

/** The range that a gateway may choose from. */
const LEAST_MS = 300;
const MOST_MS = 600_000;
/** The limit grows to at most this many times what the gateway says. */
const MOST_TIMES = 8;
/** After this long without another silence, the limit is reset. */
const FORGET_MS = 300_000;

export type Verdict = "wait" | "ask" | "silent";

/**
 * Counts the beats during which the gateway sent nothing.
 *
 * A beat counts only if it came on time. If it did not, this page was suspended or busy, and
 * messages may lie unread in the socket. So a stall of this page, however long, is never mistaken
 * for silence of the gateway.
 */
export class Silence {
  /** Set this whenever the gateway has sent something. */
  heard = false;
  /** When to call `beat` next. */
  due: number;
  #beatMs: number;
  #quiet = 0;
  /** Beats since it was asked; null if it was not asked since its last message. */
  #unanswered: number | null = null;

  constructor(
    now: number,
    readonly silenceMs: number,
  ) {
    this.#beatMs = silenceMs / SILENT_BEATS;
    this.due = now + this.#beatMs;
  }

  /** Handles a beat, which must be due. "ask": ask the gateway now; this counts as asked. */
  beat(now: number): Verdict {
    const late = now - this.due;
    this.due = now + this.#beatMs;
    if (this.heard) {
      this.heard = false;
      this.#quiet = 0;
      this.#unanswered = null;
      return "wait";
    }
    if (late > this.#beatMs) {
      return "wait";
    }
    this.#quiet += 1;
    if (this.#unanswered === null) {
      if (this.#quiet < ASK_BEATS) {
        return "wait";
      }
      this.#unanswered = 0;
      return "ask";
    }
    this.#unanswered += 1;
    const isFrozen = this.#quiet >= SILENT_BEATS && this.#unanswered >= ANSWER_BEATS;
    return isFrozen ? "silent" : "wait";
  }
}

/**
 * The silence limit of the next gateway.
 *
 * Only whole messages count as signs of life. Over a slow line, a large message may take longer
 * than the limit, and after a reconnection it starts from its beginning. So the limit doubles each
 * time that a gateway was left because it was silent.
 */
export class Patience {
  #times = 1;
  #lostAt = 0;

  /** Returns how long a gateway that announced `saidMs` may be silent; 0: forever. */
  silenceMs(now: number, saidMs: number): number {
    if (saidMs === 0) {
      return 0;
    }
    if (now - this.#lostAt > FORGET_MS) {
      this.#times = 1;
    }
    return Math.min(MOST_MS, Math.max(LEAST_MS, saidMs)) * this.#times;
  }

  /** A gateway was left because it was silent. */
  ranOut(now: number): void {
    this.#times = Math.min(MOST_TIMES, 2 * this.#times);
    this.#lostAt = now;
  }
}
