/**
 * Where a listener is in its room, and whether it was given everything. No I/O, no clock.
 *
 * Each utterance names the one before it in its language. If that one is not below the listener's
 * position, the listener was not given it: the chain is broken.
 */

/** Changes of language that are not in effect yet. More than these are merged. */
const MAX_CHANGES = 64;

/** Room indexes from the first one up to, but not including, the other. */
export interface Range {
  readonly first: number;
  readonly until: number;
}

/** The position of one listener, over all its connections. It only grows. */
export class Chain {
  /** Whether the listener has been in the room. */
  started = false;
  #liveFrom = 0;
  #seen: number | null = null;
  /** The first indexes of languages that were changed to, ascending, all above the position. */
  #changes: number[] = [];
  /** Whether the last connection broke during a change of language. */
  #isUnsure = false;
  /** Utterances below this one may be in the language that the listener does not ask for. */
  #unsureUntil = 0;

  /** The first room index that the listener has not seen, or is to get live. */
  get position(): number {
    return this.#seen ?? this.#liveFrom;
  }

  /** The listener is in the room. `liveFrom`, the first index that comes live, counts once. */
  join(liveFrom: number): void {
    if (!this.started) {
      this.started = true;
      this.#liveFrom = liveFrom;
    }
    // A new connection continues at the position, in one language.
    this.#changes = [];
    if (this.#isUnsure) {
      this.#isUnsure = false;
      // Whenever the change was, it was before this.
      this.#unsureUntil = liveFrom;
    }
  }

  /**
   * The connection has broken.
   *
   * @param isChanging whether a change of language was not answered.
   */
  break(isChanging: boolean): void {
    this.#isUnsure ||= isChanging || this.#changes.length > 0;
  }

  /** Utterances from this index on come in another language. */
  change(index: number): void {
    if (index > this.position) {
      const before = this.#changes.filter((each) => each < index);
      this.#changes = [...before.slice(-MAX_CHANGES), index];
    }
  }

  /** Whether everything below `until` has been seen. */
  isRepeat(until: number): boolean {
    return this.#seen !== null && until <= this.#seen;
  }

  /**
   * Returns what the listener was not given before an utterance; null if nothing.
   *
   * @param previous the index of the one before it in its language; null: there is none.
   */
  lostBefore(index: number, previous: number | null): Range | null {
    const first = this.#firstDue(index);
    return previous === null || first === null || previous < first
      ? null
      : { first, until: previous + 1 };
  }

  /**
   * Returns what the listener may not have been given before an utterance, because it was published
   * in another language; null if nothing.
   */
  unsureBefore(index: number): Range | null {
    const first = this.position;
    const until = Math.min(index, this.#unsureUntil);
    return first < until ? { first, until } : null;
  }

  /** The lowest index that is due before this one; null: unknown, it is the first replay. */
  #firstDue(index: number): number | null {
    if (this.#seen === null && index < this.#liveFrom) {
      return null;
    }
    return Math.max(this.position, ...this.#changes.filter((each) => each <= index));
  }

  /** Everything below `until` was given to the app. */
  advance(until: number): void {
    this.#seen = until;
    this.#changes = this.#changes.filter((each) => each > until);
  }
}

export function inWords({ first, until }: Range): string {
  return until === first + 1 ? `utterance ${first}` : `utterances ${first} to ${until - 1}`;
}
