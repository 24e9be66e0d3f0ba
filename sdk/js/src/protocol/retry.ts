/** When a session tries the next gateway, and when it gives up. No I/O, no clock. */

/** The limit of the first wait. It doubles with each wait, up to LONGEST_MS. */
export const FIRST_MS = 100;
export const LONGEST_MS = 5000;
/** How long a gateway may take to answer Open. */
export const ANSWER_MS = 10_000;
/** The least time that it gets, even at the last attempt before the session gives up. */
export const LAST_ANSWER_MS = 1000;
/** How long to try the first connection, before a server has said what it allows. */
export const OPEN_MS = 10_000;
/** How long to try to resume, if the server does not say how long it waits. */
export const RESUME_MS = 30_000;
/** A connection that lasted this long was good: the next backoff starts small. */
export const STABLE_MS = 1000;
/** The longest wait that a server can ask for. */
export const LONGEST_WAIT_MS = 30_000;

/** Returns a number from 0 up to, but not including, 1. */
export type Random = () => number;

/** Exponential backoff with full jitter, so that clients do not all reconnect at once. */
export class Backoff {
  #limit = FIRST_MS;

  constructor(private readonly random: Random) {}

  next(): number {
    const wait = this.random() * this.#limit;
    this.#limit = Math.min(LONGEST_MS, this.#limit * 2);
    return wait;
  }

  reset(): void {
    this.#limit = FIRST_MS;
  }
}

export interface Asked {
  /** The wait that the server asked for. */
  readonly askedMs?: number;
  /** The server asked the client to connect elsewhere: no backoff after a good connection. */
  readonly moved?: boolean;
  /** An attempt before the time that the server asked for cannot succeed. */
  readonly strictly?: boolean;
}

/**
 * Times the attempts of a session to connect.
 *
 * A connection counts as good only if it lasted a while or brought the session forward. One that
 * opens and ends right away resets neither the backoff nor the time after which to give up.
 */
export class Retries {
  #backoff: Backoff;
  #allowedMs = OPEN_MS;
  /** Since when there is no connection; null while there is one. */
  #awaySince: number | null = null;
  /** Since when there was no good connection; null if the last one was good. */
  #troubleSince: number | null = null;
  #openedAt: number | null = null;
  #wasGood = false;

  /** @param limitMs how long to try; null: OPEN_MS at first, later as long as the server allows. */
  constructor(
    random: Random,
    private readonly limitMs: number | null,
  ) {
    this.#backoff = new Backoff(random);
  }

  /** Notes that there is no connection. Only the first call after `opened` counts. */
  away(now: number): void {
    if (this.#awaySince !== null) {
      return;
    }
    this.#awaySince = now;
    if (this.#openedAt !== null && now - this.#openedAt >= STABLE_MS) {
      this.progress();
    }
    if (this.#wasGood) {
      this.#backoff.reset();
      this.#troubleSince = null;
    }
    this.#troubleSince ??= now;
  }

  /** Notes that the session is open. Returns for how many milliseconds it was not. */
  opened(now: number, resumeWithinMs: number): number {
    const awayMs = this.#awaySince === null ? 0 : now - this.#awaySince;
    this.#awaySince = null;
    this.#openedAt = now;
    this.#wasGood = false;
    this.#allowedMs = resumeWithinMs || RESUME_MS;
    return awayMs;
  }

  /** Notes that the current connection has brought the session forward. */
  progress(): void {
    this.#wasGood = true;
  }

  /** How long to try. */
  get withinMs(): number {
    return this.limitMs ?? this.#allowedMs;
  }

  get #giveUpAt(): number | null {
    return this.#troubleSince === null ? null : this.#troubleSince + this.withinMs;
  }

  /** Returns the deadline for the answer of a gateway that is asked now. */
  answerBy(now: number): number {
    const latest = now + ANSWER_MS;
    const giveUpAt = this.#giveUpAt;
    return giveUpAt === null ? latest : Math.min(latest, Math.max(giveUpAt, now + LAST_ANSWER_MS));
  }

  /** Returns the milliseconds until the next attempt; null if it is time to give up. */
  nextWait(
    now: number,
    { askedMs = 0, moved = false, strictly = false }: Asked = {},
  ): number | null {
    const backoff = moved && this.#wasGood ? 0 : this.#backoff.next();
    // Attempts that fail before the session is open again are not good.
    this.#wasGood = false;
    const wait = Math.max(Math.min(askedMs, LONGEST_WAIT_MS), backoff);
    const giveUpAt = this.#giveUpAt;
    if (giveUpAt === null) {
      return wait;
    }
    if (now >= giveUpAt || (strictly && now + askedMs > giveUpAt)) {
      return null;
    }
    // The last attempt is made before it is time to give up.
    return Math.min(wait, giveUpAt - now);
  }
}
